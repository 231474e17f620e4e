"""Topology masters and metrics managers as processes with gRPC and the files store; stream managers are stubs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from heron_runtime.model.records import MasterLocation
from heron_runtime.model.topology import TopologyState
from heron_runtime.process import HeartbeatReader, ProcessPhase
from heron_runtime.state import paths
from heron_runtime.state.store import Delete
from heron_runtime.telemetry.recorder import Telemetry
from heron_runtime.telemetry.reporter import MetricsReporter
from heron_runtime.wire.master import (
    MetricsRequest,
    SetState,
    StatusRequest,
)
from tests.support.master_processes import BOUND, NAME, MasterProcesses, PlayedStreamManager, submitted
from tests.support.waiting import wait_until_async


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[MasterProcesses]:
    async with submitted(tmp_path) as made:
        yield made


async def test_registration_plan_deaths_deactivation_and_standby_takeover(world: MasterProcesses) -> None:
    first = await world.start("topology_master")
    leader = await world.master()
    await world.start("topology_master", "--container", "100001")

    one = PlayedStreamManager(world, leader, 1, 1)
    await wait_until_async(lambda: one.epochs)
    assert one.plans == [], "no plan before everybody is there"
    two = PlayedStreamManager(world, leader, 2, 1)
    plan = await wait_until_async(lambda: one.plans and two.plans and one.plans[-1])
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
    await wait_until_async(lambda: one.plans[-1].stream_manager(2) == two.info)
    assert one.plans[-1].routing_version == plan.routing_version

    stale = PlayedStreamManager(world, leader, 2, 1)
    await wait_until_async(lambda: stale.left)

    answer = await world.call(leader, "SetState", SetState(TopologyState.PAUSED))
    assert answer.state is TopologyState.PAUSED
    await wait_until_async(
        lambda: one.plans[-1].state is TopologyState.PAUSED and two.plans[-1].state is TopologyState.PAUSED
    )
    last = one.plans[-1]

    first.send_signal(signal.SIGKILL)
    await wait_until_async(one.ended.is_set)
    successor = await world.master(leader.epoch + 1)
    again = [PlayedStreamManager(world, successor, n, old.info.incarnation) for n, old in ((1, one), (2, two))]
    await wait_until_async(lambda: all(a.plans and a.epochs for a in again))
    assert [a.plans[-1] for a in again] == [last, last], "the last plan goes on, no new one is made"
    assert again[0].epochs[-1] == successor.epoch == leader.epoch + 1
    status = await world.call(successor, "Status", StatusRequest())
    assert (status.leading, status.state, status.plan) == (True, TopologyState.PAUSED, last.version)
    await world.call(successor, "SetState", SetState(TopologyState.RUNNING))
    await wait_until_async(lambda: again[0].plans[-1].state is TopologyState.RUNNING)
    assert again[0].plans[-1].version > last.version
    for each in (one, two, stale, *again):
        await each.stop()


async def test_sigterm_hands_over_at_once_and_killing_the_topology_ends_all_masters(world: MasterProcesses) -> None:
    first = await world.start("topology_master")
    leader = await world.master()
    standby = await world.start("topology_master", "--container", "100001")
    slots = HeartbeatReader(world.launch.heartbeats(100_002))
    slots.make(0)
    third = await world.start("topology_master", "--container", "100002", "--slot", "0")
    await wait_until_async(lambda: slots.read(0)[1] is ProcessPhase.RUNNING)
    first.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(first.wait(), BOUND) == 0
    await world.master(leader.epoch + 1)
    world.store.commit([Delete(paths.execution_state(NAME)), Delete(paths.epoch(NAME))])
    assert await asyncio.wait_for(standby.wait(), BOUND) == 0
    assert await asyncio.wait_for(third.wait(), BOUND) == 0
    assert world.store.get(paths.epoch(NAME)) is None
    slots.close()


async def test_lifeline_ends_the_process(world: MasterProcesses) -> None:
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


async def test_all_time_totals_survive_metrics_manager_master_and_instance(world: MasterProcesses) -> None:
    """An instance counts, restarts and counts on; the metrics manager is killed; the leader changes."""
    master = await world.start("topology_master")
    leader = await world.master()
    manager = await world.start("metrics_manager", "--container", "1")
    # The instance's two incarnations, as its own process would report them.
    first = Telemetry("word", "container_1_word_1", 1, 1, 11)
    first.count("__emit-count/default", 100)
    reporter = MetricsReporter(world.launch, 1, lambda: first.report(time.time()))
    reporter.start()

    async def emitted(at: MasterLocation, seconds: float = -1) -> float | None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            reply = await world.call(at, "Metrics", MetricsRequest("word", seconds, ("__emit-count",)))
            return reply.values[0].total if reply.values else None
        return None

    async def is_at(at: MasterLocation, expected: float) -> bool:
        return await emitted(at) == expected

    await wait_until_async(lambda: is_at(leader, 100))
    assert await emitted(leader, 60) == 100
    first.count("__emit-count/default", 1)
    await reporter.stop()
    second = Telemetry("word", "container_1_word_1", 1, 1, 12)
    second.count("__emit-count/default", 50)
    reporter = MetricsReporter(world.launch, 1, lambda: second.report(time.time()))
    reporter.start()
    await wait_until_async(lambda: is_at(leader, 151))

    manager.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(manager.wait(), BOUND) == 0
    assert (world.folder / "metrics" / "metrics_manager-1.state").exists()
    await world.start("metrics_manager", "--container", "1")
    second.count("__emit-count/default", 9)
    await wait_until_async(lambda: is_at(leader, 160))

    master.send_signal(signal.SIGKILL)
    await world.start("topology_master")
    successor = await world.master(leader.epoch + 1)
    await wait_until_async(lambda: is_at(successor, 160))
    await reporter.stop()
    lines = (world.folder / "metrics" / "metrics-1.jsonl").read_text().splitlines()
    assert any('"container_1_word_1"' in line for line in lines)
    assert any('"__metricsmgr__"' in line for line in lines)
    assert int((world.folder / "metrics" / "prometheus-1.port").read_text()) > 0


async def test_stopped_leader_is_deposed_when_it_resumes(world: MasterProcesses) -> None:
    """A SIGSTOP outlasts the session: a standby leads with a higher epoch, and the resumed master decides nothing."""
    first = await world.start("topology_master")
    leader = await world.master()
    await world.start("topology_master", "--container", "100001")
    first.send_signal(signal.SIGSTOP)
    try:
        successor = await world.master(leader.epoch + 1)
    finally:
        first.send_signal(signal.SIGCONT)
    assert (successor.pid, leader.pid) != (first.pid, successor.pid)

    async def stands_by() -> bool:
        return not (await world.call(leader, "Status", StatusRequest())).leading

    await wait_until_async(stands_by)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await world.call(leader, "SetState", SetState(TopologyState.PAUSED))
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "state store names" in str(refused.value.details())
    answer = await world.call(successor, "SetState", SetState(TopologyState.PAUSED))
    assert answer.epoch == successor.epoch
    location = world.location()
    assert location is not None
    assert location.epoch == successor.epoch, "nobody else took over meanwhile"
