"""Barriers: as frames, in a checkpoint, and in an update, which one task without state halts for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.state.barriers import (
    DRAIN_TIMEOUT_FACTOR,
    MAX_STORED_PARTS,
    Barrier,
    CheckpointParticipant,
    InvalidBarrier,
    SnapshotRequest,
    UpdateDrain,
    barrier_frame,
    channel_tasks,
    read_barrier,
)
from heron_runtime.model.checkpoints import StatePart, TaskReport
from heron_runtime.model.plan import PhysicalPlan, PlanVersion, UpdatePhase
from heron_runtime.wire.data import BARRIER, Frame, Packet
from heron_runtime.wire.data_codec import decode_packet, encode_packet
from heronry.api.component import BasicBolt, Spout
from tests.support.harness.executors import SHUFFLE, ExecutorHarness, Part, make_plan

numbers = st.integers(0, (1 << 64) - 1)
SOME = Barrier(3, 17, 1, 12)


@given(st.builds(Barrier, numbers, numbers, st.integers(-(1 << 63), (1 << 63) - 1), numbers))
def test_barrier_survives_a_frame_round_trip(barrier: Barrier) -> None:
    assert read_barrier(barrier_frame(2, 5, 7, barrier)) == barrier


def test_barrier_frame_has_no_tuples_and_survives_the_packet_codec() -> None:
    frame = barrier_frame(2, 5, 7, SOME)
    assert (frame.source_task, frame.destination_task, frame.routing_version, frame.count) == (2, 5, 7, 0)
    assert decode_packet(encode_packet(Packet(1, frames=[frame]))).frames == [frame]


@pytest.mark.parametrize("size", [0, 31, 33])
def test_read_barrier_rejects_other_sizes(size: int) -> None:
    frame = msgspec.structs.replace(barrier_frame(2, 5, 7, SOME), values=b"x" * size)
    with pytest.raises(InvalidBarrier, match=f"{size} bytes for 0 tuples from task 2"):
        read_barrier(frame)


def test_read_barrier_rejects_frames_with_tuples() -> None:
    with pytest.raises(InvalidBarrier, match="32 bytes for 1 tuples"):
        read_barrier(msgspec.structs.replace(barrier_frame(2, 5, 7, SOME), count=1))


def bolt() -> CheckpointParticipant:
    return CheckpointParticipant(generation=2, upstream=[1, 3], timeout_ms=1_000)


def barrier(number: int, count: int = 0) -> Barrier:
    return Barrier(2, number, 7, count)


def test_bolt_aligns_with_the_last_barrier_and_halts_until_over() -> None:
    task = bolt()
    task.taken(1)
    assert task.barrier(1, barrier(5, 1)) is None
    assert task.may_take(3)
    assert task.barrier(3, barrier(5)) == SnapshotRequest(5, 7)
    task.aligned(5, 100)
    assert (task.quiet, task.report.aligned) == (True, 5)
    assert not task.may_take(1)
    task.over(4)
    task.completed(5)
    assert task.quiet, "neither an older number nor complete ends a quiet"
    task.over(5)
    assert task.may_take(1)
    assert task.barrier(1, barrier(5, 1)) is None, "what is over is ignored"
    task.check()


def test_later_barrier_ends_an_earlier_halt() -> None:
    task = bolt()
    for source in (1, 3):
        task.barrier(source, barrier(5))
    task.aligned(5, 0)
    assert task.barrier(1, barrier(6)) is None
    assert not task.quiet
    assert task.barrier(1, barrier(5)) is None
    assert task.barrier(3, barrier(6)) == SnapshotRequest(6, 7)


def test_frame_after_a_barrier_declines_the_checkpoint() -> None:
    task = bolt()
    task.barrier(1, barrier(5))
    assert task.may_take(3)
    assert task.may_take(1)
    assert (task.report.declined, task.report.declined_why) == (5, "task 1 has resumed")
    assert task.barrier(3, barrier(5)) is None, "it is over for this task"


@pytest.mark.parametrize(
    ("source", "wrong", "lost"),
    [
        (1, Barrier(2, 5, 7, 3), "3 frames were sent by task 1, and 1 came"),
        (1, Barrier(1, 5, 7, 0), "a barrier of generation 1 came from task 1"),
        (9, Barrier(2, 5, 7, 0), "task 9"),
        (0, None, "the connection to the stream manager ended"),
    ],
)
def test_loss_is_reported_with_its_first_cause(source: int, wrong: Barrier | None, lost: str) -> None:
    task = bolt()
    task.taken(1)
    if wrong is not None:
        assert task.barrier(source, wrong) is None
        assert lost in task.report.lost
    for _ in range(2):
        before = task.report.lost
        task.disconnected()
        assert task.report.lost == (before or lost)


def test_spout_begins_each_checkpoint_once() -> None:
    spout = CheckpointParticipant(1, [], 1_000)
    assert spout.begin(4, 0) == SnapshotRequest(4, 0)
    assert spout.begin(4, 0) is None
    spout.aligned(4, 0)
    assert spout.begin(5, 0) == SnapshotRequest(5, 0)
    spout.aligned(5, 0)
    spout.over(6)
    assert spout.begin(6, 0) is None
    assert not spout.quiet
    assert bolt().begin(9, 0) is None


def test_halt_that_exceeds_its_timeout_is_declined() -> None:
    task = CheckpointParticipant(1, [], 1_000)
    task.begin(4, 0)
    task.aligned(4, 100)
    task.tick(1_100)
    assert task.report.declined == 0
    task.tick(1_101)
    assert (task.report.declined, task.quiet) == (4, True)
    assert "1 s" in task.report.declined_why


def test_report_holds_the_newest_parts() -> None:
    task = bolt()
    for number in range(1, 9):
        task.stored(StatePart("count", 2, 1, 2, number, number, 0, ""))
    task.confirmed(3)
    task.confirmed(2)
    task.restored()
    report = task.report
    assert [part.checkpoint for part in report.stored] == list(range(9 - MAX_STORED_PARTS, 9))
    assert (report.confirmed, report.restored, report.generation) == (3, True, 2)
    assert task.completed(3)
    assert not task.completed(2)
    assert task.complete == 3


def test_new_participant_has_an_empty_report() -> None:
    for task in (bolt(), CheckpointParticipant(2, [], 1_000)):
        task.tick(10**9)
        assert task.report == TaskReport(2, False, 0, (), 0, "", 0, "")
        assert (task.quiet, task.complete, task.declined) == (False, 0, 0)
        task.check()


def test_decline_keeps_the_newest_checkpoint_and_its_first_reason() -> None:
    task = bolt()
    for number, why in ((5, "first"), (5, "second"), (4, "older")):
        task.decline(number, why)
        assert (task.report.declined, task.report.declined_why) == (5, "first")
    task.decline(6, "newer")
    assert (task.report.declined, task.report.declined_why) == (6, "newer")


def test_outdated_barriers_are_ignored() -> None:
    task = bolt()
    task.over(4)
    assert task.barrier(1, barrier(4)) is None
    assert task.barrier(3, barrier(4)) is None
    assert task.barrier(1, barrier(7)) is None
    assert task.barrier(3, barrier(6)) is None, "before the current one"
    assert task.barrier(3, barrier(7)) == SnapshotRequest(7, 7)
    assert task.barrier(3, barrier(7)) == SnapshotRequest(7, 7), "until it has aligned"
    task.aligned(7, 500)
    assert task.quiet_until_ms == 1_500
    assert task.barrier(3, barrier(7)) is None
    task.over(7)
    assert (task.quiet, task.report.aligned, task.report.lost) == (False, 7, "")


NUMBER = 5
PARTS = {
    "s": Part(Spout, 2, {"default": ["n"]}),
    "b": Part(BasicBolt, 2, {"default": ["n"]}, [("s", "default", SHUFFLE)]),
    "r": Part(BasicBolt, 1, {}, [("b", "default", SHUFFLE), ("s", "default", SHUFFLE)]),
}
PLAN = make_plan(PARTS, {"topology.update.drain.secs": 2.0})
SPOUT, BOLT, LAST = 1, 3, 5


def plan(number: int, standstill: UpdatePhase = UpdatePhase.NONE) -> PhysicalPlan:
    return replace(PLAN, version=PlanVersion(1, number), standstill=standstill)


def barrier_of(source: int, task: int, number: int = NUMBER) -> Frame:
    return barrier_frame(source, task, 1, Barrier(0, number, 0, 0))


def test_channels_are_all_task_pairs_of_connected_components() -> None:
    assert channel_tasks(PLAN, "s") == ([], [3, 4, 5])
    assert channel_tasks(PLAN, "b") == ([1, 2], [5])
    assert channel_tasks(PLAN, "r") == ([1, 2, 3, 4], [])


@given(st.permutations([*range(5), 0, 1]), st.lists(st.sampled_from([NUMBER - 1, NUMBER]), min_size=4, max_size=4))
def test_bolt_halts_after_the_plan_and_the_barriers_of_all_upstream_tasks(order: list[int], first: list[int]) -> None:
    """The order does not matter; barriers of an earlier update do not count."""
    task, came, seen, told = UpdateDrain(plan(1), LAST, 0.0), set[int](), set[int](), False
    for what in order:
        if what == 4:
            task.follow(plan(NUMBER, UpdatePhase.DRAINING), 0.0)
            told = True
        else:
            source = 1 + what
            number = NUMBER if source in came else first[what]
            came.add(source)
            task.barrier(barrier_of(source, LAST, number))
            if number == NUMBER:
                seen.add(source)
        assert task.due == (told and seen == {1, 2, 3, 4})
        assert not task.quiet
        task.check()
    for source in (1, 2, 3, 4):
        task.barrier(barrier_of(source, LAST))
    assert task.due
    assert task.barriers() == [], "nobody reads it"
    assert (task.quiet, task.due, task.report.aligned) == (True, False, NUMBER)


def test_task_settles_and_resumes_with_the_matching_plans() -> None:
    task = UpdateDrain(plan(1), SPOUT, 0.0)
    task.follow(plan(NUMBER, UpdatePhase.DRAINING), 10.0)
    assert (task.is_draining, task.due, task.quiet) == (True, True, False), "a spout waits for nobody's barrier"
    assert [frame.destination_task for frame in task.barriers()] == [3, 4, 5]
    task.follow(plan(NUMBER - 1), 20.0)
    assert task.quiet, "an older plan is refused"
    task.follow(plan(NUMBER + 1, UpdatePhase.SETTLING), 30.0)
    assert (task.quiet, task.due, task.report.aligned) == (True, False, NUMBER + 1), "it goes by the new plan"
    task.follow(plan(NUMBER + 2), 40.0)
    assert (task.is_draining, task.quiet, task.report.aligned) == (False, False, 0)
    task.check()


def test_late_plan_of_an_earlier_update_keeps_newer_barriers() -> None:
    task = UpdateDrain(plan(1), BOLT, 0.0)
    task.barrier(barrier_of(1, BOLT, NUMBER + 1))
    task.follow(plan(NUMBER, UpdatePhase.DRAINING), 10.0)
    task.barrier(barrier_of(2, BOLT, NUMBER + 1))
    task.follow(plan(NUMBER + 1, UpdatePhase.DRAINING), 20.0)
    assert task.due


def test_process_started_while_settling_halts_without_a_report() -> None:
    task = UpdateDrain(plan(NUMBER, UpdatePhase.SETTLING), SPOUT, 0.0)
    assert (task.quiet, task.due, task.report.aligned) == (True, False, 0)


def test_task_resumes_after_its_deadline() -> None:
    for standstill in (UpdatePhase.DRAINING, UpdatePhase.SETTLING):
        task = UpdateDrain(plan(NUMBER, standstill), SPOUT, 1_000.0)
        deadline = task.deadline_ms()
        assert deadline == 1_000.0 + DRAIN_TIMEOUT_FACTOR * 2_000
        task.tick(deadline - 1)
        assert task.is_draining
        task.tick(deadline)
        assert (task.is_draining, task.quiet, task.due, task.deadline_ms()) == (False, False, False, None)
        task.check()


class Emits(Spout):
    """Spout that emits nothing; the test builds the frames."""

    def next_tuple(self) -> None: ...


class Batches(BasicBolt):
    """Bolt that records the tuples and ticks it received."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.taken: list[Any] = []
        self.ticks = 0

    def process(self, tup: Any) -> None:
        self.taken.append(tup.values[0])

    def process_tick(self, tup: Any) -> None:
        self.ticks += 1


