"""Checkpoints of a real topology master with a files store; stream managers and tasks are stubs."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from heron_runtime.checkpoint_files import CheckpointFolder
from heron_runtime.model.checkpoints import CheckpointRecord, StatePart, TaskReport
from heron_runtime.model.plan import GenerationPhase, stream_manager_of, task_participant
from heron_runtime.model.records import MasterLocation
from heron_runtime.state import paths
from heron_runtime.wire import message_codecs
from heron_runtime.wire.master import MasterStatus, ParticipantReport, RestoreState, StatusRequest, TakeCheckpoint
from tests.support.master_processes import NAME, MasterProcesses, PlayedStreamManager, submitted
from tests.support.waiting import wait_until_async

CONFIG = {
    "topology.reliability.mode": "EFFECTIVELY_ONCE",
    "topology.stateful.checkpoint.interval.secs": 0.2,
    "topology.stateful.checkpoint.keep": 2,
}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[MasterProcesses]:
    async with submitted(tmp_path, CONFIG) as made:
        yield made


class PlayedContainer:
    """Stub of a stream manager and its task that follows the master's commands at once."""

    def __init__(
        self, world: MasterProcesses, location: MasterLocation, container: int, task_incarnation: int = 7
    ) -> None:
        self.container, self.task_incarnation = container, task_incarnation
        self.folder = CheckpointFolder(world.folder / "checkpoints")
        self.own = self.task = TaskReport(0)
        self.works = True
        self.link = PlayedStreamManager(world, location, container, 1)
        self._obeying = asyncio.create_task(self._obey())

    async def _obey(self) -> None:
        while True:
            plan, wish = self.link.plans[-1] if self.link.plans else None, self.link.wish
            if plan is not None and plan.generation.number != self.task.generation:
                self.own = self.task = TaskReport(plan.generation.number, restored=True)
            if self.works and wish.under > self.task.aligned and wish.generation == self.task.generation:
                number = wish.under
                part = StatePart(
                    "word", self.container, self.task_incarnation, wish.generation, number, wish.turn, 3, "sum"
                )
                await asyncio.to_thread(self.folder.write_part, part.name, [b"abc"])
                self.task = replace(self.task, aligned=number, stored=(part,))
            self.link.reports = (
                ParticipantReport(stream_manager_of(self.container), 1, self.own),
                ParticipantReport(task_participant(self.container), self.task_incarnation, self.task),
            )
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self._obeying.cancel()
        await asyncio.gather(self._obeying, return_exceptions=True)
        await self.link.stop()


def record(world: MasterProcesses) -> CheckpointRecord:
    node = world.store.get(paths.checkpoints(NAME))
    return message_codecs.CHECKPOINT_RECORD.decode(node.data) if node else CheckpointRecord()


async def status(world: MasterProcesses, location: MasterLocation) -> MasterStatus:
    found = await world.call(location, "Status", StatusRequest())
    assert isinstance(found, MasterStatus)
    return found


async def test_checkpoints_are_taken_restored_and_removed_across_leaders(world: MasterProcesses) -> None:
    first = await world.start("topology_master")
    leader = await world.master()
    played = [PlayedContainer(world, leader, n) for n in (1, 2)]
    await wait_until_async(lambda: record(world).complete >= 4)
    shown = (await status(world, leader)).tasks_state
    assert (shown.generation, shown.phase, shown.cancelled, shown.restores) == (1, GenerationPhase.RUNNING, 0, 0)
    assert shown.last.bytes == 6
    assert abs(shown.last.completed_at - time.time()) < 3_600, "UTC"
    folder = played[0].folder
    await wait_until_async(lambda: len(folder.manifests()) <= 3 and min(folder.manifests()) > 1)

    played[1].task_incarnation, played[1].task = 8, TaskReport(0)
    await wait_until_async(lambda: record(world).generation == 2)
    begun = record(world).begun
    await wait_until_async(lambda: record(world).complete > begun)
    plan = played[0].link.plans[-1]
    assert plan.generation.incarnation(task_participant(2)) == 8
    assert plan.generation.cause == "task 2: it was restarted"

    played[1].works = False  # the checkpoint in progress when the master dies does not complete
    one, two = played
    await wait_until_async(lambda: one.link.wish.under and two.task.aligned != one.link.wish.under == one.task.aligned)
    before = record(world)
    assert before.begun > before.complete
    first.send_signal(signal.SIGKILL)
    await first.wait()
    await world.start("topology_master")
    successor = await world.master(leader.epoch + 1)
    for old in played:
        await old.stop()
    reports = [(old.container, old.task_incarnation, old.own, old.task) for old in played]
    played = [PlayedContainer(world, successor, n, incarnation) for n, incarnation, _, _ in reports]
    for container, (_, _, own, task) in zip(played, reports, strict=True):
        container.own, container.task = own, task
    await wait_until_async(lambda: record(world).complete > before.begun)
    assert record(world).generation == 2, "the generation goes on, the checkpoint that was under way does not"
    assert not (folder.folder / "manifests" / f"{before.begun}.json").exists()
    for container in played:
        await container.stop()


async def test_checkpoint_requests_are_answered_over_grpc(world: MasterProcesses) -> None:
    await world.start("topology_master")
    leader = await world.master()
    played = [PlayedContainer(world, leader, n) for n in (1, 2)]
    await wait_until_async(lambda: record(world).complete)
    begun = record(world).begun
    done = await world.call(leader, "TakeCheckpoint", TakeCheckpoint(20.0, leader.epoch))
    assert isinstance(done, MasterStatus)
    assert done.tasks_state.last.number > begun
    played[1].works = False
    assert isinstance(await world.call(leader, "TakeCheckpoint", TakeCheckpoint()), MasterStatus), "at once"
    with pytest.raises(grpc.aio.AioRpcError, match="it continues, and `heron status` shows what delays it") as late:
        await world.call(leader, "TakeCheckpoint", TakeCheckpoint(0.3, leader.epoch))
    assert late.value.code() is grpc.StatusCode.FAILED_PRECONDITION, "nobody asks it again by himself"
    restored = await world.call(leader, "RestoreState", RestoreState(leader.epoch))
    assert isinstance(restored, MasterStatus)
    assert restored.tasks_state.generation == 2
    assert record(world).generation == 2
    for container in played:
        await container.stop()
