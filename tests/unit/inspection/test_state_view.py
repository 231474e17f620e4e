"""State section of a status, and the resulting state word: pure functions of plan and master answer."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from heron_cli.commands.status import describe_tasks_state
from heron_cli.wait import summarize_failure
from heron_control.inspection.status_document import from_document, to_document
from heron_control.inspection.tasks_state import CURE, names, read_tasks_state, state_word
from heron_control.inspection.topology_status import ProcessReplies, TopologyStatus, as_json, topology_status
from heron_runtime.model.plan import (
    Generation,
    GenerationPhase,
    PhysicalPlan,
    PlanVersion,
    stream_manager_of,
    task_participant,
)
from heron_runtime.model.records import TopologyRecord
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.container import ContainerStatus, SchedulerStatus
from heron_runtime.wire.master import CheckpointStatus, CheckpointSummary, MasterStatus
from tests.support.stub_processes import all_processes, definition, execution, packing, process

RUNNING = Generation(3, GenerationPhase.RUNNING, 12, cause="task 2: it was restarted")
LAST = CheckpointSummary(12, 1_000.0, 120.4, 14.2, 12_345, 3)


def record(generation: Generation = RUNNING, mode: str = "EFFECTIVELY_ONCE") -> TopologyRecord:
    made = replace(definition(), config={"topology.reliability.mode": mode})
    plan = PhysicalPlan(PlanVersion(1, 1), 1, made, packing(), generation=generation)
    return TopologyRecord(made, packing(), plan, execution("/home"), None, None, ())


def master(state: CheckpointStatus, *, leading: bool = True) -> MasterStatus:
    return MasterStatus(1, TopologyState.RUNNING, PlanVersion(1, 1), leading=leading, tasks_state=state)


def status(
    state: CheckpointStatus | None, generation: Generation = RUNNING, mode: str = "EFFECTIVELY_ONCE"
) -> TopologyStatus:
    told = SchedulerStatus(process("heron_scheduler", "heron_scheduler", 0), ())
    containers = {
        n: ContainerStatus(n, "h", 1, (process("heron_container", f"heron_container-{n}", n), *all_processes(n)))
        for n in (0, 1, 2)
    }
    answers = ProcessReplies(told, containers, master(state) if state is not None else None)
    return topology_status(record(generation, mode), answers, 1_003.0)


def texts(state: CheckpointStatus | None, generation: Generation = RUNNING) -> list[str]:
    found = read_tasks_state(record(generation), master(state) if state is not None else None)
    assert found is not None
    return [text for text, _ in describe_tasks_state(found, 1_003.0)]


def test_other_modes_show_no_state() -> None:
    assert read_tasks_state(record(mode="ATLEAST_ONCE"), master(CheckpointStatus(1, GenerationPhase.FAILED))) is None
    shown = status(CheckpointStatus(), Generation(0, GenerationPhase.RUNNING), "ATLEAST_ONCE")
    assert (shown.state, shown.tasks_state) == ("running", None)
    assert "tasks_state" not in as_json(shown)


def test_running_topology_shows_generation_and_last_checkpoint() -> None:
    state = CheckpointStatus(3, GenerationPhase.RUNNING, RUNNING.cause, 12, last=LAST, restores=2, phase_ms=65_000)
    assert texts(state) == [
        "state: generation 3 runs for 1 min; restores: 2, the last after task 2: it was restarted",
        "last complete checkpoint: 12, 3 s ago, in 120 ms, bubble 14 ms, 12.1 KiB, "
        "waited longest for container_2_count_3",
    ]
    shown = status(state)
    assert (shown.state, shown.cause()) == ("running", "")
    document = as_json(shown)["tasks_state"]
    assert document["last"]["completed_at"] == "1970-01-01T00:16:40.000+00:00"
    assert (document["last"]["number"], document["phase"], document["restores"]) == (12, "running", 2)


@pytest.mark.parametrize(
    ("quiet", "waits", "said"),
    [
        (False, (2, 3), "waiting for container_2_count_2, container_2_count_3 to align"),
        (True, (3,), "waiting for container_2_count_3 to write"),
        (True, (), "writing its manifest"),
    ],
)
def test_running_checkpoint_names_the_tasks_it_waits_for(quiet: bool, waits: tuple[int, ...], said: str) -> None:
    state = CheckpointStatus(3, GenerationPhase.RUNNING, under=13, under_ms=1_540, all_quiet=quiet, waits_for=waits)
    assert texts(state)[1:] == ["last complete checkpoint: none", f"checkpoint 13 began 1.5 s ago: {said}"]


def test_cancelled_and_inherited_checkpoints_are_shown() -> None:
    state = CheckpointStatus(
        3,
        GenerationPhase.RUNNING,
        last=CheckpointSummary(12, bytes=12),
        cancelled=2,
        cancelled_why="task 3 declines: full",
    )
    assert texts(state)[1:] == [
        "last complete checkpoint: 12, 12 B, taken under an earlier topology master",
        "checkpoints cancelled: 2, the last one: task 3 declines: full",
    ]


def test_restoring_topology_shows_source_cause_and_missing_tasks() -> None:
    missing = (stream_manager_of(2), task_participant(1))
    state = CheckpointStatus(4, GenerationPhase.RESTORING, "task 2: it was restarted", 12, missing, phase_ms=4_200)
    said = (
        "generation 4 is restored from checkpoint 12 for 4 s, after task 2: it was restarted; "
        "waits for stream_manager-2, container_1_word_1"
    )
    assert texts(state)[0] == f"state: {said}"
    shown = status(state)
    assert (shown.state, shown.cause()) == ("restoring", said)


def test_failed_topology_shows_cause_and_remedy() -> None:
    state = CheckpointStatus(9, GenerationPhase.FAILED, "task 2: ValueError: 5", 12)
    shown = status(state)
    said = f"generation 9 has failed: task 2: ValueError: 5; {CURE}"
    assert (shown.state, shown.cause()) == ("failing", said)
    assert texts(state)[0] == f"state: {said}"


def test_waiting_command_receives_the_cause_of_a_failure() -> None:
    failed = status(CheckpointStatus(9, GenerationPhase.FAILED, "task 2: ValueError: 5", 12))
    assert summarize_failure(failed, starter_lives=True) == "generation 9 has failed: task 2: ValueError: 5"
    restored = status(CheckpointStatus(4, GenerationPhase.RESTORING, "task 2 died", 12, (task_participant(2),)))
    assert summarize_failure(restored, starter_lives=True).endswith("after task 2 died; waits for container_2_count_2")


@pytest.mark.parametrize(
    ("generation", "word"),
    [
        (Generation(9, GenerationPhase.FAILED, cause="x"), "failing"),
        (Generation(4, GenerationPhase.RESTORING, 12), "restoring"),
        (Generation(1, GenerationPhase.RESTORING), "starting"),
        (RUNNING, "running"),
    ],
)
def test_stored_plan_is_shown_while_the_master_is_silent(generation: Generation, word: str) -> None:
    shown = status(None, generation)
    assert shown.state == word
    assert shown.tasks_state is not None
    assert (shown.tasks_state.phase, shown.tasks_state.told) == (generation.phase, False)
    assert "the topology master does not answer" in texts(None, generation)[-1]
    standby = read_tasks_state(record(generation), master(CheckpointStatus(), leading=False))
    assert standby == shown.tasks_state, "a standby knows nothing"


def test_storage_fault_is_shown_and_degrades() -> None:
    shown = status(CheckpointStatus(3, GenerationPhase.RUNNING, storage_fault="checkpoint 12: no such file"))
    assert (shown.state, shown.cause()) == ("degraded", "checkpoints cannot be read: checkpoint 12: no such file")
    shown = status(CheckpointStatus(3, GenerationPhase.RESTORING, storage_fault="checkpoint 12: no such file"))
    assert shown.cause().endswith("; checkpoint 12: no such file")


@pytest.mark.parametrize("word", ["running", "paused", "degraded", "starting", "failing", "killed"])
@pytest.mark.parametrize("phase", [GenerationPhase.FAILED, GenerationPhase.RESTORING])
def test_restoring_or_failed_topology_is_never_shown_as_running(word: str, phase: GenerationPhase) -> None:
    for generation in (1, 5):
        found = read_tasks_state(record(), master(CheckpointStatus(generation, phase, "x")))
        assert state_word(word, found) not in ("running", "paused", "degraded")
        assert word not in ("killed", "failing") or state_word(word, found) == word


def test_state_view_survives_json() -> None:
    state = CheckpointStatus(
        3, GenerationPhase.RUNNING, "x", 12, last=LAST, under=13, under_ms=5, waits_for=(3,), phase_ms=1
    )
    for made in (status(state), status(None)):
        back = from_document(json.loads(json.dumps(to_document(made))))
        assert back.tasks_state == made.tasks_state


def test_long_lists_of_names_are_shortened() -> None:
    assert names(["a", "b"]) == "a, b"
    assert names(list("abcdefg")) == "a, b, c, d, e and 2 more"
