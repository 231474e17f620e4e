"""Checkpoint coordinator: every rule alone, without the layers around it."""

from __future__ import annotations

from dataclasses import replace

from heron_runtime.model.checkpoints import CheckpointRecord, Manifest, StatePart, TaskReport, initial_manifest
from heron_runtime.model.plan import NO_PLAN
from topology_master.core.checkpoints import (
    CANCELLED_IN_A_ROW,
    CheckpointCoordinator,
    CheckpointPhase,
    CheckpointTiming,
    GenerationMembers,
    StoreRecord,
)
from topology_master.core.events import LogNote, WriteManifest, WriteResult

TASKS = {1: 11, 2: 22}
DONE = WriteResult.DONE


def running(record: CheckpointRecord | None = None) -> CheckpointCoordinator:
    coordinator = CheckpointCoordinator(1_000, 500, initial_manifest("id"), record or CheckpointRecord(1))
    coordinator.start_generation(GenerationMembers(NO_PLAN, TASKS, {}), 0)
    return coordinator


def begun(coordinator: CheckpointCoordinator, now_ms: float = 1_000) -> int:
    write = coordinator.run(now_ms)
    assert isinstance(write, StoreRecord)
    coordinator.finish_write(DONE, now_ms)
    coordinator.check()
    return write.record.begun


def part(task: int, number: int, incarnation: int | None = None) -> StatePart:
    return StatePart("count", task, incarnation or TASKS[task], 1, number, 0, 10, "sum")


def hear_all(coordinator: CheckpointCoordinator, number: int, *, stored: bool = False) -> None:
    for task, incarnation in TASKS.items():
        parts = (part(task, number),) if stored else ()
        coordinator.heard(task, incarnation, TaskReport(1, True, number, parts))


def test_checkpoint_runs_from_begin_to_complete() -> None:
    coordinator = running()
    assert coordinator.run(999) is None
    assert begun(coordinator) == 1
    assert (coordinator.wish.under, coordinator.wish.over, coordinator.waits_for) == (1, 0, (1, 2))
    assert (coordinator.wish.turn, coordinator.wish.generation, coordinator.wish.timeout_ms) == (0, 1, 500)
    assert (coordinator.under_way(1_050), coordinator.is_aligned) == ((1, 50), False)
    coordinator.heard(1, 11, TaskReport(1, True, 1))
    assert coordinator.run(1_100) is None
    assert (coordinator.wish.over, coordinator.waits_for) == (0, (2,))
    hear_all(coordinator, 1)
    assert coordinator.run(1_200) is None
    assert (coordinator.wish.under, coordinator.wish.over, coordinator.wish.complete) == (0, 1, 0)
    assert coordinator.is_aligned
    hear_all(coordinator, 1, stored=True)
    write = coordinator.run(1_300)
    assert isinstance(write, WriteManifest)
    assert coordinator.run(1_300) is None, "one write at a time"
    coordinator.finish_write(DONE, 1_300)
    assert coordinator.run(1_300) == StoreRecord(CheckpointRecord(1, 1, 1), CheckpointRecord(1, 1, 0))
    coordinator.finish_write(DONE, 1_400)
    assert coordinator.wish.complete == 1
    assert coordinator.completed is write.manifest
    assert coordinator.timing == CheckpointTiming(1_000, 200, 2)
    assert (coordinator.under_way(1_500), coordinator.is_aligned, coordinator.waits_for) == ((0, 0.0), False, ())
    assert coordinator.notes() == []
    assert coordinator.run(2_399) is None
    assert begun(coordinator, 2_400) == 2


