"""One submitted topology in a temporary home, controlled and observed through the ``heron`` command.

The tests also read what a user can read: the files of the sinks, the logs, the processes of the machine and the nodes
of the state store. ``close`` kills the topology and asserts that nothing of it is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from typer.testing import CliRunner

from heron_cli.application import make_app
from heron_runtime.launch import Launch
from heron_runtime.model.records import MasterEpoch, MasterLocation
from heron_runtime.state import local_store, open_address, paths
from heron_runtime.wire import message_codecs
from tests.support.fault_ledger import all_acked, written_bytes
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
TEXT = ROOT / "examples" / "data" / "northanger_abbey.txt"
TOPOLOGY = ROOT / "tests" / "faults" / "fault_topology.py"
COMMAND_SECONDS = 240.0
POLL_SECONDS = 0.05
SAMPLE_SECONDS = 0.1
LOG_LINES_SHOWN = 12
NICE = 2  # observers must not compete for the CPU with the topology, which uses all of it
MiB = 1024 * 1024
Process = dict[str, Any]  # one of ``heron status -o json``

TASKS = {
    1: {"lines": 1, "words": 2, "sink": 2},
    2: {"lines": 1, "words": 1, "sink": 2},
    3: {"lines": 2, "words": 3, "sink": 3},
}
SETTINGS: dict[str, Any] = {
    "heron.state.session.timeout.secs": 2,
    "heron.restart.backoff.min.ms": 100,
    "heron.metrics.interval.secs": 1,
    "heron.stop.grace.secs": 3,
}


class Flow:
    """Bytes written by the sinks over time, observed by a thread that reads their file sizes."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._samples: list[tuple[float, int]] = [(time.monotonic(), 0)]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self._samples.append((time.monotonic(), written_bytes(self._output)))

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()

    @property
    def bytes(self) -> int:
        """Return the bytes written so far."""
        return written_bytes(self._output)

    def seconds_of_flow(self) -> float:
        """Return the seconds since the first row was written."""
        began = next((t for t, size in list(self._samples) if size), None)
        return 0.0 if began is None else time.monotonic() - began

    def rate(self, until: float, seconds: float) -> float:
        """Return the bytes per second in the ``seconds`` before ``until``."""
        window = [(t, size) for t, size in list(self._samples) if until - seconds - SAMPLE_SECONDS <= t <= until]
        if len(window) < 2:
            return 0.0
        (t0, s0), (t1, s1) = window[0], window[-1]
        return (s1 - s0) / (t1 - t0)

    def seconds_to(self, share: float, of_rate: float, after: float, until: float) -> float | None:
        """Return the seconds from ``after`` to the first full second at this share of a rate; None if there is none."""
        for t, _ in list(self._samples):
            if after + 1 <= t <= until and self.rate(t, 1) >= share * of_rate:
                return t - 1 - after
        return None


