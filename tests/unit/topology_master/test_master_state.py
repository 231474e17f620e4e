"""Topology master of a stateful topology: generations and checkpoints on a real files store."""

from __future__ import annotations

from pathlib import Path

import pytest

from heron_runtime.model.checkpoints import CheckpointCommand, CheckpointRecord, TaskReport
from heron_runtime.model.plan import GenerationPhase, stream_manager_of, task_participant
from heron_runtime.model.topology import TopologyState
from heron_runtime.state import paths
from heron_runtime.state.store import Set
from heron_runtime.state.topologies import kill
from heron_runtime.wire import message_codecs
from heron_runtime.wire.master import Heartbeat
from tests.support.definitions import packing_of
from tests.support.harness.masters import ID, NAME, info, registration
from tests.support.harness.stateful_masters import CONFIG, LEASE_MS, TASKS, StateNode, StubParticipants, begun
from topology_master.core import events as e


def stored_plans(effects: list[e.Effect]) -> list[e.CommitTransaction]:
    return [effect for effect in effects if isinstance(effect, e.CommitTransaction)]


def wishes(effects: list[e.Effect]) -> list[CheckpointCommand]:
    return [effect.wish for effect in effects if isinstance(effect, e.SendHeartbeatReply)]


def test_first_plan_restores_generation_1_from_the_initial_state(tmp_path: Path) -> None:
    node = StateNode(tmp_path, StubParticipants()).register()
    assert (node.generation.number, node.generation.phase, node.generation.restore_from) == (
        1,
        GenerationPhase.RESTORING,
        0,
    )
    assert node.record == CheckpointRecord(1, 0, 0)
    (write,) = stored_plans(node.effects)
    assert write.plan is not None
    assert write.record == node.record, "plan and record in one transaction"
    assert len(node.core.status().tasks_state.missing) == 6
    node.played.restored(
        task_participant(1), task_participant(2), stream_manager_of(1), stream_manager_of(2), task_participant(3)
    )
    node.beat()
    assert node.core.status().tasks_state.missing == (task_participant(4),)
    node.running()
    assert node.generation.phase is GenerationPhase.RUNNING
    assert {m.place for m in node.generation.members} == set(node.played.incarnations)
    assert node.played.plan is not None
    assert node.played.plan.generation == node.generation
    assert node.notes()[-1] == "generation 1 runs, with 6 processes"


def test_other_modes_keep_no_state(tmp_path: Path) -> None:
    config = {**CONFIG, "topology.reliability.mode": "ATLEAST_ONCE"}
    node = StateNode(tmp_path, StubParticipants(), config=config).register().running()
    assert node.generation.number == 0
    assert node.store.get(paths.checkpoints(NAME)) is None
    assert {wish.generation for wish in wishes(node.effects)} <= {0}
    assert node.core.tick_ms is None


def test_checkpoint_completes_step_by_step(tmp_path: Path) -> None:
    node = begun(tmp_path)
    node.tick(1_000)
    assert node.record == CheckpointRecord(1, 1, 0), "its number is stored"
    assert (node.played.wish.under, node.played.wish.over) == (1, 0)
    node.played.aligned(1, 2, 3)
    assert len(wishes(node.beat())) == 2, "answers, and nothing new"
    assert node.core.status().tasks_state.waits_for == (4,)
    node.played.aligned()
    effects = node.tell(e.HeartbeatReceived(node.link(2), node.played.heartbeat(2)))
    told = [effect.link for effect in effects if isinstance(effect, e.SendHeartbeatReply) and effect.wish.over == 1]
    assert set(told) == {node.link(1), node.link(2)}, "everybody hears `resume` in the same moment"
    node.played.stored(node.folder, 1, 0)
    node.beat(1)
    assert node.record.complete == 0
    effects = node.tell(e.HeartbeatReceived(node.link(2), node.played.heartbeat(2)))
    kinds = [type(x) for x in effects if isinstance(x, e.WriteManifest | e.CommitTransaction)]
    assert kinds == [e.WriteManifest, e.CommitTransaction], "what was written leads to the next write at once"
    assert node.record == CheckpointRecord(1, 1, 1)
    assert {w.complete for w in wishes(effects)[-2:]} == {1}
    manifest = node.folder.read_manifest(1)
    assert (manifest.topology_id, manifest.code_digest, set(manifest.tables)) == (ID, "digest", {"count"})
    assert [part.task for part in manifest.parts] == list(TASKS)
    shown = node.core.status().tasks_state
    assert (shown.last.number, shown.last.bytes, shown.completed, shown.cancelled) == (1, 12, 1, 0)
    assert shown.last.completed_at == pytest.approx(1_000 + node.now_ms / 1000)
    assert node.core.state_gauges()["__checkpoint-number"] == 1