@pytest.mark.parametrize("behind", [0, 1])
def test_bolt_finishes_input_before_the_barrier_and_stops_ticks(behind: int) -> None:
    parts = {
        "s": Part(Emits, 1, {"default": ["n"]}),
        "b": Part(Batches, 1, {}, [("s", "default", SHUFFLE)], {"topology.tick.tuple.freq.ms": 10}),
    }
    world = ExecutorHarness(parts)
    bolt, (user,) = world.executors[2], world.objects("b")
    codec = bolt.task.codec
    encoded = codec.encode_cut([(1,), (2,)])[0]
    data = Frame(1, 0, 2, 2, 1, int(encoded.codec), encoded.data)
    drains = replace(world.plan, version=PlanVersion(1, NUMBER), standstill=UpdatePhase.DRAINING)
    bolt.on_plan(world.clock.ms, drains)
    bolt.on_frames(world.clock.ms, [data, barrier_of(1, 2), *[data] * behind])
    bolt.run(world.clock.ms)
    assert bolt._work is not None  # type: ignore[attr-defined]
    assert bolt._work.count == 2, "no batch spans a barrier"  # type: ignore[attr-defined]
    for _ in range(5):
        world.clock.now += 0.02
        bolt.run(world.clock.ms)
        assert not bolt.output.draining.quiet or len(user.taken) == 2 + 2 * behind, "only once all is processed"
    assert bolt.output.draining.quiet
    assert user.taken == [1, 2, *[1, 2] * behind], "what comes all the same is processed"
    ticks = user.ticks
    for _ in range(5):
        world.clock.now += 0.02
        bolt.run(world.clock.ms)
    assert user.ticks == ticks, "nothing leaves it of its own accord"
    bolt.on_plan(world.clock.ms, replace(world.plan, version=PlanVersion(1, NUMBER + 1)))
    world.clock.now += 0.05
    bolt.run(world.clock.ms)
    assert user.ticks > ticks
    assert data.codec != BARRIER
