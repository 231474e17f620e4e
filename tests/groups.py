"""Run groups of tests, and choose the groups that a change affects.

    python tests/groups.py ordinary                    # make test: checks, unit tests, the core of the others
    python tests/groups.py all                         # make test-all: every group but those of APART
    python tests/groups.py affected --started SECONDS  # .ci/run: groups that the change affects
    python tests/groups.py redis faults                # these groups, whole

A group whose need is missing on this machine is named at the end with its cure; with ``CI=true`` that is a failure.
The simulator only computes, so a run of all groups gives it the time in which the others wait. Nothing is retried. A
green run of all groups on a clean tree appends one line per group to ``tests/minutes.csv``, which is committed:
``affected`` compares with the commit it names, and expects the minutes it names.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
VENV = str(BIN.parent)
MINUTES = ROOT / "tests" / "minutes.csv"
ORDINARY_MINUTES = ROOT / ".cache" / "ordinary_minutes.json"  # of the last `make test` in this clone

PLANNED_MINUTES = 55.0  # `affected` starts no group that is expected to end later, counted from --started
STOP_MINUTES = 75.0  # a group that still runs then is stopped and counts as failed
MARGIN = 1.3  # times the expected minutes
STOPPING_SECONDS = 90.0  # for a stopped group to end its servers


@dataclass(frozen=True)
class Need:
    """Prerequisite of a group: a script of ``deploy/`` that installs it, and a remedy if the script fails."""

    script: str
    cure: str
    arguments: tuple[str, ...] = (VENV,)

    def install(self) -> bool:
        """Run the idempotent script; return False if it failed and has printed the reason."""
        return subprocess.run([ROOT / "deploy" / self.script, *self.arguments], cwd=ROOT, check=False).returncode == 0


LIBRARIES = Need("spark-setup", "pip could not install PySpark and pyarrow", (VENV, "libraries"))
JAVA = Need("spark-setup", "needs Java 17 and PySpark: see deploy/spark-setup", (VENV, "java"))
SPARK = Need("spark-setup", "needs Java 17 and PySpark: see deploy/spark-setup")
POSTGRES = Need("postgres-setup", "needs PostgreSQL's server and psycopg: see deploy/postgres-setup")
REDIS = Need("redis-setup", "needs Redis's server and redis-py: see deploy/redis-setup")
SFTP = Need("sftp-setup", "needs OpenSSH's server, fsspec and sshfs: see deploy/sftp-setup")
BROKERS = Need("brokers-setup", "needs the servers of NATS and MQTT and three clients: see deploy/brokers-setup")
BROWSER = Need("browser-setup", "needs Chromium: run deploy/browser-setup as root, or install chromium-driver", ())
DOCKER = Need("docker-setup", "needs a Docker engine with Compose and buildx: see deploy/docker-setup", ())
SLURM = Need("slurm-setup", "needs Slurm's daemons, root and cgroups of version 1: see deploy/slurm-setup", ())
KUBERNETES = Need("k8s-setup", "needs root, cgroups of version 1, Docker and Debian 12: see deploy/k8s-setup", ())
HELM = Need("helm-setup", "needs Helm: see deploy/helm-setup")

#: Tests that share one cluster, browser or table of faults run in the order of their files; the others at random.
IN_ORDER = ("-p", "no:randomly", "--durations=10")
#: Tests of one file share what they start, and mostly wait: two files at once take half the time.
TWO_FILES = ("-n", "2", "--dist", "loadfile")
WORKERS = 2  # processes of a group with "-n", "2"
REPORT = ("-rPfE",)  # these tests print what they measured

#: A change of these affects every group, as does one of a module directly below tests/.
EVERYTHING = ("pyproject.toml", "protos/", "deploy/setup", "deploy/constraints.txt", "heron_runtime/", "tests/support/")
CORES = ("stream_manager/", "topology_master/", "heron_instance/", "heron_container/", "heron_scheduler/")
PROGRAMS = ("heronry/connect/", "heronry/streamlet/")


@dataclass(frozen=True)
class Group:
    """Tests that run together.

    Attributes:
        arguments: for pytest; none for ``check``.
        needs: what the machine must have.
        paths: files and folders whose change affects the group, besides ``EVERYTHING`` and its own tests.
        environment: variables of the whole group.
        core: options that select its part of the ordinary run, if it has one.
        core_needs: what that part needs.
        core_environment: variables of that part.
        computes: it needs and awaits nothing and reads no clock, so it can run beside others at the lowest priority.
    """

    arguments: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    paths: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    core: tuple[str, ...] | None = None
    core_needs: tuple[Need, ...] = ()
    core_environment: dict[str, str] = field(default_factory=dict)
    computes: bool = False


_CORE = ("-m", "core")
GROUPS: dict[str, Group] = {
    "check": Group(core=()),
    "unit": Group(
        ("tests/unit", "tests/checks", "-n", "2", "--hypothesis-profile=ci"),
        (LIBRARIES,),
        core=(),
        core_needs=(LIBRARIES,),
    ),
    "sim": Group(
        ("tests/sim", "-n", "2", "--dist", "worksteal"),
        (),
        CORES,
        {"HERONRY_SIM_SCHEDULES": "10000"},
        core=(),
        core_environment={"HERONRY_SIM_SCHEDULES": "1000"},
        computes=True,
    ),
    "integration": Group(
        ("tests/integration", *TWO_FILES, "--no-loadscope-reorder", "--durations=10"),
        (LIBRARIES,),
        (
            *CORES,
            "heron_cli/",
            "heron_apiserver/",
            "heron_tracker/",
            "heron_control/",
            "metrics_manager/",
            "heronry/",
            "examples/",
        ),
        core=_CORE,
        core_needs=(LIBRARIES,),
    ),
    "spark": Group(
        ("tests/spark", *IN_ORDER),
        (SPARK, POSTGRES, REDIS, BROKERS),
        ("data_pipeline/", "heronry/", "heron_cli/", "deploy/spark"),
        core=(*_CORE, "--ignore=tests/spark/servers"),  # which import clients that only the whole group installs
        core_needs=(JAVA,),
    ),
    "browser": Group(
        ("tests/browser", *IN_ORDER, "-rs"),
        (BROWSER,),
        ("heron_tracker/", "heron_control/web/"),
        core=_CORE,
        core_needs=(BROWSER,),
    ),
    "laws": Group(
        ("tests/unit", "-m", "hypothesis", "-n", "2", "--hypothesis-profile=default"),
        (LIBRARIES,),
        (*CORES, "heronry/"),
    ),
    "faults": Group(("tests/faults", *IN_ORDER, *TWO_FILES, *REPORT), (), CORES),
    "zookeeper": Group(
        ("tests/zookeeper", *IN_ORDER, *TWO_FILES, *REPORT),
        (JAVA,),
        ("topology_master/", "heron_apiserver/", "deploy/zookeeper/"),
    ),
    "postgres": Group(("tests/postgres", *IN_ORDER), (POSTGRES,), (*PROGRAMS, "deploy/postgres-setup")),
    "redis": Group(("tests/redis", *IN_ORDER), (REDIS,), (*PROGRAMS, "deploy/redis-setup")),
    "sftp": Group(
        ("tests/sftp", *IN_ORDER),
        (SFTP,),
        (*PROGRAMS, "heron_control/packaging/", "heron_apiserver/", "deploy/sftp-setup"),
    ),
    "brokers": Group(("tests/brokers", *IN_ORDER, *TWO_FILES), (BROKERS,), (*PROGRAMS, "deploy/brokers-setup")),
    "docker": Group(
        ("tests/docker", *IN_ORDER, *REPORT),
        (DOCKER,),
        (
            "heron_control/schedulers/",
            "heron_apiserver/",
            "heron_container/",
            "heron_cli/diagnosis/",
            "deploy/",
            "docker-compose.yml",
        ),
    ),
    "slurm": Group(("tests/slurm", *IN_ORDER, *REPORT), (SLURM,)),
    "swarm": Group(("tests/swarm", *IN_ORDER, *REPORT), (DOCKER,)),
    "k8s": Group(("tests/k8s", *IN_ORDER, *REPORT), (DOCKER, KUBERNETES, HELM)),
}

#: Groups that run by name only: each builds a cluster of its own for many minutes.
APART = ("slurm", "swarm", "k8s")
#: These groups run whole by name (`make test-faults`), and a fixed share of their table otherwise.
TABLES = ("faults", "docker")


@dataclass(frozen=True)
class Result:
    """Outcome of one group."""

    group: str
    outcome: str  # passed | FAILED | not run
    minutes: float = 0.0
    cpu_minutes: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class Background:
    """A group that runs beside others; its output is kept in a file."""

    name: str
    process: subprocess.Popen[bytes]
    output: BinaryIO


class Runner:
    """Runs groups one after another, and those that only compute beside them; keeps their results.

    Args:
        stop_at: seconds since the epoch at which a running group is stopped, if at all.
    """

    def __init__(self, stop_at: float | None = None) -> None:
        self.results: list[Result] = []
        self._stop_at = stop_at
        self._installed: dict[Need, bool] = {}
        self._began = time.monotonic()

    def run_all(self, names: Iterable[str]) -> None:
        """Run these groups, those that only compute in the background."""
        names = list(names)
        background = [self._begin(name) for name in names if GROUPS[name].computes]
        try:
            for name in names:
                if not GROUPS[name].computes:
                    self.run(name)
            while background:
                self._finish(background[0])
                background.pop(0)
        finally:
            for run in background:
                _stop(run.process)

    def _begin(self, name: str) -> Background:
        group = GROUPS[name]
        command = ["nice", "-n", "19", sys.executable, "-m", "pytest", *group.arguments]
        print(f"\n== {name}, beside the other groups\n$ {' '.join(command)}", flush=True)
        output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by _finish
        environment = dict(os.environ, **group.environment)
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, process_group=0
        )
        return Background(name, process, output)

    def _finish(self, run: Background) -> None:
        """Wait for a group in the background and print what it has printed.

        Its minutes are those of its workers' processors, since a group of the background waits for the others.
        """
        cpu = _children_seconds()  # the process is counted when it is waited for, here
        passed = run.process.wait() == 0
        cpu_minutes = (_children_seconds() - cpu) / 60
        with run.output as output:
            output.seek(0)
            print(f"\n== {run.name}\n{output.read().decode(errors='replace')}", flush=True)
        self._add(Result(run.name, "passed" if passed else "FAILED", cpu_minutes / WORKERS, cpu_minutes))

    def run(self, name: str, *, core: bool = False, whole_table: bool = False) -> None:
        """Run a group, or its part of the ordinary run."""
        group = GROUPS[name]
        lacking = [need for need in (group.core_needs if core else group.needs) if not self._install(need)]
        if lacking:
            self.results.append(Result(name, "not run", reason=lacking[0].cure))
            return
        print(f"\n== {name}", flush=True)
        environment = dict(os.environ, **(group.core_environment if core else group.environment))
        if whole_table:
            environment.setdefault("HERONRY_FAULTS", "all")
        began, cpu = time.monotonic(), _children_seconds()
        if name == "check":
            passed = check()
        else:
            options = (group.core or ()) if core else ()
            passed = self._call([sys.executable, "-m", "pytest", *group.arguments, *options], environment)
        minutes, cpu_minutes = (time.monotonic() - began) / 60, (_children_seconds() - cpu) / 60
        self._add(Result(name, "passed" if passed else "FAILED", minutes, cpu_minutes))

    def _add(self, result: Result) -> None:
        self.results.append(result)
        print(f"{result.group}: {result.outcome}, {result.minutes:.1f} minutes", flush=True)

    def leave_out(self, name: str, reason: str) -> None:
        """Record a group that is not run, which is not a failure."""
        self.results.append(Result(name, "not run", reason=reason))

    def report(self) -> int:
        """Print the table; 0 if every group that ran has passed and none lacked its needs (with ``CI=true``)."""
        print(f"\n{'group':<14} {'result':<8} {'minutes':>8} {'CPU min':>8}")
        for row in self.results:
            if row.outcome != "not run":
                print(f"{row.group:<14} {row.outcome:<8} {row.minutes:8.1f} {row.cpu_minutes:8.1f}")
        print(f"{'whole run':<14} {'':<8} {(time.monotonic() - self._began) / 60:8.1f}")
        for row in self.results:
            if row.outcome == "not run":
                print(f"not run: {row.group}: {row.reason}")
        cures = {need.cure for need, there in self._installed.items() if not there}
        lacking = sum(row.reason in cures for row in self.results) if os.environ.get("CI") == "true" else 0
        failed = sum(row.outcome == "FAILED" for row in self.results) + lacking
        if any(row.outcome != "not run" for row in self.results):
            print(f"groups: {sum(row.outcome == 'passed' for row in self.results)} passed, {failed} failed")
        return 1 if failed else 0

    def _install(self, need: Need) -> bool:
        if need not in self._installed:
            self._installed[need] = need.install()
        return self._installed[need]

    def _call(self, command: Sequence[str], environment: dict[str, str]) -> bool:
        print(f"$ {' '.join(command)}", flush=True)
        process = subprocess.Popen(command, cwd=ROOT, env=environment, process_group=0)  # one interrupt, from _stop
        try:
            return process.wait(None if self._stop_at is None else max(1.0, self._stop_at - time.time())) == 0
        except subprocess.TimeoutExpired:
            print("stopped: this group is too late", flush=True)
            _stop(process)
            return False
        except BaseException:
            _stop(process)
            raise


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a group, so that pytest ends what the tests have started, and wait for its end."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(STOPPING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check() -> bool:
    """Run ruff, mypy and import-linter, and compare the generated protobuf code with its sources."""
    packages = sorted(p.parent.name for p in ROOT.glob("*/__init__.py") if p.parent.name != "tests")
    results = [
        _succeeds(str(BIN / "ruff"), "check", "."),
        _succeeds(sys.executable, "-m", "mypy", *packages),
        _succeeds(str(BIN / "lint-imports"), "--no-cache"),
        protobuf_code_is_fresh(),
    ]
    return all(results)


def _succeeds(*command: str) -> bool:
    print(f"$ {' '.join(command)}", flush=True)
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def protobuf_code_is_fresh() -> bool:
    """Return True if the generated code equals what the compiler makes of the .proto files now (``make protos``)."""
    generated = ROOT / "heron_runtime" / "wire" / "generated"
    with tempfile.TemporaryDirectory() as folder:
        compiled = _succeeds(sys.executable, "protos/generate.py", folder)
        names = {p.name for place in (generated, Path(folder)) for p in place.glob("*_pb2.py*")}
        stale = [n for n in sorted(names) if _unversioned(generated / n) != _unversioned(Path(folder, n))]
    if stale:
        print(f"generated code is stale: {', '.join(stale)}; run `make protos`")
    return compiled and not stale


def _unversioned(path: Path) -> list[str]:
    """Return the lines of generated code without those that name the compiler's version."""
    if not path.exists():
        return []
    versioned = ("# Protobuf Python Version", "_runtime_version", "runtime_version", "    _runtime_version")
    lines = path.read_text().splitlines()
    return [line for line in lines if not line.startswith(versioned) and not line.strip().rstrip(",").isdigit()]