def test_missing_stream_manager_does_not_delay_the_next_generation(tmp_path: Path) -> None:
    node = begun(tmp_path)
    node.tick(LEASE_MS + 400, 2)
    assert node.core.membership.missing() == [2]
    assert (node.generation.number, node.generation.phase) == (2, GenerationPhase.RESTORING)
    node.tick(5 * LEASE_MS, 2)
    assert node.generation.number == 2, "who has restored nothing is waited for"
    node.played.incarnations[stream_manager_of(2)] += 1
    node.tell(e.RegistrationReceived(node.link(2), registration(2, node.played.incarnations[stream_manager_of(2)])))
    node.running()
    assert (node.generation.number, node.generation.phase) == (2, GenerationPhase.RUNNING)
    assert node.played.plan is not None
    assert node.played.plan.stream_manager(2) == info(2, 6)


def test_reregistered_stream_manager_is_lost_at_once_with_its_new_address(tmp_path: Path) -> None:
    node = begun(tmp_path)
    place = stream_manager_of(2)
    node.played.started_anew(place)
    effects = node.tell(e.RegistrationReceived(node.link(2), registration(2, node.played.incarnations[place])))
    (write,) = stored_plans(effects)
    assert write.plan is not None
    assert write.plan.stream_manager(2) == info(2, 6)
    assert (write.plan.generation.number, write.plan.generation.phase) == (2, GenerationPhase.RESTORING)


def test_delays_between_generations_grow_until_a_checkpoint_completes(tmp_path: Path) -> None:
    node = begun(tmp_path)

    def delay() -> int:
        number = node.generation.number
        before = node.now_ms
        node.played.started_anew(task_participant(2))
        node.beat()
        for _ in range(100):
            if node.generation.number > number:
                break
            node.tick(200)
        assert node.generation.number == number + 1
        node.running()
        return int(node.now_ms - before)

    assert [delay() for _ in range(7)] == [0, 200, 400, 800, 1_600, 3_200, 6_400]
    assert [delay(), delay()] == [10_000, 10_000]
    node.checkpoint()
    assert delay() == 0


def test_pause_is_stored_while_a_restore_waits(tmp_path: Path) -> None:
    node = begun(tmp_path)
    for _ in range(5):
        node.played.started_anew(task_participant(2))
        node.tick(2_000)
        node.running()
    node.played.started_anew(task_participant(2))
    node.beat()
    number = node.generation.number
    node.tell(e.StateRequested(1, TopologyState.PAUSED))
    assert [x.status is not None for x in node.effects if isinstance(x, e.AnswerRequest)] == [True]
    assert node.played.plan is not None
    assert (node.played.plan.state, node.generation.number) == (TopologyState.PAUSED, number)


def test_repeated_user_failures_fail_the_topology(tmp_path: Path) -> None:
    node, delays = begun(tmp_path), []
    while node.generation.phase is not GenerationPhase.FAILED:
        number, before = node.generation.number, node.now_ms
        node.played.reports[task_participant(2)] = TaskReport(number, failed="count: ValueError: 5")
        node.beat()
        while node.generation.number == number:
            node.tick(200)
        delays.append(int(node.now_ms - before))
        if node.generation.phase is not GenerationPhase.FAILED:
            node.running()
    assert delays == [0, 1_000, 2_000, 4_000, 8_000, 0], "what is away for some seconds comes back meanwhile"
    assert any("FAILED: task 2: count: ValueError: 5" in text for text in node.notes())
    shown = node.core.status().tasks_state
    assert (shown.phase, shown.cause, shown.restores) == (GenerationPhase.FAILED, "task 2: count: ValueError: 5", 5)


def test_pause_does_not_disturb_a_running_checkpoint(tmp_path: Path) -> None:
    node = begun(tmp_path)
    node.tick(1_000)
    node.played.aligned()
    node.beat()
    node.hold = (e.WriteManifest,)
    node.played.stored(node.folder, 1, 0)
    node.beat()
    node.tell(e.StateRequested(1, TopologyState.PAUSED))
    assert not any(isinstance(x, e.AnswerRequest) for x in node.effects), "one write at a time"
    node.let_go()
    assert node.record.complete == 1
    assert [x.status is not None for x in node.effects if isinstance(x, e.AnswerRequest)] == [True]


