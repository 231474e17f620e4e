"""Real topology masters of a submitted topology, with stub stream managers."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from heron_control.schedulers.topology_folder import write_secrets
from heron_runtime.launch import Launch
from heron_runtime.model.checkpoints import NO_WISH
from heron_runtime.model.plan import PhysicalPlan, PlanVersion, StreamManagerInfo
from heron_runtime.model.records import ExecutionState, MasterLocation
from heron_runtime.model.topology import TopologyState
from heron_runtime.net.identity import identity_of
from heron_runtime.net.rpc import MASTER_SERVICE, make_channel
from heron_runtime.state import open_store, paths
from heron_runtime.state.store import Create, StateStore
from heron_runtime.wire import message_codecs
from heron_runtime.wire.control import Leave, PlanUpdate
from heron_runtime.wire.master import Heartbeat, HeartbeatReply, ParticipantReport, Register
from tests.support.definitions import component, packing_of, topology_spec
from tests.support.waiting import wait_until_async

BOUND = 30.0
NAME = "words"


class MasterProcesses:
    """Submitted topology, and the processes started for it."""

    def __init__(self, folder: Path, store: StateStore, launch: Launch) -> None:
        self.store, self.launch, self.folder = store, launch, folder
        self.identity = identity_of(launch)
        self.processes: list[asyncio.subprocess.Process] = []
        self.log = folder / "log"

    async def start(self, room: str, *arguments: str) -> asyncio.subprocess.Process:
        with open(self.log, "ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", room, "--launch", str(self.folder / "launch.json"), *arguments,
                stderr=log, cwd=Path(__file__).parents[2],
            )  # fmt: skip
        self.processes.append(process)
        return process

    def location(self) -> MasterLocation | None:
        node = self.store.get(paths.master(NAME))
        return message_codecs.MASTER_LOCATION.decode(node.data) if node else None

    async def master(self, epoch: int = 1) -> MasterLocation:
        """Return the location of the master of this epoch, or a later one."""

        def found() -> MasterLocation | None:
            location = self.location()
            return location if location is not None and location.epoch >= epoch else None

        return await wait_until_async(found)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        return self.identity.metadata()

    async def call(self, location: MasterLocation, method: str, request: Any) -> Any:
        channel = make_channel(f"{location.host}:{location.port}", self.identity)
        try:
            return await MASTER_SERVICE.call(channel, method)(request, timeout=BOUND, metadata=self.metadata())
        finally:
            await channel.close()


class PlayedStreamManager:
    """Stub of a stream manager that registers, receives plans and sends heartbeats."""

    def __init__(self, world: MasterProcesses, location: MasterLocation, container: int, incarnation: int) -> None:
        self.info = StreamManagerInfo(container, "127.0.0.1", 10_000 + container * 100 + incarnation, incarnation)
        self.plans: list[PhysicalPlan] = []
        self.epochs: list[int] = []
        self.left: list[str] = []
        self.wish = NO_WISH
        self.reports: tuple[ParticipantReport, ...] = ()
        self.ended = asyncio.Event()
        self._channel = make_channel(f"{location.host}:{location.port}", world.identity)
        self._call = MASTER_SERVICE.call(self._channel, "StreamManager")(metadata=world.metadata())
        self._register = Register(1, world.launch.topology_id, self.info, (), PlanVersion())
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._beat())]

    async def _beat(self) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self._call.write(self._register)
            while True:
                await self._call.write(Heartbeat(reports=self.reports))
                await asyncio.sleep(0.1)

    async def _read(self) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            while (message := await self._call.read()) is not grpc.aio.EOF:
                if isinstance(message, PlanUpdate):
                    self.plans.append(message.plan)
                elif isinstance(message, HeartbeatReply):
                    self.epochs.append(message.epoch)
                    self.wish = message.wish
                elif isinstance(message, Leave):
                    self.left.append(message.reason)
        self.ended.set()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._call.cancel()
        await self._channel.close()


@contextlib.asynccontextmanager
async def submitted(folder: Path, config: Mapping[str, Any] | None = None) -> AsyncIterator[MasterProcesses]:
    """Yield a topology of two containers with one spout task each; end its processes afterwards."""
    runtime = Path(f"/tmp/hm{secrets.token_hex(4)}")
    runtime.mkdir(mode=0o700)
    settings = {"heron.master.lease.secs": 1.0, "heron.state.session.timeout.secs": 2.0,
                "heron.metrics.interval.secs": 0.2, "heron.heartbeat.interval.ms": 100}  # fmt: skip
    (folder / "state").mkdir()
    launch = Launch("local", "me", "default", NAME, "words-1", f"files://{folder}/state", str(folder), str(runtime),
                    settings=settings)  # fmt: skip
    write_secrets(folder)
    launch.save(folder / "launch.json")
    store = open_store(launch.store_url, **settings)
    await asyncio.to_thread(store.open)
    packing = packing_of(NAME, {1: {1: "word"}, 2: {2: "word"}})
    definition = topology_spec(NAME, component("word", parallelism=2, fields=("w",)), config=config)
    execution = ExecutionState(NAME, "words-1", "local", "me", "default", TopologyState.RUNNING)
    store.commit([
        Create(paths.topology(NAME), message_codecs.TOPOLOGY.encode(definition)),
        Create(paths.packing_plan(NAME), message_codecs.PACKING_PLAN.encode(packing)),
        Create(paths.execution_state(NAME), message_codecs.EXECUTION_STATE.encode(execution)),
    ])  # fmt: skip
    made = MasterProcesses(folder, store, launch)
    try:
        yield made
    finally:
        for process in made.processes:
            if process.returncode is None:
                process.kill()
            await process.wait()
        await asyncio.to_thread(store.close)
        for path in runtime.iterdir():
            path.unlink()
        runtime.rmdir()
        sys.stderr.write(made.log.read_text() if made.log.exists() else "")
