"""A topology on a real files store, with stub programs in place of the processes that heron_container starts.

The stubs send heartbeats, hold their lifeline and obey commands in ``orders/<name>``: ``exit N``, ``silent`` (stop
heartbeats, keep running), ``spin`` (stop heartbeats, use the processor), ``talk N`` (print N lines), ``deaf`` (ignore
SIGTERM). They come first on PYTHONPATH; everything else is the product.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from heron_control.schedulers.topology_folder import write_secrets
from heron_runtime.launch import Launch
from heron_runtime.model.plan import ContainerPlan, InstancePlan, PackingPlan
from heron_runtime.model.records import ContainerLocation, ExecutionState, SchedulerLocation
from heron_runtime.model.topology import ComponentKind, ComponentSpec, TopologyDefinition, TopologyState
from heron_runtime.net.identity import identity_of
from heron_runtime.net.rpc import CONTAINER_SERVICE, SCHEDULER_SERVICE, make_channel
from heron_runtime.spawn import source_root
from heron_runtime.state import open_store, paths
from heron_runtime.state.store import Create, Delete, store_identity
from heron_runtime.wire import message_codecs
from heron_runtime.wire.container import ContainerStatus, ContainerStatusRequest, ProcessStatus
from tests.support.waiting import wait_until_async

PATIENCE_SECONDS = 30.0
COMMON = '''
import asyncio, os, random, signal, sys, time
from pathlib import Path
from heron_runtime.process import HeartbeatWriter, ProcessPhase
from heron_runtime.process import EXIT_PARENT_GONE


def live(launch, container, slot, lifeline, name):
    """Beat and obey until the parent is gone."""
    beat = HeartbeatWriter(launch.heartbeat_file(container, slot))
    orders = Path(launch.home, "orders", name)
    Path(launch.home, "drawn").mkdir(exist_ok=True)
    Path(launch.home, "drawn", f"{name}.{os.getpid()}").write_text(f"{random.random()} {os.environ.get('COLOUR', '')}")
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    os.set_blocking(lifeline, False)
    print("hello from", name, flush=True)
    silent = spin = False
    while True:
        if orders.exists():
            verb, _, rest = orders.read_text().partition(" ")
            orders.unlink()
            if verb == "exit":
                print("about to fail", file=sys.stderr, flush=True)
                os._exit(int(rest))
            silent, spin = silent or verb in ("silent", "spin"), spin or verb == "spin"
            if verb == "deaf":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if verb == "talk":
                for number in range(int(rest)):
                    print("line", number, "x" * 90)
                sys.stdout.flush()
        if not silent:
            beat.beat(ProcessPhase.RUNNING)
        try:
            if os.read(lifeline, 1) == b"":
                os._exit(EXIT_PARENT_GONE)
        except BlockingIOError:
            pass
        end = time.monotonic() + 0.02
        while spin and time.monotonic() < end:
            pass
        time.sleep(0.001 if spin else 0.02)
'''
ROOM = """
import setproctitle
from heron_runtime.process import parse_arguments
from stand_in import live


def main():
    arguments, _ = parse_arguments("{room}")
    name = f"{room}-{{arguments.container}}"
    setproctitle.setproctitle(f"heron:{{arguments.launch.topology}}:{{name}}")
    live(arguments.launch, arguments.container, arguments.slot, arguments.lifeline, name)


if __name__ == "__main__":
    main()
"""
INSTANCE = """
from stand_in import live


def run_instance(launch, container, component, task, slot, lifeline):
    live(launch, container, slot, lifeline, f"container_{container}_{component}_{task}")
"""
INSTANCE_MAIN = """
import argparse, setproctitle
from heron_runtime.process import parse_arguments
from heron_instance.shell.main import run_instance

