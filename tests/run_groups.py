"""Run groups of tests and print the minutes of each, and how busy the processors were meanwhile.

``python tests/run_groups.py all`` runs every group but those of ``APART``; a group whose need is missing on this
machine is named at the end with its cure, and with ``CI=true`` that is a failure. Nothing is retried. A run of all
groups adds its minutes to ``tests/minutes.csv``, which is committed with the change: so it is seen when a group grows
slow. Groups run one after another, but for the simulator, which only computes: in a run of all groups it runs beside
those that mostly wait, at a lower priority (``tests/beside.py``).

Some tests need libraries that come with Spark (``NEED_PYARROW``). A run of all groups makes these first, and each of
those tests runs once, with its own group. A group alone takes what is there and says what it skips; the spark group
alone, which always has the libraries, runs them all.
"""

from __future__ import annotations

import csv
import datetime as dt
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from beside import Beside
from without_spark import LIBRARIES

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


def _run(*command: str) -> bool:
    print(f"$ {' '.join(command)}", flush=True)
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def _pytest(*arguments: str) -> bool:
    return _run(sys.executable, "-m", "pytest", *arguments)


def _protos_are_fresh() -> bool:
    """True if the generated code is what the compiler makes of the .proto files now (``make protos``)."""
    sources = sorted(p.relative_to(ROOT) for p in (ROOT / "protos").glob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        made = _run(
            sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={folder}", f"--pyi_out={folder}",
            *map(str, sources),
        )  # fmt: skip
        names = [f"{p.stem}_pb2{ending}" for p in sources for ending in (".py", ".pyi")]
        # The first lines name the compiler's version, which may differ from machine to machine.
        stale = [n for n in names if _body(ROOT / "protos" / n) != _body(Path(folder, "protos", n))]
    if stale:
        print(f"generated code is stale: {', '.join(stale)}; run `make protos`")
    return made and not stale


def _body(path: Path) -> list[str]:
    if not path.exists():
        return []
    versioned = ("# Protobuf Python Version", "_runtime_version", "runtime_version", "    _runtime_version")
    lines = path.read_text().splitlines()
    return [line for line in lines if not line.startswith(versioned) and not line.strip().rstrip(",").isdigit()]


def check() -> bool:
    """ruff, mypy, import walls, generated code."""
    results = [
        _run(str(BIN / "ruff"), "check", "."),
        _run(sys.executable, "-m", "mypy", *_packages()),
        _run(str(BIN / "lint-imports"), "--no-cache"),
        _protos_are_fresh(),
    ]
    return all(results)


def _packages() -> list[str]:
    return sorted(p.parent.name for p in ROOT.glob("*/__init__.py") if p.parent.name not in ("tests", "protos"))


#: Tests elsewhere that need pyarrow or another of the libraries that come with Spark: where these are missing, their
#: own groups skip them.
NEED_PYARROW = (
    "tests/integration/front_door/test_history.py",
    "tests/integration/front_door/test_history_events.py",
    "tests/integration/heron_tracker/test_history_routes.py",
    "tests/unit/benchmarks/test_engines_figures.py",
    "tests/unit/cli/test_view_answers.py",
    "tests/unit/connect/test_delta_sink.py",
    "tests/unit/connect/test_iceberg.py",
    "tests/unit/connect/test_lake_kills.py",
    "tests/unit/connect/test_lake_partitions.py",
    "tests/unit/connect/test_iceberg_partitions.py",
    "tests/unit/connect/test_parquet_sink.py",
    "tests/unit/data_pipeline/test_audit.py",
    "tests/unit/data_pipeline/test_history_rows.py",
    "tests/unit/data_pipeline/test_shipped.py",
    "tests/unit/heron_instance/test_values_arrow.py",
    "tests/unit/history/test_events.py",
    "tests/unit/history/test_reading.py",
    "tests/unit/metrics_manager/test_history_sink.py",
    "tests/unit/pipeline/test_merged_views.py",
    "tests/unit/pipeline/test_view_progress.py",
    "tests/unit/pipeline/test_view_questions.py",
    "tests/unit/streamlet/test_streamlet_lakes.py",
    "tests/unit/streamlet/test_streamlet_files.py",
    "tests/unit/streamlet/test_streamlet_online_io.py",
    "tests/unit/streamlet/test_streamlet_online_sinks.py",
    "tests/unit/streamlet/test_streamlet_packed.py",
    "tests/unit/streamlet/test_streamlet_partitions.py",
    "tests/unit/streamlet/test_streamlet_urls.py",
    "tests/integration/heron_tracker/test_view_routes.py",
    "tests/integration/streamlet/test_streamlet_programs.py",
)

#: Groups that share one cluster, browser or table of faults go in the order of their files; the others at random.
IN_ORDER = ("-p", "no:randomly")

#: Tests of one file share what they start, and most of their time is waiting: two files at once take half of it.
TWO_FILES = ("-n", "2", "--dist", "loadfile")

#: Who has nothing left takes from the other: else it may be that one has all the lanes, two minutes each.
SIM = ("tests/sim", "-n", "2", "--dist", "worksteal")


def fast() -> bool:
    """Those that need Spark's libraries apart from the others, for which there are none."""
    need = _needy("tests/unit/")
    without = ("-p", "tests.without_spark", *(f"--ignore={file}" for file in need))
    passed = _pytest("tests/unit", "tests/tidy", *without, "-n", "2")
    _say_what_is_skipped(need)
    return _pytest(*need, "-n", "2") and passed


def integration() -> bool:
    """Real processes of the local cluster."""
    _say_what_is_skipped(_needy("tests/integration/"))
    return _pytest("tests/integration", *TWO_FILES, "--no-loadscope-reorder", "--durations=10")


def spark(others: Sequence[str] = NEED_PYARROW) -> bool:
    """Its own tests, and those of other groups that need its libraries."""
    return _pytest("tests/spark", *others, *IN_ORDER, "--durations=10")


def _needy(folder: str) -> list[str]:
    return [file for file in NEED_PYARROW if file.startswith(folder)]


def _say_what_is_skipped(need: Sequence[str]) -> None:
    importlib.invalidate_caches()  # they may have come since this run began
    absent = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if absent:
        print(
            f"skipped: what needs {', '.join(absent)}, in {len(need)} files ({', '.join(need)}); `make test-spark` "
            "installs these libraries and runs it",
            flush=True,
        )


GROUPS: dict[str, Callable[[], bool]] = {
    "check": check,
    "fast": fast,
    "integration": integration,
    "browser": lambda: _pytest("tests/browser", *IN_ORDER, "-rs"),
    "faults": lambda: _pytest("tests/faults", *IN_ORDER, *TWO_FILES, "--durations=10", "-rPfE"),
    "zookeeper": lambda: _pytest("tests/zookeeper", *IN_ORDER, *TWO_FILES, "--durations=10", "-rPfE"),
    "postgres": lambda: _pytest("tests/postgres", *IN_ORDER, "--durations=10"),
    "redis": lambda: _pytest("tests/redis", *IN_ORDER, "--durations=10"),
    "sftp": lambda: _pytest("tests/sftp", *IN_ORDER, "--durations=10"),
    "brokers": lambda: _pytest("tests/brokers", *IN_ORDER, *TWO_FILES, "--durations=10"),
    "slurm": lambda: _pytest("tests/slurm", *IN_ORDER, "--durations=10", "-rPfE"),
    "spark": spark,
    "docker": lambda: _pytest("tests/docker", *IN_ORDER, "--durations=10", "-rPfE"),
    "swarm": lambda: _pytest("tests/swarm", *IN_ORDER, "--durations=10", "-rPfE"),
    "k8s": lambda: _pytest("tests/k8s", *IN_ORDER, "--durations=10", "-rPfE"),
    "sim": lambda: _pytest(*SIM),
}

#: Groups that ``all`` leaves out: they take minutes, and are for those who change what they test.
APART = ("slurm", "swarm", "k8s")

#: Groups that use the processors whole; the simulator begins after them.
COMPUTING = ("check", "fast")


@dataclass(frozen=True)
class Ran:
    """How a group ended: its result, its minutes, and the share of the processors' time that was used meanwhile."""

    group: str
    passed: bool
    minutes: float
    busy: float = 0.0

    @property
    def result(self) -> str:
        """As the table has it."""
        return "passed" if self.passed else "FAILED"


def missing(group: str) -> str:
    """What this machine lacks for the group, with the cure; empty when nothing."""
    if group in ("integration", "faults") and shutil.which("ps") is None and not Path("/proc/self/stat").exists():
        return "needs Linux with /proc"
    if group == "browser" and _setup_fails("browser-setup"):
        return "needs Chromium: run deploy/browser-setup as root, or install chromium and chromium-driver"
    if group in ("zookeeper", "spark") and _setup_fails("spark-setup", str(BIN.parent)):
        return "needs Java 17 and PySpark: see deploy/spark-setup"
    if group in ("postgres", "spark") and _setup_fails("postgres-setup", str(BIN.parent)):
        return "needs PostgreSQL's server and psycopg: see deploy/postgres-setup"
    if group in ("redis", "spark") and _setup_fails("redis-setup", str(BIN.parent)):
        return "needs Redis's server and redis-py: see deploy/redis-setup"
    if group == "sftp" and _setup_fails("sftp-setup", str(BIN.parent)):
        return "needs OpenSSH's server, fsspec and sshfs: see deploy/sftp-setup"
    if group in ("brokers", "spark") and _setup_fails("brokers-setup", str(BIN.parent)):
        return "needs the servers of NATS and MQTT, nats-py, paho-mqtt and confluent-kafka: see deploy/brokers-setup"
    if group == "slurm" and _setup_fails("slurm-setup"):
        return "needs Slurm's daemons, root and cgroups of version 1: see deploy/slurm-setup"
    if group == "k8s" and (_setup_fails("docker-setup") or _setup_fails("k8s-setup")):
        return "needs root, cgroups of version 1, Docker, and Debian 12 to build Kubernetes on: see deploy/k8s-setup"
    if group == "k8s" and _setup_fails("helm-setup", str(BIN.parent)):
        return "needs Helm: see deploy/helm-setup"
    if group in ("docker", "swarm") and _setup_fails("docker-setup"):
        return "needs a Docker engine with Compose and buildx: see deploy/docker-setup"
    return ""


def _setup_fails(script: str, *arguments: str) -> bool:
    """True if the script of deploy/ cannot make what a group needs; it has said why."""
    return subprocess.run([ROOT / "deploy" / script, *arguments], cwd=ROOT, check=False).returncode != 0


def keep_minutes(rows: list[Ran]) -> None:
    """One line for each group: when, at which commit, on how many cores, how long."""
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    when = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d")
    with (ROOT / "tests" / "minutes.csv").open("a", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerows(
            (when, git.stdout.strip(), os.cpu_count(), row.group, f"{row.minutes:.1f}", row.result) for row in rows
        )


def run(
    names: list[str], beside: str = "", groups: Mapping[str, Callable[[], bool]] = GROUPS
) -> tuple[list[Ran], list[tuple[str, str]]]:
    """Run these groups, and ``beside`` next to those that do not compute: how they ended; which could not run, with
    the cure."""
    rows: list[Ran] = []
    not_run: list[tuple[str, str]] = []
    other: Beside | None = None
    try:
        for name in names:
            if beside and other is None and name not in COMPUTING:
                print(f"\n== {beside} begins, beside the others; what it prints comes at the end", flush=True)
                other = Beside([sys.executable, "-m", "pytest", *SIM], ROOT)
            cure = missing(name)
            if cure:
                not_run.append((name, cure))
                continue
            print(f"\n== {name}", flush=True)
            began = time.monotonic()
            psutil.cpu_percent()
            passed = groups[name]()
            rows.append(Ran(name, passed, (time.monotonic() - began) / 60, psutil.cpu_percent()))
            print(f"{name}: {rows[-1].result}, {rows[-1].minutes:.1f} minutes", flush=True)
        if other is not None:
            print(f"\n== {beside}", flush=True)
            passed, minutes, text = other.join()
            other = None
            print(text, flush=True)
            rows.append(Ran(beside, passed, minutes))
    finally:
        if other is not None:
            other.end()
    return rows, not_run


def for_all() -> Mapping[str, Callable[[], bool]]:
    """The groups of a run of all: with Spark's libraries there from the beginning, the spark group has its own tests
    only."""
    if _setup_fails("spark-setup", str(BIN.parent)):
        return GROUPS  # the spark group is named at the end as not run, unless it comes to work until then
    return {**GROUPS, "spark": lambda: spark(())}


def main(arguments: list[str]) -> int:
    """Run the named groups (``all`` for every one but ``APART``); 0 when all of them ran and passed."""
    everything = arguments == ["all"]
    names = [name for name in GROUPS if name not in (*APART, "sim")] if everything else arguments
    unknown = [n for n in names if n not in GROUPS]
    if unknown or not names:
        print(f"usage: run_groups.py all | {' | '.join(GROUPS)}", file=sys.stderr)
        return 2
    began = time.monotonic()
    rows, not_run = run(names, beside="sim" if everything else "", groups=for_all() if everything else GROUPS)
    print("\ngroup          result   minutes   processors busy")
    for row in rows:
        print(f"{row.group:<14} {row.result:<8} {row.minutes:7.1f}" + (f"   {row.busy:14.0f} %" if row.busy else ""))
    print(f"{'all':<14} {'':<8} {(time.monotonic() - began) / 60:7.1f}")
    if everything:
        keep_minutes(rows)
    for name, cure in not_run:
        print(f"not run: {name}: {cure}")
    failed = sum(not row.passed for row in rows)
    if not_run and os.environ.get("CI") == "true":
        failed += len(not_run)
    print(f"groups: {sum(row.passed for row in rows)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
