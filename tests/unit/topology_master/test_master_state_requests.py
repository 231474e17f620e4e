"""User requests for a checkpoint or a restore, and their answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from heron_runtime.model.checkpoints import Manifest, TaskReport
from heron_runtime.model.plan import GenerationPhase, PlanVersion, task_participant
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.errors import MalformedMessage
from heron_runtime.wire.master import MasterStatus
from tests.support.harness.stateful_masters import CONFIG, StateNode, StubParticipants, begun
from topology_master.core import events as e
from topology_master.core.recovery import HOLD_MS, MOST_FAILURES
from topology_master.core.requests import MAX_REQUESTS, PendingRequests

SLOW = {**CONFIG, "topology.stateful.checkpoint.interval.secs": 3_600.0}


def slow(home: Path) -> StateNode:
    """Return a node whose checkpoint interval is too long to matter."""
    return StateNode(home, StubParticipants(), config=SLOW).register().running()


def answers(effects: list[e.Effect]) -> list[e.AnswerRequest]:
    return [effect for effect in effects if isinstance(effect, e.AnswerRequest)]


@pytest.mark.parametrize("waiting", [MAX_REQUESTS - 1, MAX_REQUESTS])
def test_pending_requests_are_bounded(waiting: int) -> None:
    requests = PendingRequests()
    requests._checkpoints, requests._restores = dict.fromkeys(range(30), 0), dict.fromkeys(range(30, waiting), 0)
    told = requests.add(
        e.StateRequested(99, TopologyState.PAUSED), None, MasterStatus(1, TopologyState.RUNNING, PlanVersion(1, 1))
    )
    assert [answer.error for answer in told] == ["too many concurrent requests; try again"] * (waiting == MAX_REQUESTS)


def finish(node: StateNode) -> list[e.Effect]:
    """Let all tasks finish the running checkpoint."""
    number, turn = node.played.wish.under, node.played.wish.turn
    assert number, "none has begun"
    node.played.aligned()
    effects = node.beat()
    node.played.stored(node.folder, number, turn)
    return effects + node.beat()


def fail(node: StateNode) -> None:
    """Make user code fail until the topology has failed."""
    for _ in range(MOST_FAILURES + 2):  # the first failure may follow a complete checkpoint
        fail_once(node)
        if node.generation.phase is GenerationPhase.FAILED:
            break
        node.running()
    assert node.generation.phase is GenerationPhase.FAILED


def fail_once(node: StateNode) -> None:
    """Make user code fail once, so that the next generation begins."""
    number = node.generation.number
    node.played.reports[task_participant(2)] = TaskReport(number, failed="it raised")
    node.beat()
    while node.generation.number == number:
        node.tick(200)


def test_requested_checkpoint_begins_at_once_and_is_answered_when_complete(tmp_path: Path) -> None:
    node = slow(tmp_path)
    assert answers(node.tell(e.CheckpointRequested(1, wait=True))) == []
    assert node.record.begun == 1
    (answer,) = answers(finish(node))
    assert answer.number == 1
    assert answer.status is not None
    assert answer.status.tasks_state.last.number == 1
    node.tick(10_000)
    assert node.record.begun == 1, "one was asked for"


def test_request_without_wait_is_answered_at_once(tmp_path: Path) -> None:
    node = slow(tmp_path)
    (answer,) = answers(node.tell(e.CheckpointRequested(1, wait=False)))
    assert answer.status is not None
    assert node.record.begun == 1
    assert answers(finish(node)) == []


def test_checkpoint_that_began_before_the_request_does_not_answer_it(tmp_path: Path) -> None:
    node = slow(tmp_path)
    node.tell(e.CheckpointRequested(1, wait=True))
    node.played.aligned(1, 2)
    node.beat()
    node.tell(e.CheckpointRequested(2, wait=True))
    assert [answer.number for answer in answers(finish(node))] == [1]
    assert node.record.begun == 2, "the next one begins as soon as the first has ended"
    assert [answer.number for answer in answers(finish(node))] == [2]


def test_cancelled_checkpoint_answers_with_its_cause(tmp_path: Path) -> None:
    node = slow(tmp_path)
    node.tell(e.CheckpointRequested(1, wait=True))
    node.played.reports[task_participant(3)] = replace(
        node.played.reports[task_participant(3)], declined=1, declined_why="the disk is full"
    )
    (answer,) = answers(node.beat())
    assert (answer.status, answer.final) == (None, True)
    assert answer.error == "checkpoint 1 was cancelled: task 3 declines: the disk is full"
    assert node.core.status().tasks_state.cancelled_last == 1


def test_restore_ends_the_requested_checkpoint(tmp_path: Path) -> None:
    node = slow(tmp_path)
    node.tell(e.CheckpointRequested(1, wait=True))
    (cancelled, restored) = sorted(answers(node.tell(e.RestoreRequested(2))), key=lambda found: found.number)
    assert cancelled.error == "checkpoint 1 was cancelled: another generation has begun"
    assert restored.status is not None


def test_checkpoint_requested_during_a_restore_begins_when_running(tmp_path: Path) -> None:
    node = slow(tmp_path)
    node.tell(e.RestoreRequested(1))
    assert answers(node.tell(e.CheckpointRequested(2, wait=True))) == []
    node.running()
    assert [answer.number for answer in answers(finish(node))] == [2]


def test_requested_restore_returns_to_the_last_complete_checkpoint(tmp_path: Path) -> None:
    node = begun(tmp_path)
    assert node.checkpoint() == 1
    (answer,) = answers(node.tell(e.RestoreRequested(7)))
    now = node.generation
    assert (now.number, now.phase, now.restore_from, now.cause) == (
        2,
        GenerationPhase.RESTORING,
        1,
        "restore requested",
    )
    assert answer.status is not None
    assert (answer.status.tasks_state.generation, answer.status.tasks_state.restores) == (2, 1)
    assert node.running().generation.phase is GenerationPhase.RUNNING
    assert node.generation.number == 2, "it is done once"


def test_requested_restore_ends_the_failed_phase_in_which_checkpoints_are_refused(tmp_path: Path) -> None:
    node = slow(tmp_path)
    assert answers(node.tell(e.CheckpointRequested(1, wait=True))) == []
    finish(node)
    fail(node)
    (refused,) = answers(node.tell(e.CheckpointRequested(2, wait=True)))
    assert refused.final
    assert refused.error == "the topology has failed: task 2: it raised; `heron restore` begins again"
    number = node.generation.number
    (answer,) = answers(node.tell(e.RestoreRequested(3)))
    assert answer.status is not None
    assert (node.generation.number, node.generation.phase) == (number + 1, GenerationPhase.RESTORING)
    assert node.generation.failures == 0
    assert (node.running().generation.phase, node.generation.restore_from) == (GenerationPhase.RUNNING, 1)


def test_waiting_request_is_answered_when_the_topology_fails(tmp_path: Path) -> None:
    node = slow(tmp_path)
    for _ in range(MOST_FAILURES):
        fail_once(node)
        node.running()
    node.tell(e.RestoreRequested(1))
    assert answers(node.tell(e.CheckpointRequested(2, wait=True))) == []
    node.played.reports[task_participant(2)] = TaskReport(node.generation.number, failed="it raised")
    (answer,) = answers(node.beat())
    assert answer.error.startswith("the topology has failed: task 2: it raised")


def test_request_is_refused_without_state_and_by_a_standby(tmp_path: Path) -> None:
    config = {**CONFIG, "topology.reliability.mode": "ATLEAST_ONCE"}
    node = StateNode(tmp_path, StubParticipants(), config=config).register()
    for asked in (e.CheckpointRequested(1, wait=True), e.RestoreRequested(2)):
        (answer,) = answers(node.tell(asked))
        assert answer.final
        assert "topology.reliability.mode is not EFFECTIVELY_ONCE" in answer.error
    standby = StateNode(tmp_path, StubParticipants(), port=2)
    for asked in (e.CheckpointRequested(1, wait=True), e.RestoreRequested(2)):
        (answer,) = answers(standby.tell(asked))
        assert not answer.final, "the one that leads may be asked"


def test_lost_store_ends_waiting_requests(tmp_path: Path) -> None:
    node = slow(tmp_path)
    node.tell(e.CheckpointRequested(1, wait=True))
    (answer,) = answers(node.tell(e.SessionChanged(e.Session.SUSPENDED)))
    assert (answer.number, answer.final) == (1, False)


def test_new_master_shows_the_last_complete_checkpoint(tmp_path: Path) -> None:
    node = begun(tmp_path)
    node.checkpoint()
    complete = node.core.status().tasks_state.last
    node.die()
    other = StateNode(tmp_path, node.played, port=2).register()
    shown = other.core.status().tasks_state.last
    assert (shown.number, shown.bytes) == (complete.number, complete.bytes)
    assert (shown.completed_at, shown.duration_ms) == (0.0, 0.0), "which it has not seen"


@pytest.mark.parametrize("elapsed", [0, 600])
def test_status_shows_the_time_in_the_current_phase(tmp_path: Path, elapsed: int) -> None:
    node = slow(tmp_path)
    node.tick()
    node.tell(e.RestoreRequested(1))
    for _ in range(elapsed // 200):
        node.tick()
    assert node.core.status().tasks_state.phase_ms == elapsed


def test_holding_checkpoint_keeps_tasks_halted_until_a_plan_or_the_timeout(
    tmp_path: Path,
) -> None:
    node = slow(tmp_path)
    node.tell(e.CheckpointRequested(1, wait=True, hold=True))
    (answer,) = answers(finish(node))
    assert answer.status is not None
    assert node.played.wish.over == 0, "complete, and nobody goes on"
    node.tick(HOLD_MS - 1_000)
    assert node.played.wish.over == 0
    node.tick(2_000)
    assert node.played.wish.over == 1
    assert "no new plan was received for 10 s: the tasks continue" in node.notes()
    node.tell(e.CheckpointRequested(2, wait=True, hold=True))
    finish(node)
    node.tick(HOLD_MS - 1_000)
    assert node.played.wish.over == 1, "the time is that of each quiet"


def test_cancelled_hold_does_not_apply_to_the_next_checkpoint(tmp_path: Path) -> None:
    node = slow(tmp_path)
    node.tell(e.CheckpointRequested(1, wait=True, hold=True))
    node.played.reports[task_participant(1)] = replace(
        node.played.reports[task_participant(1)], declined=node.played.wish.under, declined_why="no time"
    )
    (answer,) = answers(node.beat())
    assert answer.status is None
    node.tell(e.CheckpointRequested(2, wait=True))
    finish(node)
    assert node.played.wish.over == 2, "all go on behind it"


def manifests(node: StateNode) -> dict[int, Manifest | None]:
    """Read the manifests as the shell does."""
    found: dict[int, Manifest | None] = {}
    for number in node.folder.manifests():
        try:
            found[number] = node.folder.read_manifest(number)
        except MalformedMessage:
            found[number] = None
    return found


def back(node: StateNode, number: int, *, repeat: bool = True) -> list[e.AnswerRequest]:
    """Request a restore to a checkpoint."""
    return answers(node.tell(e.RestoreRequested(9, 0, number, repeat_output=repeat, manifests=manifests(node))))


def damaged(home: Path) -> StateNode:
    """Return a new master after the manifest of checkpoint 3 was truncated; checkpoints 2 and 3 are kept."""
    node = begun(home)
    assert [node.checkpoint() for _ in range(3)] == [1, 2, 3]
    path = home / "checkpoints" / "manifests" / "3.json"
    path.write_bytes(path.read_bytes()[:-5])
    node.die()
    return StateNode(home, node.played, port=2).register()


def test_damaged_manifest_stops_decisions_and_is_named(tmp_path: Path) -> None:
    node = damaged(tmp_path)
    fault = node.core.status().tasks_state.storage_fault
    assert "checkpoint 3: its manifest below" in fault
    assert "is not whole" in fault
    for asked in (e.CheckpointRequested(1, wait=True), e.RestoreRequested(2)):
        (answer,) = answers(node.tell(asked))
        assert answer.final
        assert "checkpoint 3: its manifest below" in answer.error
        assert "heron restore … NUMBER --repeat-output" in answer.error
    for number, name in ((1, "checkpoint 1"), (3, "the last checkpoint"), (4, "checkpoint 4")):
        (refused,) = back(node, number)
        assert refused.final
        assert refused.error.startswith(f"{name} cannot be gone back to")
        assert refused.error.endswith("whole, and kept, are 2"), refused.error
    node.tick(60_000)
    assert (node.generation.number, node.record.complete) == (1, 3)


def test_abandoned_restore_request_is_not_decided_later(tmp_path: Path) -> None:
    node = damaged(tmp_path)
    node.hold = (e.CommitTransaction,)
    assert back(node, 2) == []
    node.hold = ()
    node.lose_store()
    node.tick(10_000)
    assert (node.generation.number, node.record.complete) == (1, 3)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_restore_to_an_older_checkpoint_begins_a_new_history(tmp_path: Path, is_damaged: bool) -> None:
    node = damaged(tmp_path) if is_damaged else begun(tmp_path)
    assert is_damaged or [node.checkpoint() for _ in range(3)] == [1, 2, 3]
    (refused,) = back(node, 2, repeat=False)
    assert refused.final
    assert "output written after checkpoint 2, up to 3, would be written again" in refused.error
    assert ("is not whole" in refused.error) == is_damaged
    assert node.generation.number == 1
    (answer,) = back(node, 2)
    now, record = node.generation, node.record
    assert answer.status is not None
    assert answer.status.tasks_state.restore_from == 2
    assert (now.number, now.phase, now.restore_from) == (2, GenerationPhase.RESTORING, 2)
    assert (record.generation, record.begun, record.complete) == (2, 3, 2)
    assert now.cause.startswith("restore requested, and later checkpoints are discarded")
    assert ("checkpoint 3: its" in now.cause) == is_damaged
    assert node.core.status().tasks_state.storage_fault == ""
    node.running()
    assert (3 in node.folder.manifests()) == is_damaged, "it counts no more; what is damaged goes in its turn"
    turn = node.folder.read_manifest(2).turn
    assert node.checkpoint() == 4, "numbers are not used again"
    manifest = node.folder.read_manifest(4)
    assert manifest.turn == turn + 1, "it follows the one that was gone back to"
    assert {part.checkpoint for layers in manifest.layers.values() for part in layers} <= {1, 2, 4}
    if not is_damaged:
        (gone,) = back(node, 3)
        assert gone.error == "checkpoint 3 does not exist: the complete ones are 2, 4"
    assert [node.checkpoint() for _ in range(3)] == [5, 6, 7]
    assert 3 not in node.folder.manifests()
    assert not [name for name in node.folder.parts() if name.split("-")[1] == "3"]
    node.die()
    other = StateNode(tmp_path, node.played, port=3).register()
    assert other.core.status().tasks_state.storage_fault == ""


def test_restore_to_a_missing_checkpoint_is_refused(tmp_path: Path) -> None:
    node = begun(tmp_path)
    assert [node.checkpoint() for _ in range(3)] == [1, 2, 3]
    (gone,) = back(node, 1)
    assert gone.error == "checkpoint 1 does not exist: the complete ones are 2, 3"
    (answer,) = back(node, 3, repeat=False)
    assert answer.status is not None
    assert node.generation.restore_from == node.record.complete == 3


def test_waiting_restore_to_an_older_checkpoint_keeps_its_files(tmp_path: Path) -> None:
    node = begun(tmp_path)
    assert [node.checkpoint() for _ in range(2)] == [1, 2]
    while not node.played.wish.under:
        node.tick(200)
    number, turn = node.played.wish.under, node.played.wish.turn
    node.played.aligned()
    node.beat()
    node.played.stored(node.folder, number, turn)
    node.hold = (e.CommitTransaction,)
    node.beat()  # the completing transaction is in flight
    assert back(node, 1) == []
    node.let_go()
    assert node.generation.restore_from == 1, "it has completed one meanwhile, behind which the first is not kept"
    assert node.record.complete == 1
    assert node.folder.read_manifest(1).files <= set(node.folder.parts())


def test_refused_restore_does_not_affect_the_next(tmp_path: Path) -> None:
    node = begun(tmp_path)
    assert [node.checkpoint() for _ in range(2)] == [1, 2]
    node.hold = (e.CommitTransaction,)
    assert back(node, 1) == []
    node.hold = ()
    node.lose_store()
    (answer,) = answers(node.tell(e.RestoreRequested(10)))
    assert answer.status is not None
    assert node.generation.restore_from == 2
