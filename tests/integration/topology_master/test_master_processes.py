"""Real topology masters and metrics managers as processes, real gRPC, the files store; stream managers are played."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from heron_control.schedulers.topology_folder import write_secrets
from heron_runtime.launch import Launch
from heron_runtime.liveness import Phase, Slots
from heron_runtime.model.plan import (
    ContainerPlan,
    InstancePlan,
    PackingPlan,
    PhysicalPlan,
    PlanVersion,
    StreamManagerInfo,
)
from heron_runtime.model.stored import ExecutionState, MasterLocation
from heron_runtime.model.topology import ComponentKind, ComponentSpec, StreamSchema, TopologyDefinition, TopologyState
from heron_runtime.net.identity import draw_key, identity_of, parse_identity
from heron_runtime.net.rpc import make_channel
from heron_runtime.net.services import MASTER_SERVICE
from heron_runtime.state import open_store, paths
from heron_runtime.state.store import Create, Delete, StateStore
from heron_runtime.telemetry.reporter import Reporter
from heron_runtime.telemetry.reporting import Telemetry
from heron_runtime.wire import codec
from heron_runtime.wire.control import Leave, PlanUpdate
from heron_runtime.wire.master import (
    Heartbeat,
    HeartbeatReply,
    MetricsRequest,
    Register,
    SetState,
    StatusRequest,
)

pytestmark = pytest.mark.integration
BOUND = 30.0
NAME = "words"


async def until(condition: Callable[[], Any | Awaitable[Any]], seconds: float = BOUND) -> Any:
    """Wait for a condition to be true; returns its value."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.02)


class World:
    """A submitted topology, and the processes started for it."""

    def __init__(self, folder: Path, store: StateStore, launch: Launch) -> None:
        self.store, self.launch, self.folder = store, launch, folder
        self.identity = identity_of(launch)
        self.processes: list[asyncio.subprocess.Process] = []
        self.log = folder / "log"

    async def start(self, room: str, *arguments: str) -> asyncio.subprocess.Process:
        with open(self.log, "ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", room, "--launch", str(self.folder / "launch.json"), *arguments,
                stderr=log, cwd=Path(__file__).parents[3],
            )  # fmt: skip
        self.processes.append(process)
        return process

    def location(self) -> MasterLocation | None:
        node = self.store.get(paths.master(NAME))
        return codec.MASTER_LOCATION.decode(node.data) if node else None

    async def master(self, epoch: int = 1) -> MasterLocation:
        """Where the master of this epoch, or a later one, is."""

        def found() -> MasterLocation | None:
            location = self.location()
            return location if location is not None and location.epoch >= epoch else None

        return await until(found)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        return self.identity.metadata()

    async def call(self, location: MasterLocation, method: str, request: Any) -> Any:
        channel = make_channel(f"{location.host}:{location.port}", self.identity)
        try:
            return await MASTER_SERVICE.call(channel, method)(request, timeout=BOUND, metadata=self.metadata())
        finally:
            await channel.close()