class FaultCluster:
    """Topology under test. ``config`` are topology.* keys, ``settings`` are heron.* keys."""

    cluster = "local"

    def __init__(
        self,
        containers: int,
        config: dict[str, Any] | None = None,
        settings: dict[str, Any] | None = None,
        padding: int = 0,
    ) -> None:
        self.name = f"Faults-{secrets.token_hex(4)}"
        self.folder = Path(tempfile.mkdtemp(prefix="heronry-faults-"))
        self.home = self.folder / "home"
        self.output = self.folder / "out"
        self.output.mkdir()
        self.containers = containers
        self.tasks = TASKS[containers]
        self.environment = {**os.environ, "HERONRY_HOME": str(self.home)}
        self._given = {
            "output": str(self.output),
            "path": str(TEXT),
            "padding": padding,
            "tasks": self.tasks,
            "config": {"topology.stmgrs": containers, **(config or {})},
        }
        self._settings = {**SETTINGS, **(settings or {})}
        self._runtime: Path | None = None
        self._stopped: list[int] = []
        self._began = time.monotonic()
        self.flow = Flow(self.output)

    def lap(self, what: str) -> None:
        """Print a message with the time."""
        print(f"{time.monotonic() - self._began:6.1f} s  {what}")

    # The command.

    def heron(self, *arguments: str, code: int = 0, nice: int = 0) -> str:
        """Run a command, which must exit with ``code``; return its standard output."""
        done = subprocess.run(
            ["nice", "-n", str(nice), sys.executable, "-m", "heron_cli", *arguments],
            cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS,
        )  # fmt: skip
        said = f"heron {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == code, said
        return done.stdout

    def submit(self, deactivated: bool = False) -> None:
        """Submit; every task runs when this returns, with paused spouts if ``deactivated``."""
        self.heron(*self.submit_arguments(*["--deploy-deactivated"] * deactivated), nice=NICE)
        self._runtime = Path(self.launch.runtime_dir)

    def submit_arguments(self, *more: str) -> list[str]:
        """Return the arguments of a submit, with ``more`` options."""
        settings = [f"--config-property={key}={value}" for key, value in self._settings.items()]
        return ["submit", self.cluster, str(TOPOLOGY), "Faults", "--name", self.name, "--wait-timeout", "120",
                *settings, *more, "--", json.dumps(self._given)]  # fmt: skip

    def say(self, *arguments: str) -> str:
        """Return the output of a read-only command, run in this process since tests poll it."""
        done = CliRunner().invoke(make_app(), arguments, env=self.environment)
        assert done.exit_code == 0, done.output
        return done.stdout

    def status(self) -> dict[str, Any]:
        """Return ``heron status -o json``."""
        found: dict[str, Any] = json.loads(self.say("status", self.cluster, self.name, "-o", "json"))
        return found

    def processes(self) -> dict[str, Process]:
        """Return the processes by name."""
        return {process["name"]: process for process in self.status()["processes"]}

    def running(self, replaced: dict[str, int] | None = None) -> dict[str, Process] | None:
        """Return all processes if all run and none of ``replaced`` (name to pid) is the same; otherwise None."""
        status = self.status()
        processes = {process["name"]: process for process in status["processes"]}
        same = [n for n, pid in (replaced or {}).items() if n in processes and processes[n]["pid"] == pid]
        return processes if status["state"] == "running" and not same else None

    # Files and processes.

    @property
    def place(self) -> Path:
        """Return the topology's folder."""
        (found,) = self.home.glob(f"topologies/{self.cluster}/*/default/{self.name}")
        return found

    @property
    def launch(self) -> Launch:
        """Return the launch file of the processes."""
        return Launch.load(self.place / "launch.json")

    def log(self, name: str) -> str:
        """Return the log of a process."""
        path = self.place / "log-files" / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def replaced(self, victims: dict[str, int]) -> bool:
        """Return True when each of these names has another pid. Cheaper than ``running``."""
        found = [process for name in victims for process in self.titled(name, whole=True)]
        return len(found) == len(victims) and not {process.pid for process in found} & set(victims.values())

    def titled(self, prefix: str = "", whole: bool = False) -> list[psutil.Process]:
        """Return living processes of this topology by title, or by command line before they have a title."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                command = process.cmdline()
                title, wanted = " ".join(command).strip(), f"heron:{self.name}:{prefix}"
                ours = title == wanted if whole else title.startswith(wanted)
                untitled = not prefix and any(str(self.home) in word for word in command)
                if (ours or untitled) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def kill_9(self, pid: int) -> None:
        """Kill a process, as the OOM killer would."""
        os.kill(pid, signal.SIGKILL)

    def stop(self, pid: int) -> None:
        """Stop a process (SIGSTOP); ``cont`` resumes it, at the latest when the cluster is closed."""
        os.kill(pid, signal.SIGSTOP)
        self._stopped.append(pid)

    def cont(self, pid: int) -> None:
        """Resume a process (SIGCONT)."""
        self._stopped.remove(pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def master(self) -> tuple[MasterLocation | None, MasterEpoch | None]:
        """Return the leader and the highest epoch in the state store."""
        store = open_address(local_store(self.home, self.cluster))
        store.open()
        try:
            node, epoch = store.get(paths.master(self.name)), store.get(paths.epoch(self.name))
        finally:
            store.close()
        return (
            message_codecs.MASTER_LOCATION.decode(node.data) if node else None,
            message_codecs.MASTER_EPOCH.decode(epoch.data) if epoch else None,
        )

    def rss(self) -> dict[str, int]:
        """Return the resident bytes of stream managers and instances, by name."""
        found = {}
        for process in self.titled("stream_manager-") + self.titled("container_"):
            with contextlib.suppress(psutil.Error):
                found[process.cmdline()[0].rsplit(":", 1)[-1]] = process.memory_info().rss
        return found

    # The flow.

    def wait_for_flow(self, seconds: float) -> None:
        """Wait until data has flowed for this long."""
        wait_until(lambda: self.flow.seconds_of_flow() >= seconds, f"{seconds:.1f} s of data in flow")

    def wait_for_more(self, count: int = 1) -> None:
        """Wait until the sinks have written this many more bytes."""
        before = self.flow.bytes
        wait_until(lambda: self.flow.bytes >= before + count, f"the sinks write {count} bytes more")

    def finish(self) -> None:
        """End the source; wait until every line is acked."""
        (self.output / "end").touch()
        wait_until(lambda: all_acked(self.output, self.tasks["lines"]), "every line is acked")

    # The end.

    def kill(self) -> None:
        """Run ``heron kill`` and check that no process, socket, state or folder is left."""
        self.heron("kill", self.cluster, self.name)
        assert self.titled() == []
        assert self._runtime is not None
        assert not self._runtime.exists(), f"{sorted(self._runtime.iterdir())} is left"
        assert list(self.home.glob("topologies/**/*")) == []
        assert self.nodes() == []
        assert json.loads(self.heron("list", self.cluster, "-o", "json")) == []
        self.heron("status", self.cluster, self.name, code=3)

    def nodes(self) -> list[str]:
        """Return the nodes of this topology in the state store."""
        store = open_address(local_store(self.home, self.cluster))
        store.open()
        try:
            folders = [value for key, value in vars(paths).items() if key.isupper() and isinstance(value, str)]
            return [f"{folder}/{child}" for folder in folders for child in store.children(folder)]
        finally:
            store.close()

    def explain(self) -> str:
        """Return the state of the cluster, for a failed test."""
        text = [f"containers: {self.containers}; written: {self.flow.bytes}"]
        with contextlib.suppress(AssertionError, subprocess.SubprocessError):
            text.append(self.heron("status", self.cluster, self.name, "-v"))
        text += [f"{p.name}: {p.read_text()}" for p in sorted(self.output.glob("progress-*.json"))]
        for path in sorted(self.home.glob("topologies/**/log-files/*.log")):
            lines = path.read_text(errors="replace").splitlines()
            text += [f"--- {path.name}", *lines[-LOG_LINES_SHOWN:]]
        return "\n".join(text)

    def clean_up(self) -> None:
        """End all remaining processes after a failure."""
        for pid in list(self._stopped):
            self.cont(pid)
        if self.titled():
            with contextlib.suppress(AssertionError, subprocess.SubprocessError):
                self.heron("kill", self.cluster, self.name)
        for process in self.titled():
            with contextlib.suppress(psutil.Error):
                process.kill()


@contextlib.contextmanager
def fault_cluster(containers: int, deactivated: bool = False, **arguments: Any) -> Iterator[FaultCluster]:
    """Yield a submitted topology, paused if ``deactivated``; it is killed at the end, and nothing may be left."""
    cluster = FaultCluster(containers, **arguments)
    try:
        cluster.submit(deactivated)
        yield cluster
        cluster.kill()
    except BaseException:
        print(cluster.explain())
        raise
    finally:
        cluster.clean_up()
        cluster.flow.close()
        if not os.environ.get("HERONRY_FAULTS_KEEP"):
            shutil.rmtree(cluster.folder, ignore_errors=True)
