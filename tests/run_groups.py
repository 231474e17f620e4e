"""Run groups of tests one after another and print the minutes of each.

``python tests/run_groups.py all`` runs every group but those of ``APART``; a group whose need is missing on this
machine is named at the end with its cure, and with ``CI=true`` that is a failure. Nothing is retried. A run of all
groups adds its minutes to ``tests/minutes.csv``, which is committed with the change: so it is seen when a group grows
slow. Machines of one kind differ by a factor of two; so the simulator, whose size is free, comes last in a run of all
groups and gets what is left of ``WANTED_MINUTES``, but never less than the floors of its tests.
"""

from __future__ import annotations

import csv
import datetime as dt
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

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


#: Tests elsewhere that need pyarrow, deltalake or pyiceberg, which come with Spark: where these are missing, their own
#: groups skip them.
NEED_PYARROW = (
    "tests/integration/front_door/test_history.py",
    "tests/integration/heron_tracker/test_history_routes.py",
    "tests/unit/benchmarks/test_engines_figures.py",
    "tests/unit/cli/test_view_answers.py",
    "tests/unit/connect/test_delta_sink.py",
    "tests/unit/connect/test_iceberg.py",
    "tests/unit/connect/test_lake_kills.py",
    "tests/unit/connect/test_parquet_sink.py",
    "tests/unit/data_pipeline/test_history_rows.py",
    "tests/unit/data_pipeline/test_shipped.py",
    "tests/unit/history/test_reading.py",
    "tests/unit/metrics_manager/test_history_sink.py",
    "tests/unit/pipeline/test_merged_views.py",
    "tests/unit/pipeline/test_view_questions.py",
    "tests/unit/streamlet/test_streamlet_lakes.py",
    "tests/unit/streamlet/test_streamlet_files.py",
    "tests/unit/streamlet/test_streamlet_online_io.py",
    "tests/unit/streamlet/test_streamlet_online_sinks.py",
    "tests/unit/streamlet/test_streamlet_packed.py",
    "tests/integration/heron_tracker/test_view_routes.py",
    "tests/integration/streamlet/test_streamlet_programs.py",
)

#: Groups that share one cluster, browser or table of faults go in the order of their files; the others at random.
IN_ORDER = ("-p", "no:randomly")

#: Tests of one file share what they start, and most of their time is waiting: two files at once take half of it.
TWO_FILES = ("-n", "2", "--dist", "loadfile")

GROUPS: dict[str, Callable[[], bool]] = {
    "check": check,
    "fast": lambda: _pytest("tests/unit", "tests/tidy", "-n", "2"),
    "integration": lambda: _pytest("tests/integration", *TWO_FILES, "--no-loadscope-reorder", "--durations=10"),
    "browser": lambda: _pytest("tests/browser", *IN_ORDER),
    "faults": lambda: _pytest("tests/faults", *IN_ORDER, *TWO_FILES, "--durations=10", "-rPfE"),
    "zookeeper": lambda: _pytest("tests/zookeeper", *IN_ORDER, "--durations=10", "-rPfE"),
    "postgres": lambda: _pytest("tests/postgres", *IN_ORDER, "--durations=10"),
    "redis": lambda: _pytest("tests/redis", *IN_ORDER, "--durations=10"),
    "sftp": lambda: _pytest("tests/sftp", *IN_ORDER, "--durations=10"),
    "brokers": lambda: _pytest("tests/brokers", *IN_ORDER, "--durations=10"),
    "slurm": lambda: _pytest("tests/slurm", *IN_ORDER, "--durations=10", "-rPfE"),
    "spark": lambda: _pytest("tests/spark", *NEED_PYARROW, *IN_ORDER, "--durations=10"),
    "docker": lambda: _pytest("tests/docker", *IN_ORDER, "--durations=10", "-rPfE"),
    "swarm": lambda: _pytest("tests/swarm", *IN_ORDER, "--durations=10", "-rPfE"),
    "k8s": lambda: _pytest("tests/k8s", *IN_ORDER, "--durations=10", "-rPfE"),
    # Who has nothing left takes from the other: else it may be that one has all the lanes, a minute and a half each.
    "sim": lambda: _pytest("tests/sim", "-n", "2", "--dist", "worksteal"),
}

#: Groups that ``all`` leaves out: they take minutes, and are for those who change what they test.
APART = ("slurm", "swarm", "k8s")

#: What a run of all groups should take, and what the simulator takes of it where it tries all its schedules.
WANTED_MINUTES, SIM_MINUTES = 55.0, 10.0


def share_of_time(used_minutes: float) -> float:
    """What part of its seconds the simulator gets (``HERONRY_TIME``) when so many minutes are used up; 1 at most."""
    return max(0.0, min(1.0, (WANTED_MINUTES - used_minutes) / SIM_MINUTES))


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


def keep_minutes(rows: list[tuple[str, str, float]]) -> None:
    """One line for each group: when, at which commit, on how many cores, how long."""
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    when = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d")
    with (ROOT / "tests" / "minutes.csv").open("a", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerows(
            (when, git.stdout.strip(), os.cpu_count(), group, f"{minutes:.1f}", result)
            for group, result, minutes in rows
        )


def main(arguments: list[str]) -> int:
    """Run the named groups (``all`` for every one but ``APART``); 0 when all of them ran and passed."""
    names = [name for name in GROUPS if name not in APART] if arguments == ["all"] else arguments
    unknown = [n for n in names if n not in GROUPS]
    if unknown or not names:
        print(f"usage: run_groups.py all | {' | '.join(GROUPS)}", file=sys.stderr)
        return 2
    rows: list[tuple[str, str, float]] = []
    not_run: list[tuple[str, str]] = []
    for name in names:
        cure = missing(name)
        if cure:
            not_run.append((name, cure))
            continue
        print(f"\n== {name}", flush=True)
        if name == "sim" and arguments == ["all"]:
            share = share_of_time(sum(row[2] for row in rows))
            print(f"HERONRY_TIME={os.environ.setdefault('HERONRY_TIME', f'{share:.2f}')}", flush=True)
        began = time.monotonic()
        passed = GROUPS[name]()
        rows.append((name, "passed" if passed else "FAILED", (time.monotonic() - began) / 60))
    print("\ngroup          result   minutes")
    for name, result, minutes in rows:
        print(f"{name:<14} {result:<8} {minutes:6.1f}")
    print(f"{'all':<14} {'':<8} {sum(r[2] for r in rows):6.1f}")
    if arguments == ["all"]:
        keep_minutes(rows)
    for name, cure in not_run:
        print(f"not run: {name}: {cure}")
    failed = sum(result == "FAILED" for _, result, _ in rows)
    if not_run and os.environ.get("CI") == "true":
        failed += len(not_run)
    print(f"groups: {len(rows) - sum(r[1] == 'FAILED' for r in rows)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