class PlayedStreamManager:
    """A stream manager as the master sees it: registers, takes plans, beats."""

    def __init__(self, world: World, location: MasterLocation, container: int, incarnation: int) -> None:
        self.info = StreamManagerInfo(container, "127.0.0.1", 10_000 + container * 100 + incarnation, incarnation)
        self.plans: list[PhysicalPlan] = []
        self.epochs: list[int] = []
        self.left: list[str] = []
        self.ended = asyncio.Event()
        self._channel = make_channel(f"{location.host}:{location.port}", world.identity)
        self._call = MASTER_SERVICE.call(self._channel, "StreamManager")(metadata=world.metadata())
        self._register = Register(1, world.launch.topology_id, self.info, (), PlanVersion())
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._beat())]

    async def _beat(self) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self._call.write(self._register)
            while True:
                await self._call.write(Heartbeat())
                await asyncio.sleep(0.1)

    async def _read(self) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            while (message := await self._call.read()) is not grpc.aio.EOF:
                if isinstance(message, PlanUpdate):
                    self.plans.append(message.plan)
                elif isinstance(message, HeartbeatReply):
                    self.epochs.append(message.epoch)
                elif isinstance(message, Leave):
                    self.left.append(message.reason)
        self.ended.set()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._call.cancel()
        await self._channel.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    runtime = Path(f"/tmp/hm{secrets.token_hex(4)}")
    runtime.mkdir(mode=0o700)
    settings = {"heron.master.lease.secs": 1.0, "heron.state.session.timeout.secs": 2.0,
                "heron.metrics.interval.secs": 0.2, "heron.heartbeat.interval.ms": 100}  # fmt: skip
    (tmp_path / "state").mkdir()
    launch = Launch("local", "me", "default", NAME, "words-1", f"files://{tmp_path}/state", str(tmp_path), str(runtime),
                    settings=settings)  # fmt: skip
    write_secrets(tmp_path)
    launch.save(tmp_path / "launch.json")
    store = open_store(launch.store_url, **settings)
    await asyncio.to_thread(store.open)
    spout = ComponentSpec("word", ComponentKind.SPOUT, "m:W", 2, (StreamSchema(fields=("w",)),))
    packing = PackingPlan(NAME, tuple(ContainerPlan(n, (InstancePlan(n, "word", n - 1),)) for n in (1, 2)))
    execution = ExecutionState(NAME, "words-1", "local", "me", "default", TopologyState.RUNNING)
    store.commit([
        Create(paths.topology(NAME), codec.TOPOLOGY.encode(TopologyDefinition(NAME, "words-1", (spout,)))),
        Create(paths.packing_plan(NAME), codec.PACKING_PLAN.encode(packing)),
        Create(paths.execution_state(NAME), codec.EXECUTION_STATE.encode(execution)),
    ])  # fmt: skip
    made = World(tmp_path, store, launch)
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


async def test_register_plan_death_deactivation_and_a_standby_that_takes_over(world: World) -> None:
    first = await world.start("topology_master")
    leader = await world.master()
    await world.start("topology_master", "--replica", "1")

    one = PlayedStreamManager(world, leader, 1, 1)
    await until(lambda: one.epochs)
    assert one.plans == [], "no plan before everybody is there"
    two = PlayedStreamManager(world, leader, 2, 1)
    plan = await until(lambda: one.plans and two.plans and one.plans[-1])
    assert plan == two.plans[-1]
    assert plan.stream_managers == (one.info, two.info)

    await two.stop()
    async with asyncio.timeout(BOUND):
        while True:
            status = await world.call(leader, "Status", StatusRequest())
            if [s.registered for s in status.stream_managers] == [True, False]:
                break
            await asyncio.sleep(0.05)
    two = PlayedStreamManager(world, leader, 2, 2)
    await until(lambda: one.plans[-1].stream_manager(2) == two.info)
    assert one.plans[-1].routing_version == plan.routing_version

    stale = PlayedStreamManager(world, leader, 2, 1)
    await until(lambda: stale.left)

    answer = await world.call(leader, "SetState", SetState(TopologyState.PAUSED))
    assert answer.state is TopologyState.PAUSED
    await until(lambda: one.plans[-1].state is TopologyState.PAUSED and two.plans[-1].state is TopologyState.PAUSED)
    last = one.plans[-1]

    first.send_signal(signal.SIGKILL)
    await until(one.ended.is_set)
    successor = await world.master(leader.epoch + 1)
    again = [PlayedStreamManager(world, successor, n, old.info.incarnation) for n, old in ((1, one), (2, two))]
    await until(lambda: all(a.plans and a.epochs for a in again))
    assert [a.plans[-1] for a in again] == [last, last], "the last plan goes on, no new one is made"
    assert again[0].epochs[-1] == successor.epoch == leader.epoch + 1
    status = await world.call(successor, "Status", StatusRequest())
    assert (status.leading, status.state, status.plan) == (True, TopologyState.PAUSED, last.version)
    await world.call(successor, "SetState", SetState(TopologyState.RUNNING))
    await until(lambda: again[0].plans[-1].state is TopologyState.RUNNING)
    assert again[0].plans[-1].version > last.version
    for each in (one, two, stale, *again):
        await each.stop()