@dataclass(frozen=True)
class GreenRun:
    """The last green run of all groups: its commit and the minutes of each group."""

    commit: str = ""
    minutes: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls) -> GreenRun:
        """Return the last run in ``tests/minutes.csv``."""
        with MINUTES.open(newline="") as file:
            rows = list(csv.DictReader(file))
        commit = rows[-1]["commit"] if rows else ""
        return cls(commit, {r["group"]: float(r["minutes"]) for r in rows if r["commit"] == commit and r["minutes"]})


def record(results: Iterable[Result]) -> None:
    """Append a green run of all groups to ``tests/minutes.csv``, unless the tree has changes that are not committed."""
    if _git("status", "--porcelain"):
        print("tests/minutes.csv: not written, since the tree has changes that are not committed")
        return
    head = _git("rev-parse", "--short", "HEAD")[0]
    today = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d")
    with MINUTES.open("a", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        for row in results:
            minutes = "" if row.outcome == "not run" else f"{row.minutes:.1f}"
            out.writerow((today, head, os.cpu_count(), row.group, minutes, row.outcome))
    print("tests/minutes.csv: written; commit it")


def changed_files(commit: str) -> list[str] | None:
    """Return the files that differ from ``commit``, committed or not; None if this clone does not have the commit."""
    known = subprocess.run(
        ["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=ROOT, stderr=subprocess.DEVNULL, check=False
    )
    if not commit or known.returncode:
        return None
    return _git("diff", "--name-only", commit) + _git("ls-files", "--others", "--exclude-standard")


def _git(*words: str) -> list[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def affected_groups(changed: Iterable[str] | None) -> list[str]:
    """Return the groups, without those of the ordinary run that have no more, whose files are among ``changed``.

    Args:
        changed: paths below the root; None stands for all.
    """
    names = [name for name, group in GROUPS.items() if name not in APART and group.core != ()] + ["sim"]
    if changed is None:
        return names
    paths = [path for path in changed if path != "tests/minutes.csv"]
    if any(path.startswith(EVERYTHING) or (path.startswith("tests/") and path.count("/") == 1) for path in paths):
        return names
    watched = {name: (*GROUPS[name].paths, f"tests/{'unit' if name == 'laws' else name}/") for name in names}
    return [name for name in names if any(path.startswith(watched[name]) for path in paths)]


def run_affected(runner: Runner, started: float) -> None:
    """Run the affected groups that can end in time, the longest first; name the others."""
    base = GreenRun.read()
    speed = _relative_speed(base)
    names = affected_groups(changed_files(base.commit))
    if speed is None:
        for name in names:
            runner.leave_out(name, "no green `make test-all` is recorded to plan its minutes with")
        return
    print(
        f"\naffected since {base.commit}: {', '.join(names) or 'no group'}; minutes times {speed:.2f} on this machine"
    )
    for name in sorted(names, key=lambda name: -base.minutes.get(name, 0.0)):
        left = PLANNED_MINUTES - (time.time() - started) / 60
        expected = MARGIN * speed * base.minutes.get(name, PLANNED_MINUTES / 5)
        if expected > left:
            runner.leave_out(name, f"would take about {expected:.0f} minutes, and {max(left, 0):.0f} are left")
        else:
            runner.run(name)


def _relative_speed(base: GreenRun) -> float | None:
    """Return the minutes of the unit tests here, divided by those of the last green run. None if either is unknown."""
    try:
        here = json.loads(ORDINARY_MINUTES.read_text())
    except (OSError, ValueError):
        here = {}
    if "unit" not in here or not base.minutes.get("unit"):
        return None
    return max(0.5, here["unit"] / base.minutes["unit"])


def main(words: list[str]) -> int:
    """Run what the command line names; see the head of this module."""
    parser = argparse.ArgumentParser(prog="tests/groups.py", description="Run groups of tests.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"ordinary, all, affected, or groups: {', '.join(GROUPS)}"
    )
    parser.add_argument("--started", type=float, default=time.time(), help="with affected: seconds since the epoch")
    given = parser.parse_args(words)
    if not given.names:
        parser.print_help()
        return 2
    unknown = [name for name in given.names if name not in GROUPS]
    if unknown and given.names not in (["ordinary"], ["all"], ["affected"]):
        parser.error(f"unknown group {unknown[0]!r}: choose from ordinary, all, affected, {', '.join(GROUPS)}")
    mode = given.names[0] if unknown else ""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    runner = Runner(given.started + 60 * STOP_MINUTES if mode == "affected" else None)
    if mode == "ordinary":
        for name in (name for name, group in GROUPS.items() if group.core is not None):
            runner.run(name, core=True)
        ORDINARY_MINUTES.parent.mkdir(exist_ok=True)
        ORDINARY_MINUTES.write_text(json.dumps({row.group: row.minutes for row in runner.results}))
    elif mode == "affected":
        run_affected(runner, given.started)
    elif mode == "all":
        runner.run_all(name for name in GROUPS if name not in APART)
    else:
        for name in given.names:
            runner.run(name, whole_table=name in TABLES)
    code = runner.report()
    if mode == "all" and code == 0:
        record(runner.results)
    return code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("interrupted")