def test_checkpoint_continues_while_a_plan_is_written(tmp_path: Path) -> None:
    node = begun(tmp_path)
    node.tick(1_000)
    node.hold = (e.CommitTransaction,)
    node.tell(e.StateRequested(1, TopologyState.PAUSED))
    node.played.aligned()
    node.beat()
    assert node.played.wish.over == 1
    node.played.stored(node.folder, 1, 0)
    node.beat()
    assert not any(isinstance(x, e.WriteManifest) for x in node.effects)
    node.let_go()
    assert node.record.complete == 1


def test_loss_during_the_completing_write_restores_from_that_checkpoint(tmp_path: Path) -> None:
    node = begun(tmp_path)
    node.tick(1_000)
    node.played.aligned()
    node.beat()
    node.played.stored(node.folder, 1, 0)
    node.hold = (e.CommitTransaction,)
    node.beat()
    node.played.started_anew(task_participant(2))
    node.beat()
    assert len(node.waiting) == 1
    node.let_go()
    assert node.record == CheckpointRecord(2, 1, 1)
    assert node.generation.restore_from == 1


@pytest.mark.parametrize("when", ["number", "completion", "generation"])
def test_write_without_an_answer_is_found_by_the_next_read(tmp_path: Path, when: str) -> None:
    node = begun(tmp_path)
    if when == "number":
        node.answers_lost = True
        node.tick(1_000)
        assert (node.record.begun, node.record.complete) == (2, 0), "the number that nobody heard of is over"
        assert (node.played.wish.under, node.played.wish.over) == (2, 1)
    elif when == "completion":
        node.tick(1_000)
        node.played.aligned()
        node.beat()
        node.played.stored(node.folder, 1, 0)
        node.answers_lost = True
        node.beat()
        shown = node.core.status().tasks_state
        assert (node.record.complete, shown.completed, shown.cancelled) == (1, 1, 0)
        assert node.checkpoint() == 2
    else:
        node.answers_lost = True
        node.played.started_anew(task_participant(2))
        node.beat()
        assert node.generation.number == 2
        node.running()
        assert node.generation.phase is GenerationPhase.RUNNING


@pytest.mark.parametrize("write", [e.CommitTransaction, e.WriteManifest])
def test_write_lost_with_the_store_is_abandoned_and_checkpoints_continue(tmp_path: Path, write: type) -> None:
    node = begun(tmp_path)
    node.tick(1_000)
    node.played.aligned()
    node.beat()
    node.hold = (write,)
    node.played.stored(node.folder, 1, 0)
    node.beat()
    if write is e.CommitTransaction:
        assert node.core.status().tasks_state.under == 1
    node.lose_store()
    node.let_go()
    if write is e.WriteManifest:
        assert node.record.complete == 1, "the disk was not away"
    else:
        assert node.core.status().tasks_state.cancelled == 1
    assert node.checkpoint() == 2


def test_manifest_that_cannot_be_written_cancels_with_its_cause(tmp_path: Path) -> None:
    node = begun(tmp_path)
    node.tick(1_000)
    node.played.aligned()
    node.beat()
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "manifests").write_text("not a folder")
    node.played.stored(node.folder, 1, 0)
    node.beat()
    assert node.record.complete == 0
    assert "manifests" in node.core.status().tasks_state.cancelled_why
    (tmp_path / "checkpoints" / "manifests").unlink()
    assert node.checkpoint() == 2


def test_hanging_storage_delays_only_one_checkpoint(tmp_path: Path) -> None:
    node = begun(tmp_path)
    node.tick(1_000)
    node.played.aligned()
    node.beat()
    node.hold = (e.WriteManifest,)
    node.played.stored(node.folder, 1, 0)
    node.beat()
    node.tell(e.StateRequested(1, TopologyState.PAUSED))
    node.tick(10_000)
    assert node.core.status().tasks_state.cancelled == 0, "storage may take a while"
    node.tick(200)
    assert "the storage does not answer" in node.core.status().tasks_state.cancelled_why
    assert any(isinstance(x, e.AnswerRequest) for x in node.effects)
    node.tell(e.ManifestWritten(1))
    assert node.record.complete == 0, "it was given up"


def test_nothing_is_stored_while_the_last_manifest_is_unreadable(tmp_path: Path) -> None:
    node = begun(tmp_path)
    node.checkpoint()
    node.die()
    file = tmp_path / "checkpoints" / "manifests" / "1.json"
    whole = file.read_bytes()
    file.write_bytes(whole[:-9] + b"x" + whole[-8:])
    other = StateNode(tmp_path, node.played, 2).register()
    other.tell(e.StateRequested(1, TopologyState.PAUSED))
    (answer,) = [x for x in other.effects if isinstance(x, e.AnswerRequest)]
    assert "checkpoint 1" in answer.error
    assert "damaged" in answer.error
    assert str(tmp_path) in other.core.status().tasks_state.storage_fault
    other.played.started_anew(task_participant(2))
    other.tick(2_000)
    assert stored_plans(other.effects) == []
    file.write_bytes(whole)
    other.tick(1_200)
    assert other.core.status().tasks_state.storage_fault == ""
    assert (other.generation.number, other.generation.restore_from) == (2, 1)


