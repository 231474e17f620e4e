"""Generation controller: when to restore and when to run."""

from __future__ import annotations

from heron_runtime.model.checkpoints import TaskReport
from heron_runtime.model.plan import Generation, GenerationMember, GenerationPhase, stream_manager_of, task_participant
from topology_master.core.recovery import MOST_FAILURES, GenerationController

ONE = task_participant(1)
TWO = task_participant(2)
STMGR = stream_manager_of(1)
PLACES = (ONE, TWO, STMGR)


def restoring(number: int = 1, failures: int = 0) -> GenerationController:
    generations = GenerationController(Generation(number, GenerationPhase.RESTORING, 0, failures=failures))
    generations.read(generations.generation, PLACES)
    return generations


def running() -> GenerationController:
    generations = restoring()
    for place in PLACES:
        generations.heard(place, 5, TaskReport(1, restored=True))
    wanted = generations.wanted(0)
    assert wanted is not None
    generations.read(wanted, PLACES)
    generations.check()
    return generations


def test_generation_runs_when_all_have_restored_and_names_them() -> None:
    generations = restoring()
    for place in (ONE, TWO):
        generations.heard(place, 5, TaskReport(1, restored=True))
    generations.heard(STMGR, 7, TaskReport(1))  # present, but not restored yet
    assert generations.missing == (STMGR,)
    assert generations.wanted(0) is None
    generations.heard(STMGR, 5, TaskReport(0, restored=True))  # of another generation
    assert generations.wanted(0) is None
    generations.heard(STMGR, 7, TaskReport(1, restored=True))
    wanted = generations.wanted(0)
    assert wanted == Generation(
        1, GenerationPhase.RUNNING, 0, (GenerationMember(STMGR, 7), GenerationMember(ONE, 5), GenerationMember(TWO, 5))
    )
    assert wanted.incarnation(STMGR) == 7
    assert wanted.incarnation(task_participant(9)) is None


def test_lost_or_restarted_process_begins_the_next_generation() -> None:
    for incarnation, report, why in (
        (6, TaskReport(0), "task 1: it was restarted"),
        (5, TaskReport(1, lost="3 frames were sent"), "task 1: 3 frames were sent"),
    ):
        generations = running()
        generations.heard(ONE, incarnation, report)
        wanted = generations.wanted(4)
        assert wanted == Generation(2, GenerationPhase.RESTORING, 4, cause=why)
    generations = running()
    generations.heard(ONE, 5, TaskReport(0, lost="of an older generation"))
    generations.heard(task_participant(9), 1, TaskReport(1, lost="of no place of the plan"))
    assert generations.wanted(4) is None
    generations.lost(STMGR, "silent for 30 s")
    wanted = generations.wanted(4)
    assert wanted is not None
    assert wanted.cause == "stream manager of container 1: silent for 30 s"


def test_second_fault_while_restoring_begins_another_generation() -> None:
    generations = restoring()
    generations.heard(ONE, 5, TaskReport(1, restored=True))
    generations.heard(ONE, 6, TaskReport(0))
    wanted = generations.wanted(0)
    assert wanted is not None
    assert (wanted.number, wanted.phase) == (2, GenerationPhase.RESTORING)
    generations = restoring()
    generations.heard(ONE, 5, TaskReport(0))
    generations.heard(ONE, 6, TaskReport(0))  # died before it opened anything
    assert generations.wanted(0) is None


def test_older_process_is_refused() -> None:
    generations = running()
    assert generations.refuses(ONE, 4)
    assert not generations.refuses(ONE, 5)
    assert not generations.refuses(ONE, 6)
    generations.heard(ONE, 8, TaskReport(0))
    assert generations.refuses(ONE, 7)


def test_repeated_user_failures_fail_the_topology_but_losses_do_not() -> None:
    generation = Generation(1, GenerationPhase.RESTORING)
    for round_ in range(MOST_FAILURES + 1):
        generations = GenerationController(generation)
        generations.read(generation, PLACES)
        generations.heard(ONE, 5, TaskReport(generation.number, failed="ValueError: 5"))
        wanted = generations.wanted(0)
        assert wanted is not None
        generation = wanted
        assert generation.failures == round_ + 1
    assert generation.phase is GenerationPhase.FAILED
    assert generation.cause == "task 1: ValueError: 5"
    generations = GenerationController(generation)
    generations.read(generation, PLACES)
    generations.heard(ONE, 6, TaskReport(generation.number, failed="again"))
    assert generations.wanted(0) is None, "it stays failed"
    wanted = generations.wanted(0, reason="heron restore")
    assert wanted == Generation(generation.number + 1, GenerationPhase.RESTORING, 0, cause="heron restore")
    generations = restoring(failures=MOST_FAILURES)
    generations.lost(ONE, "silent")
    wanted = generations.wanted(0)
    assert wanted is not None
    assert (wanted.phase, wanted.failures) == (GenerationPhase.RESTORING, MOST_FAILURES)


def test_complete_checkpoint_resets_the_failure_count() -> None:
    generations = restoring(failures=MOST_FAILURES)
    generations.heard(ONE, 5, TaskReport(1, failed="ValueError"))
    wanted = generations.wanted(complete=3)
    assert wanted is not None
    assert (wanted.phase, wanted.failures, wanted.restore_from) == (GenerationPhase.RESTORING, 1, 3)


def test_silent_process_allows_a_lower_incarnation() -> None:
    generations = restoring()
    generations.heard(ONE, 5, TaskReport(1, restored=True))
    generations.heard(TWO, 5, TaskReport(0))
    generations.silent(TWO, "silent")
    assert generations.wanted(0) is None, "it is waited for"
    assert not generations.refuses(TWO, 1), "its host's clock may have begun anew"
    generations.silent(ONE, "silent")
    wanted = generations.wanted(0)
    assert wanted is not None
    assert wanted.number == 2
    generations = running()
    generations.silent(TWO, "silent")
    assert generations.refuses(TWO, 4), "its member may still come back"
    assert generations.wanted(0) is not None
