"""State transitions of one task in a checkpoint, tested without the layers around it."""

from __future__ import annotations

import pytest

from heron_instance.core.state.barriers import MAX_STORED_PARTS, Barrier, CheckpointParticipant, SnapshotRequest
from heron_runtime.model.checkpoints import StatePart, TaskReport


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
    ("source", "wrong"), [(1, Barrier(2, 5, 7, 4)), (1, Barrier(1, 5, 7, 0)), (9, Barrier(2, 5, 7, 0))]
)
def test_invalid_barrier_is_reported_as_loss(source: int, wrong: Barrier) -> None:
    task = bolt()
    assert task.barrier(source, wrong) is None
    first = task.report.lost
    assert first
    task.disconnected()
    assert task.report.lost == first, "the first cause stays"


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


def test_lost_frames_are_reported_with_both_counts() -> None:
    task = bolt()
    task.taken(1)
    assert task.barrier(1, barrier(5, 3)) is None
    assert task.report.lost == "3 frames were sent by task 1, and 1 came"
    task = bolt()
    task.barrier(1, Barrier(1, 5, 7, 0))
    assert task.report.lost == "a barrier of generation 1 came from task 1"
    task = bolt()
    task.disconnected()
    assert task.report.lost == "the connection to the stream manager ended"