parser = argparse.ArgumentParser()
parser.add_argument("--component")
parser.add_argument("--task", type=int)
a, o = parse_arguments("heron_instance", parser)
setproctitle.setproctitle(f"heron:{a.launch.topology}:container_{a.container}_{o.component}_{o.task}")
run_instance(a.launch, a.container, o.component, o.task, a.slot, a.lifeline)
"""
FAST = {
    "heron.restart.backoff.min.ms": 20,
    "heron.restart.backoff.max.ms": 200,
    "heron.state.session.timeout.secs": 1.0,
    "heron.stop.grace.secs": 1.0,
}


def write_stand_ins(folder: Path) -> None:
    """Write the stub programs as packages below ``folder``."""
    texts = {
        "stand_in.py": COMMON,
        "heron_instance/shell/main.py": INSTANCE,
        "heron_instance/__main__.py": INSTANCE_MAIN,
    }
    for room in ("topology_master", "stream_manager", "metrics_manager"):
        texts[f"{room}/__main__.py"] = ROOM.format(room=room)
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for package in path.relative_to(folder).parents:
            if package != Path("."):
                (folder / package / "__init__.py").touch()


class LocalContainers:
    """Submitted topology: two spout tasks and two bolt tasks in container 1 (and more on request)."""

    def __init__(self, folder: Path, tasks: int = 2, containers: int = 1, **settings: Any) -> None:
        self.folder = folder
        self.rooms = folder / "rooms"
        write_stand_ins(self.rooms)
        home = folder / "home"
        for name in ("log-files", "package", "orders"):
            (home / name).mkdir(parents=True)
        write_secrets(home)
        self.runtime = os.path.join(tempfile.mkdtemp(prefix="heronry-test-"), "0badcafe")
        os.mkdir(self.runtime, 0o700)
        self.launch = Launch(
            "local", "me", "default", "words", "words-1", f"files://{folder}/state", str(home), self.runtime,
            settings=FAST | settings,
        )  # fmt: skip
        self.launch_file = home / "launch.json"
        self.store = open_store(self.launch.store_url, session_timeout_secs=1.0)
        self.store.open()
        self.launch = replace(self.launch, store_id=store_identity(self.store))
        self.launch.save(self.launch_file)
        self.started: list[subprocess.Popen[bytes]] = []
        self.submit(tasks, containers)

    def submit(self, tasks: int, containers: int) -> None:
        spec = ComponentSpec("word", ComponentKind.SPOUT, "x:Word", tasks * containers)
        environment = {"COLOUR": "green"}
        definition = TopologyDefinition("words", "words-1", (spec,), {"topology.environment": environment})
        self.packing = PackingPlan(
            "words",
            tuple(
                ContainerPlan(c, tuple(InstancePlan((c - 1) * tasks + t + 1, "word", t) for t in range(tasks)))
                for c in range(1, containers + 1)
            ),
        )
        state = ExecutionState("words", "words-1", "local", "me", "default", TopologyState.RUNNING)
        self.store.commit([
            Create(paths.topology("words"), message_codecs.TOPOLOGY.encode(definition)),
            Create(paths.packing_plan("words"), message_codecs.PACKING_PLAN.encode(self.packing)),
            Create(paths.execution_state("words"), message_codecs.EXECUTION_STATE.encode(state)),
        ])  # fmt: skip

    def kill_topology(self) -> None:
        self.store.commit([Delete(p) for p in (
            paths.topology("words"), paths.packing_plan("words"), paths.execution_state("words"))])  # fmt: skip

    def environment(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": os.pathsep.join([str(self.rooms), source_root()])}

    def start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, "--launch", str(self.launch_file), *arguments],
            env=self.environment(), cwd=self.launch.home, start_new_session=True,
        )  # fmt: skip
        self.started.append(process)
        return process

    def start_container(self, number: int) -> subprocess.Popen[bytes]:
        return self.start("heron_container", "--container", str(number), "--own-log")

    def order(self, name: str, text: str) -> None:
        path = Path(self.launch.home, "orders", name)
        path.with_suffix(".tmp").write_text(text)
        os.replace(path.with_suffix(".tmp"), path)

    def location(self, number: int) -> ContainerLocation | None:
        node = self.store.get(paths.container("words", number))
        return None if node is None else message_codecs.CONTAINER_LOCATION.decode(node.data)

    def scheduler(self) -> SchedulerLocation | None:
        node = self.store.get(paths.scheduler("words"))
        return None if node is None else message_codecs.SCHEDULER_LOCATION.decode(node.data)

    def log(self, name: str) -> str:
        path = self.launch.log_dir / f"{name}.log"
        return path.read_text() if path.exists() else ""

    async def call(self, number: int, method: str, request: Any) -> Any:
        location = self.location(number)
        assert location is not None
        return await self._call(CONTAINER_SERVICE, f"{location.host}:{location.port}", method, request)

    async def call_scheduler(self, method: str, request: Any) -> Any:
        location = self.scheduler()
        assert location is not None
        return await self._call(SCHEDULER_SERVICE, f"{location.host}:{location.port}", method, request)

    async def _call(self, service: Any, target: str, method: str, request: Any) -> Any:
        identity = identity_of(self.launch)
        async with make_channel(target, identity) as channel:
            return await service.call(channel, method)(request, metadata=identity.metadata(), timeout=30)

    async def processes(self, number: int) -> dict[str, ProcessStatus]:
        status: ContainerStatus = await self.call(number, "Status", ContainerStatusRequest())
        return {process.name: process for process in status.processes}

    async def all_running(self, number: int, not_pids: set[int] | None = None) -> dict[str, ProcessStatus]:
        """Wait until every process of the container runs (and none of ``not_pids`` is among them)."""

        async def ready() -> dict[str, ProcessStatus] | None:
            with contextlib.suppress(Exception):
                found = await self.processes(number)
                fresh = not (not_pids or set()) & {p.pid for p in found.values()}
                if fresh and len(found) > 1 and all(p.state == "running" for p in found.values()):
                    return found
            return None

        return await wait_until_async(ready)

    def ours(self) -> list[psutil.Process]:
        """Return every living process of this topology, regardless of its parent."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and str(self.launch_file) in self._marks(process):
                    found.append(process)
        return found

    def titles(self) -> set[str]:
        """Return the titles of its living processes."""
        found = set()
        for process in self.ours():
            with contextlib.suppress(psutil.Error):
                found.update(process.cmdline()[:1])
        return found

    def _marks(self, process: psutil.Process) -> str:
        command = " ".join(process.cmdline())
        if process.cwd() == self.launch.home:
            command += f" {self.launch_file}"
        return command

    def close(self) -> None:
        for process in self.ours():
            with contextlib.suppress(psutil.Error):
                process.kill()
        for child in self.started:
            child.wait(10)
        self.store.close()
        shutil.rmtree(self.runtime, ignore_errors=True)
        os.rmdir(os.path.dirname(self.runtime))


@contextlib.contextmanager
def local_containers(folder: Path, **arguments: Any) -> Iterator[LocalContainers]:
    world = LocalContainers(folder, **arguments)
    try:
        yield world
    finally:
        world.close()


def alive(pid: int) -> bool:
    """Return True if the process exists and is not a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def kill_9(pid: int) -> None:
    """Kill a process, as the OOM killer would."""
    os.kill(pid, signal.SIGKILL)
