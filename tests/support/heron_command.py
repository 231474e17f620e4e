"""Run the ``heron`` command in a temporary ``HERONRY_HOME`` and check that nothing is left behind.

``HeronCommand.close`` kills running topologies. It asserts that no topology submitted here has left a process, a
runtime folder, a node in the state store or a folder. Topologies get unique names, so process titles of other homes on
this machine do not match.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
from typer.testing import CliRunner

from heron_cli.application import make_app
from heron_runtime import cgroups
from heron_runtime.state import open_store, paths
from tests.support.waiting import wait_until, wait_until_equal

ROOT = Path(__file__).resolve().parents[2]
TEXT = ROOT / "examples" / "data" / "northanger_abbey.txt"
COMMAND_SECONDS = 150.0
QUICK = {"heron.metrics.interval.secs": "0.5", "heron.stop.grace.secs": "2"}
BRANCHES = (
    paths.TOPOLOGIES, paths.PACKING_PLANS, paths.PHYSICAL_PLANS, paths.EXECUTION_STATES, paths.MASTERS,
    paths.SCHEDULERS, paths.CONTAINERS,
)  # fmt: skip
PLAIN_COMMAND = [sys.executable, "-m", "heron_cli"]
READING_COMMANDS = ("status", "list", "metrics")
Done = subprocess.CompletedProcess[str]


def unique(name: str) -> str:
    """Return a unique topology name."""
    return f"{name}-{secrets.token_hex(3)}"


def json_lines(file: Path) -> list[Any]:
    """Return the complete lines of a file that others append to; an empty list if it does not exist."""
    if not file.exists():
        return []
    whole, _, _ = file.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


class HeronCommand:
    """``heron`` command with a temporary ``HERONRY_HOME`` below ``folder``."""

    def __init__(self, folder: Path, home: Path | None = None) -> None:
        self.folder = folder
        self.home = home or folder / "home"
        self.environment = {**os.environ, "HERONRY_HOME": str(self.home), "NO_COLOR": "1"}
        self.command = PLAIN_COMMAND
        self.reads_in_process = True  # False if the command has other packages than the tests
        self.cwd = ROOT
        self.submitted: dict[str, list[dict[str, Any]]] = {}  # launch.json of each submission, by name

    # The command.

    def start(self, *arguments: str, **more: Any) -> subprocess.Popen[str]:
        """Start the command."""
        return subprocess.Popen(
            [*self.command, *arguments],
            cwd=self.cwd, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more,
        )  # fmt: skip

    def run(self, *arguments: str, code: int = 0, **more: Any) -> Done:
        """Run the command, which must end with ``code`` and without a Python traceback of its own."""
        return self.finish(self.start(*arguments, **more), code)

    @staticmethod
    def finish(process: subprocess.Popen[str], code: int | None = 0) -> Done:
        """Wait for a command, which must end with ``code`` (None: any)."""
        out, err = process.communicate(timeout=COMMAND_SECONDS)
        arguments = list(process.args)[3:]  # type: ignore[arg-type]
        assert code in (None, process.returncode), f"heron {arguments}: {process.returncode}, not {code}\n{out}\n{err}"
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def json(self, *arguments: str) -> Any:
        """Return the JSON output of the command. Commands that tests poll run in this process."""
        if arguments[0] in READING_COMMANDS and self.reads_in_process and self.command == PLAIN_COMMAND:
            return query_json(*arguments, environment=self.environment)
        return json.loads(self.run(*arguments, "-o", "json").stdout)

    def start_submit(self, name: str, file: str | Path, *arguments: str, **properties: Any) -> subprocess.Popen[str]:
        """Start ``heron submit``. ``arguments`` are inserted unchanged before and after ``--``."""
        given = {**QUICK, **{key.replace("__", "."): str(value) for key, value in properties.items()}}
        options = [part for key, value in given.items() for part in ("--config-property", f"{key}={value}")]
        self.submitted.setdefault(name, [])
        return self.start("submit", "local", "--name", name, *options, str(file), *arguments)

    def submit(self, name: str, file: str | Path, *arguments: str, **properties: Any) -> None:
        """Submit and wait until every task runs."""
        self.finish(self.start_submit(name, file, *arguments, **properties))
        self.remember(name)

    def remember(self, name: str) -> dict[str, Any]:
        """Record the folders of a running topology, for the check of leftovers."""
        (place,) = (self.home / "topologies" / "local").glob(f"*/default/{name}")
        launch = dict(json.loads((place / "launch.json").read_text()))
        self.submitted.setdefault(name, []).append(launch)
        return launch

    def kill(self, name: str) -> None:
        """Kill a topology and check that nothing is left."""
        self.run("kill", "local", name)
        self.nothing_is_left(name)

    # State.

    def status(self, name: str) -> dict[str, Any]:
        """Return ``heron status -o json``."""
        return dict(self.json("status", "local", name))

    def reaches(self, name: str, state: str) -> None:
        """Wait for a state of the topology."""
        wait_until_equal(lambda: self.status(name)["state"], state, f"the state of {name}")

    def process(self, name: str, process: str) -> dict[str, Any]:
        """Return one process of the status."""
        (found,) = (p for p in self.status(name)["processes"] if p["name"] == process)
        return dict(found)

    def pids(self, name: str) -> dict[str, int]:
        """Return pids by process name."""
        return {p["name"]: p["pid"] for p in self.status(name)["processes"]}

    def totals(self, name: str) -> dict[str, dict[str, float]]:
        """Return totals by component and metric."""
        components = self.json("metrics", "local", name)["components"]
        return {c: {metric: v["total"] for metric, v in metrics.items()} for c, metrics in components.items()}

    # Leftovers.

    def nothing_is_left(self, name: str) -> None:
        """Check that no process, socket, node, folder or control group of this topology is left."""
        wait_until(lambda: not titles(name), f"every process of {name} ends", 20)
        for launch in self.submitted.get(name, ()):
            assert not Path(launch["runtime_dir"]).exists(), launch["runtime_dir"]
            assert not Path(launch["home"]).exists(), launch["home"]
            if (above := cgroups.place()) is not None:
                assert list(above.glob(f"*{Path(launch['runtime_dir']).name}*")) == []
        assert self.nodes(name) == []
        assert list((self.home / "topologies").glob(f"local/*/default/*{name}*")) == []

    def nodes(self, name: str) -> list[str]:
        """Return the nodes of a topology in the state store."""
        if not (self.home / "state").exists():
            return []
        store = open_store((self.home / "state").as_uri().replace("file:", "files:", 1))
        store.open()
        try:
            found = [f"{branch}/{child}" for branch in BRANCHES for child in store.children(branch)]
        finally:
            store.close()
        return [path for path in found if name in path]

    def untouched(self) -> None:
        """Check that no topology was submitted and no working file is left."""
        assert list((self.home / "topologies").glob("local/*/*/*")) == []
        assert list(self.home.glob(".submit-*")) == []
        assert list((self.home / "cache").glob(".install-*")) == []

    def close(self) -> None:
        """Kill running topologies; check that nothing is left."""
        for name in self.submitted:
            if self.nodes(name):
                with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                    self.run("kill", "local", name)
        try:
            for name in self.submitted:
                self.nothing_is_left(name)
            assert list(self.home.glob(".submit-*")) == []
        finally:
            for name in self.submitted:
                for process in titles(name):
                    process.kill()


def titles(name: str) -> list[psutil.Process]:
    """Return the living processes of a topology, by title."""
    found = []
    for process in psutil.process_iter():
        try:
            title = " ".join(process.cmdline())
            if f"heron:{name}:" in title and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


@contextlib.contextmanager
def heron_command(folder: Path, home: Path | None = None) -> Iterator[HeronCommand]:
    """Yield a ``HeronCommand`` and close it at the end."""
    heron = HeronCommand(folder, home)
    try:
        yield heron
    finally:
        heron.close()


def query_json(*arguments: str, environment: Mapping[str, str]) -> Any:
    """Return what ``heron ARGUMENTS -o json`` prints, without a new interpreter.

    For commands that tests poll, such as ``status``: a process costs half a second of CPU.

    Raises:
        AssertionError: The command has failed.
    """
    done = CliRunner().invoke(make_app(arguments[0]), [*arguments, "-o", "json"], env=dict(environment))
    assert done.exit_code == 0, f"heron {' '.join(arguments)}: exit {done.exit_code}\n{done.output}"
    return json.loads(done.stdout)