async def test_sigterm_hands_over_at_once_and_a_kill_of_the_topology_ends_all(world: World) -> None:
    first = await world.start("topology_master")
    leader = await world.master()
    standby = await world.start("topology_master", "--replica", "1")
    slots = Slots(world.launch.heartbeat_file(0), 1)
    third = await world.start("topology_master", "--replica", "2", "--container", "0", "--slot", "0")
    await until(lambda: slots.read(0)[1] is Phase.RUNNING)
    first.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(first.wait(), BOUND) == 0
    await world.master(leader.epoch + 1)
    world.store.commit([Delete(paths.execution_state(NAME)), Delete(paths.epoch(NAME))])
    assert await asyncio.wait_for(standby.wait(), BOUND) == 0
    assert await asyncio.wait_for(third.wait(), BOUND) == 0
    assert world.store.get(paths.epoch(NAME)) is None
    slots.close()


async def test_another_key_is_refused(world: World) -> None:
    await world.start("topology_master")
    leader = await world.master()
    world.identity = parse_identity(draw_key(), "words-1")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await world.call(leader, "Status", StatusRequest())
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_the_lifeline_ends_the_process(world: World) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "topology_master", "--launch", str(world.folder / "launch.json"),
        "--lifeline", str(reading), pass_fds=(reading,), cwd=Path(__file__).parents[3],
    )  # fmt: skip
    world.processes.append(process)
    os.close(reading)
    await world.master()
    os.close(writing)
    assert await asyncio.wait_for(process.wait(), BOUND) == 120


async def test_all_time_totals_survive_metrics_manager_master_and_instance(world: World) -> None:
    """An instance counts, restarts and counts on; the metrics manager is killed; the master changes."""
    master = await world.start("topology_master")
    leader = await world.master()
    manager = await world.start("metrics_manager", "--container", "1")
    # The instance's two lives, as its own process would report them.
    first = Telemetry("word", "container_1_word_1", 1, 1, 11)
    first.count("__emit-count/default", 100)
    reporter = Reporter(world.launch, 1, lambda: first.report(time.time()))
    reporter.start()

    async def emitted(at: MasterLocation, seconds: float = -1) -> float | None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            reply = await world.call(at, "Metrics", MetricsRequest("word", seconds, ("__emit-count",)))
            return reply.values[0].total if reply.values else None
        return None

    async def is_at(at: MasterLocation, expected: float) -> bool:
        return await emitted(at) == expected

    await until(lambda: is_at(leader, 100))
    assert await emitted(leader, 60) == 100
    first.count("__emit-count/default", 1)
    await reporter.stop()
    second = Telemetry("word", "container_1_word_1", 1, 1, 12)
    second.count("__emit-count/default", 50)
    reporter = Reporter(world.launch, 1, lambda: second.report(time.time()))
    reporter.start()
    await until(lambda: is_at(leader, 151))

    manager.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(manager.wait(), BOUND) == 0
    assert (world.folder / "metrics" / "metrics_manager-1.state").exists()
    await world.start("metrics_manager", "--container", "1")
    second.count("__emit-count/default", 9)
    await until(lambda: is_at(leader, 160))

    master.send_signal(signal.SIGKILL)
    await world.start("topology_master")
    successor = await world.master(leader.epoch + 1)
    await until(lambda: is_at(successor, 160))
    await reporter.stop()
    lines = (world.folder / "metrics" / "metrics-1.jsonl").read_text().splitlines()
    assert any('"container_1_word_1"' in line for line in lines)
    assert any('"__metricsmgr__"' in line for line in lines)
    assert int((world.folder / "metrics" / "prometheus-1.port").read_text()) > 0


async def test_a_leader_that_was_stopped_wakes_up_deposed(world: World) -> None:
    """SIGSTOP past the session: a standby leads with a higher epoch; the old one, awake again, decides nothing."""
    first = await world.start("topology_master")
    leader = await world.master()
    await world.start("topology_master", "--replica", "1")
    first.send_signal(signal.SIGSTOP)
    try:
        successor = await world.master(leader.epoch + 1)
    finally:
        first.send_signal(signal.SIGCONT)
    assert (successor.pid, leader.pid) != (first.pid, successor.pid)

    async def stands_by() -> bool:
        return not (await world.call(leader, "Status", StatusRequest())).leading

    await until(stands_by)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await world.call(leader, "SetState", SetState(TopologyState.PAUSED))
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "state store names" in str(refused.value.details())
    answer = await world.call(successor, "SetState", SetState(TopologyState.PAUSED))
    assert answer.epoch == successor.epoch
    location = world.location()
    assert location is not None
    assert location.epoch == successor.epoch, "nobody else took over meanwhile"