def test_phases_of_a_checkpoint_that_is_held_and_released() -> None:
    coordinator = CheckpointCoordinator(1_000, 500, initial_manifest("id"), CheckpointRecord(1))
    phases = [coordinator.phase]
    coordinator.start_generation(GenerationMembers(NO_PLAN, TASKS, {}), 0)
    phases.append(coordinator.phase)
    coordinator.ask(hold=True)
    coordinator.run(100)
    phases.append(coordinator.phase)
    coordinator.finish_write(DONE, 100)
    phases.append(coordinator.phase)
    hear_all(coordinator, 1)
    coordinator.run(200)
    phases.append(coordinator.phase)
    hear_all(coordinator, 1, stored=True)
    coordinator.run(300)
    phases.append(coordinator.phase)
    coordinator.finish_write(DONE, 300)
    coordinator.run(300)
    phases.append(coordinator.phase)
    coordinator.finish_write(DONE, 400)
    phases.append(coordinator.phase)
    coordinator.release()
    assert phases == [
        CheckpointPhase.INACTIVE,
        CheckpointPhase.IDLE,
        CheckpointPhase.NUMBERING,
        CheckpointPhase.ALIGNING,
        CheckpointPhase.WRITING_PARTS,
        CheckpointPhase.WRITING_MANIFEST,
        CheckpointPhase.COMMITTING,
        CheckpointPhase.HELD,
    ]
    assert coordinator.phase is CheckpointPhase.IDLE


def test_only_named_processes_of_the_generation_count() -> None:
    coordinator = running()
    number = begun(coordinator)
    coordinator.heard(1, 10, TaskReport(1, True, number))
    coordinator.heard(1, 11, TaskReport(0, True, number))
    coordinator.heard(3, 33, TaskReport(1, True, number))
    assert coordinator.waits_for == (1, 2)
    hear_all(coordinator, number)
    coordinator.run(1_100)
    coordinator.heard(1, 11, TaskReport(1, True, number, (part(1, number, incarnation=10),)))
    assert coordinator.waits_for == (1, 2)


def test_decline_cancels_and_extends_the_timeout() -> None:
    coordinator = running()
    number = begun(coordinator)
    coordinator.heard(2, 22, TaskReport(1, True, declined=number, declined_why="disk full"))
    assert (coordinator.wish.over, coordinator.wish.under, coordinator.wish.timeout_ms) == (number, 0, 1_000)


def test_decline_after_the_completing_write_is_ignored() -> None:
    coordinator = running()
    number = begun(coordinator)
    hear_all(coordinator, number, stored=True)
    coordinator.run(1_100)
    coordinator.finish_write(DONE, 1_100)
    assert isinstance(coordinator.run(1_100), StoreRecord)
    coordinator.heard(2, 22, TaskReport(1, True, declined=number, declined_why="late"))
    coordinator.finish_write(DONE, 1_200)
    assert coordinator.wish.complete == number


def test_checkpoint_is_cancelled_if_a_task_does_not_align() -> None:
    coordinator = running()
    number = begun(coordinator)
    coordinator.heard(1, 11, TaskReport(1, True, number))
    assert coordinator.run(2_000) is None
    assert coordinator.wish.under == number
    assert coordinator.run(2_001) is None
    assert coordinator.wish.over == number
    assert "task 2 has not aligned in time" in coordinator.notes()[0].text


def test_new_master_ends_the_begun_checkpoint() -> None:
    assert running(CheckpointRecord(1, 7, 5)).wish.over == 7
    coordinator = running()
    number = begun(coordinator)
    coordinator.read(CheckpointRecord(1, number + 1, 0), initial_manifest("id"))
    assert coordinator.wish.over == number + 1


def test_write_without_an_answer_is_read_back() -> None:
    def completing() -> tuple[CheckpointCoordinator, Manifest]:
        coordinator = running()
        hear_all(coordinator, begun(coordinator), stored=True)
        write = coordinator.run(1_100)
        assert isinstance(write, WriteManifest)
        coordinator.finish_write(DONE, 1_100)
        coordinator.run(1_100)
        return coordinator, write.manifest

    coordinator, manifest = completing()
    coordinator.read(CheckpointRecord(1, 1, 1), manifest)  # the write was done
    assert coordinator.wish.complete == 1
    coordinator.finish_write(WriteResult.UNKNOWN, 1_200)
    assert (coordinator.completed, coordinator.wish.over) == (manifest, 1)
    coordinator, _ = completing()
    coordinator.finish_write(WriteResult.UNKNOWN, 1_200)
    coordinator.read(CheckpointRecord(1, 1, 0), initial_manifest("id"))  # it was not
    assert (coordinator.wish.complete, coordinator.wish.over) == (0, 1)