@pytest.mark.parametrize("phase", ["restoring", "begun", "aligned", "stored", "manifest", "complete"])
def test_new_master_continues_from_the_store_in_each_phase(tmp_path: Path, phase: str) -> None:
    node = begun(tmp_path)
    node.checkpoint()
    if phase == "restoring":
        node.played.started_anew(task_participant(2))
        node.beat()
        node.played.restored(task_participant(1), task_participant(2))
        node.beat()
    elif phase == "complete":
        node.checkpoint()
    else:
        node.tick(1_000)
        if phase != "begun":
            node.played.aligned()
            node.beat()
        if phase in ("stored", "manifest"):
            node.hold = (e.WriteManifest,) if phase == "stored" else (e.CommitTransaction,)
            node.played.stored(node.folder, 2, 1)
            node.beat()
    before, complete = node.record, 2 if phase == "complete" else 1
    node.die()
    other = StateNode(tmp_path, node.played, 2).register()
    assert (other.record, other.core.epoch) == (before, 2)
    assert other.record.complete == complete
    assert other.played.wish.over == before.begun, "what another master has begun is over"
    other.running()
    assert other.generation.phase is GenerationPhase.RUNNING
    assert other.generation.number == (2 if phase == "restoring" else 1), "nothing was lost with the master"
    assert other.checkpoint() == before.begun + 1
    manifest = other.folder.read_manifest(before.begun + 1)
    assert manifest.turn == complete, "turns count complete checkpoints"


def test_new_master_detects_a_member_that_died_with_the_old_one(tmp_path: Path) -> None:
    node = begun(tmp_path)
    node.die()
    other = StateNode(tmp_path, node.played, 2)
    other.tell(e.RegistrationReceived(other.link(1), registration(1, 5)))
    other.tick(LEASE_MS - 400, 2)
    assert other.generation.number == 1
    other.tick(800, 2)
    assert other.generation.number == 2
    assert "silent" in other.generation.cause


def test_lower_incarnation_is_accepted_only_after_its_member_is_silent(tmp_path: Path) -> None:
    node = begun(tmp_path)
    node.played.incarnations[task_participant(2)] = 4
    node.played.reports[task_participant(2)] = TaskReport(1, lost="of the dead")
    node.tick(LEASE_MS - 400)
    assert node.generation.number == 1
    node.played.reports[task_participant(2)] = TaskReport(0)
    node.tick(800)
    assert node.generation.number == 2, "the member is silent"
    node.running()
    assert (node.generation.phase, node.generation.incarnation(task_participant(2))) == (GenerationPhase.RUNNING, 4)


def test_old_files_are_removed_and_needed_ones_stay(tmp_path: Path) -> None:
    node = begun(tmp_path)
    for _ in range(12):
        node.checkpoint()
    assert node.folder.manifests() == [11, 12]
    needed = node.folder.read_manifest(11).files | node.folder.read_manifest(12).files
    assert set(node.folder.parts()) == needed
    node.tick(1_000)
    node.played.stored(node.folder, 13, 12, 1)  # the checkpoint is abandoned
    node.played.started_anew(task_participant(2))
    node.beat()
    assert len(node.folder.parts()) == len(needed) + 1
    node.running()
    assert set(node.folder.parts()) == needed


def test_changed_packing_plan_begins_a_generation(tmp_path: Path) -> None:
    node = begun(tmp_path)
    moved = packing_of(NAME, {1: {3: "word", 2: "count"}, 2: {1: "word", 4: "count"}})
    node.store.commit([Set(paths.packing_plan(NAME), message_codecs.PACKING_PLAN.encode(moved), 0)])
    node.read()
    assert (node.generation.number, node.generation.cause) == (2, "the packing plan has changed")


def test_command_is_sent_on_registration_and_record_is_deleted_by_kill(tmp_path: Path) -> None:
    node = begun(tmp_path)
    node.tick(1_000)
    effects = node.tell(e.RegistrationReceived(7, registration(1, 5)))
    assert [x.wish.under for x in effects if isinstance(x, e.SendHeartbeatReply) and x.link == 7] == [1]
    node.tell(e.HeartbeatReceived(7, Heartbeat()))
    assert kill(node.store, NAME)
    assert node.store.get(paths.checkpoints(NAME)) is None