def test_hold_keeps_tasks_halted_until_release() -> None:
    coordinator = running()
    coordinator.ask(hold=True)
    hear_all(coordinator, begun(coordinator, 1), stored=True)
    coordinator.run(2)
    coordinator.finish_write(DONE, 2)
    coordinator.run(2)
    coordinator.finish_write(DONE, 3)
    assert (coordinator.quiet, coordinator.wish.over, coordinator.wish.complete) == (1, 0, 1)
    assert coordinator.run(9_999) is None, "nothing is begun meanwhile"
    coordinator.check()
    coordinator.release()
    assert (coordinator.quiet, coordinator.wish.over) == (0, 1)
    assert begun(coordinator, 9_999) == 2


def test_new_generation_ends_the_running_checkpoint() -> None:
    coordinator = running()
    number = begun(coordinator)
    coordinator.read(replace(coordinator.record, generation=2), initial_manifest("id"))
    assert coordinator.phase is CheckpointPhase.INACTIVE
    assert (coordinator.wish.generation, coordinator.wish.over, coordinator.wish.under) == (2, number, 0)
    assert coordinator.run(9_999) is None, "nobody runs yet"


def test_interval_after_a_cancel_counts_from_the_begin() -> None:
    coordinator = running()
    number = begun(coordinator, 1_000)
    coordinator.heard(2, 22, TaskReport(1, True, declined=number, declined_why="disk full"))
    assert coordinator.run(1_999) is None, "what comes again would stop everybody all the time"
    assert begun(coordinator, 2_000) == number + 1


def test_parts_of_different_turns_cancel() -> None:
    coordinator = running()
    number = begun(coordinator)
    hear_all(coordinator, number)
    coordinator.run(1_100)
    coordinator.heard(1, 11, TaskReport(1, True, number, (part(1, number),)))
    coordinator.heard(2, 22, TaskReport(1, True, number, (replace(part(2, number), turn=3),)))
    assert coordinator.run(1_100) is None
    assert coordinator.cancelled == 1
    assert "of no one checkpoint" in coordinator.cancelled_why


def test_repeated_cancels_are_reported_until_one_completes() -> None:
    coordinator, now = running(), 0
    for number in range(1, 2 * CANCELLED_IN_A_ROW + 2):
        now += 1_000
        assert begun(coordinator, now) == number
        if number == CANCELLED_IN_A_ROW + 2:
            hear_all(coordinator, number, stored=True)
            for _ in range(2):
                coordinator.run(now)
                coordinator.finish_write(DONE, now)
            assert coordinator.wish.complete == number
            assert coordinator.notes() == []
            continue
        coordinator.heard(1, 11, TaskReport(1, True, declined=number, declined_why="full"))
        why = "task 1 declines: full"
        in_a_row = number if number < CANCELLED_IN_A_ROW + 2 else number - CANCELLED_IN_A_ROW - 2
        told = [LogNote(f"checkpoint {number} is cancelled: {why}", "__checkpoints_cancelled")]
        if in_a_row >= CANCELLED_IN_A_ROW:
            told.append(LogNote(f"{in_a_row} checkpoints in a row were cancelled; the last one: {why}"))
        assert coordinator.notes() == told
        cancelled = number - (number > CANCELLED_IN_A_ROW + 2)
        assert (coordinator.cancelled, coordinator.cancelled_last, coordinator.cancelled_why) == (
            cancelled, number, why,
        )  # fmt: skip
