"""State of a task: what is kept, restored, merged and exposed to user code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from heron_instance.core.bolt_executor import BoltExecutor
from heron_instance.core.spout_executor import SpoutExecutor
from heron_instance.core.state.barriers import SnapshotRequest
from heron_instance.core.state.checkpointer import TaskCheckpointer
from heron_instance.core.state.task_state import (
    RestoredState,
    SplitNotOwned,
    SplitPositions,
    StateSetup,
    TaskState,
    UnclaimedState,
)
from heron_instance.core.task import ExecutorSetup
from heron_runtime.model.checkpoints import AdoptionMode, CheckpointCommand
from heron_runtime.model.checkpoints import StatePart as WrittenPart
from heron_runtime.model.plan import Generation, GenerationMember, GenerationPhase, PhysicalPlan, task_participant
from heronry.api.component import Bolt, Spout
from tests.support.harness.executors import SHUFFLE, Counts, Part, fields, make_plan


def midnight() -> float:
    return 0.0


class Source(Spout):
    listed: list[Any] = [("a", 0), ("b", 1), ("c", 2), ("d", 3)]

    def splits(self) -> list[Any]:
        return self.listed


class Plain(Spout):
    pass


class Keyed(Bolt):
    pass


class OwnState(Bolt):
    state = "its own"


def plan_of(generation: Generation | None = None) -> PhysicalPlan:
    plan = make_plan(
        {
            "s": Part(Source, 2, {"default": ["k"]}),
            "k": Part(Keyed, 2, {"default": ["k"]}, [("s", "default", fields("k"))]),
            "p": Part(Keyed, 1, {}, [("k", "default", SHUFFLE)]),
        }
    )
    return replace(plan, generation=generation or Generation(1, GenerationPhase.RESTORING))


def stateful(
    component: Any, task: int, restored: RestoredState | None = None, incarnation: int = 7
) -> TaskCheckpointer:
    setup = ExecutorSetup(
        component, plan_of(), task, incarnation, np.random.default_rng(0), Counts(), midnight, midnight,
        state=StateSetup(lambda snapshot: None, 1000.0, restored or RestoredState()),
    )  # fmt: skip
    executor = SpoutExecutor(setup) if isinstance(component, Spout) else BoltExecutor(setup)
    assert executor.checkpointer is not None
    executor.checkpointer.load_state()
    return executor.checkpointer


def test_positions_belong_to_the_owners_of_splits() -> None:
    first, second = (SplitPositions(task, (1, 2), Source().splits) for task in (1, 2))
    assert (first.owned(), second.owned()) == (["a", "c"], ["b", "d"])
    first["a"] = 5
    with pytest.raises(SplitNotOwned, match="owned_splits"):
        first["b"] = 1
    assert dict(first) == {"a": 5}
    first["c"] = 1
    assert len(first) == 2
    del first["c"]
    again = SplitPositions(1, (1, 2, 3), Source().splits)
    again.load([("a", 5), ("b", 7), ("d", 9), ("gone", 1)])
    assert again.owned() == ["a", "d"], "with three tasks another one reads d"
    assert (again["a"], again["d"]) == (5, 9)
    assert len(again) == len(list(again)) > 0
    assert again.taken() == [("a", 5), ("d", 9)], "what is not listed any more is forgotten"


def test_kind_of_keyed_state_depends_on_the_component() -> None:
    plan = plan_of()
    assert isinstance(TaskState(plan, 1, Source(), RestoredState(), midnight).keyed, SplitPositions)
    assert TaskState(plan, 1, Plain(), RestoredState(), midnight).keyed is None
    keyed, plain = (
        TaskState(plan, 3, Keyed(), RestoredState(), midnight),
        TaskState(plan, 5, Keyed(), RestoredState(), midnight),
    )
    assert keyed.by_key is not None
    assert keyed.groups
    assert plain.keyed is None


def test_restored_positions_without_splits_are_rejected() -> None:
    own = {1: [(("split", "a"), 5)]}
    for adopted in (AdoptionMode.NO, AdoptionMode.WHOLE):
        with pytest.raises(
            UnclaimedState, match=r"the checkpoint holds split positions \(for example 'a'\), but splits"
        ):
            TaskState(plan_of(), 1, Plain(), RestoredState(4, own=own, adopted=adopted), midnight)
    assert TaskState(plan_of(), 1, Plain(), RestoredState(4, own=own, adopted=AdoptionMode.IN_PART), midnight).own == {}


def test_user_code_sees_its_state_and_may_not_replace_it() -> None:
    component = Keyed()
    made = stateful(component, 5)
    component.state["n"] = 1
    assert made._task.state.take(1, 0)[0] == [(("state", "n"), 1)]
    with pytest.raises(AttributeError, match=r"has no self\.keyed"):
        _ = component.keyed
    component.state = {}
    with pytest.raises(TypeError, match=r"assigned a new object to self\.state"):
        made.prepare(SnapshotRequest(1, 0))
    other = OwnState()
    stateful(other, 5).prepare(SnapshotRequest(1, 0))
    assert other.state == "its own"


def test_only_the_named_incarnation_runs() -> None:
    for incarnation, runs in ((7, True), (8, False)):
        made = stateful(Keyed(), 3, incarnation=incarnation)
        running = plan_of(Generation(1, GenerationPhase.RUNNING, members=(GenerationMember(task_participant(3), 7),)))
        made.follow(running)
        assert made.is_halted, "it has not been linked yet"
        made.linked()
        made.follow(replace(running, generation=replace(running.generation, number=2)))
        assert made.is_halted, "another generation"
        made.follow(running)
        assert made.is_halted is not runs


def test_keyed_state_learns_of_complete_checkpoints_once_in_its_generation() -> None:
    made = stateful(Keyed(), 3)
    heard: list[int] = []
    made._task.state.completed = heard.append  # type: ignore[method-assign]
    made.linked()
    made.apply_command(CheckpointCommand(1, complete=1))
    assert heard == [], "it does not run yet"
    made.follow(plan_of(Generation(1, GenerationPhase.RUNNING, members=(GenerationMember(task_participant(3), 7),))))
    for complete in (0, 4, 4, 3, 6):
        made.apply_command(CheckpointCommand(1, complete=complete))
        made.apply_command(CheckpointCommand(2, complete=9))
    assert heard == [4, 6]


def test_task_without_keys_ignores_complete_checkpoints() -> None:
    heard: list[int] = []
    for task, keyed in ((3, True), (5, False)):
        kept = TaskState(plan_of(), task, Keyed(), RestoredState(), midnight)
        assert (kept.by_key is not None) is keyed
        if kept.by_key is not None:
            kept.by_key.completed = heard.append  # type: ignore[method-assign]
        kept.completed(8)
    assert heard == [8]


def test_own_rows_of_other_tasks_are_not_restored() -> None:
    restored = RestoredState(4, own={5: [(("state", "n"), 1)], 6: [(("state", "n"), 2), (("state", "m"), 3)]})
    assert TaskState(plan_of(), 5, Keyed(), restored, midnight).own == {"n": 1}


def test_first_task_merges_own_state_of_removed_tasks() -> None:
    own = {5: [(("state", "n"), 1)], 8: [(("state", "n"), 3)], 6: [(("state", "n"), 2)], 7: []}
    merged: list[Any] = []

    class Merges(Keyed):
        def merge_state(self, states: list[dict[str, int]]) -> None:
            merged.extend([dict(self.state), *states])

    made = stateful(Merges(), 5, RestoredState(4, own=own))
    assert merged == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert made._task.state.own == {"n": 1}
    with pytest.raises(TypeError, match=r"(?s)p: 2 removed tasks have left a self\.state.*define merge_state"):
        stateful(Keyed(), 5, RestoredState(4, own=own))
    merged.clear()
    gone = {9: own[8]}
    stateful(Merges(), 4, RestoredState(4, own=gone))
    assert not merged, "the first task of its component does, and nobody else"
    stateful(Keyed(), 3, RestoredState(4, own={9: []}))


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("may", [True, False])
def test_frame_is_accepted_while_running_and_before_its_senders_barrier(
    runs: bool, may: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, counted = stateful(Keyed(), 3), list[int]()
    monkeypatch.setattr(made, "_runs", runs)
    monkeypatch.setattr(made._participant, "may_take", lambda source: may)
    monkeypatch.setattr(made._participant, "taken", counted.append)
    assert made.may_take(1) == (runs and may)
    assert counted == ([1] if runs and may else []), "and then it counts"


def test_part_that_is_not_written_in_time_is_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    made, given_up = stateful(Keyed(), 3), list[tuple[int, str]]()
    monkeypatch.setattr(made._participant, "decline", lambda number, why: given_up.append((number, why)))
    made._writing[4] = 5000.0
    made.tick(6000.0)
    assert given_up == []
    made.tick(6600.0)
    assert given_up == [(4, "its part was not written within 2 s")]


def test_restore_callbacks_run_before_initialize() -> None:
    heard: list[Any] = []

    class Heard(Keyed):
        def pre_restore(self, checkpoint_id: str) -> None:
            heard.append(("pre_restore", checkpoint_id))

        def init_state(self, state: dict[str, int]) -> None:
            heard.append(("init_state", dict(state), state is self.state))

    stateful(Heard(), 5, RestoredState(4, own={5: [(("state", "n"), 1)]}))
    assert heard == [("pre_restore", "4"), ("init_state", {"n": 1}, True)]
    heard.clear()
    stateful(Heard(), 5)
    assert heard == [("init_state", {}, True)], "there is nothing to go on from"


def running(task: int = 1) -> TaskCheckpointer:
    """Return the checkpointer of a spout's task in a running generation."""
    made = stateful(Source(), task)
    made.linked()
    members = tuple(GenerationMember(task_participant(each), 7) for each in plan_of().tasks())
    made.follow(plan_of(Generation(1, GenerationPhase.RUNNING, members=members)))
    return made


@pytest.mark.parametrize("is_written", [True, False])
def test_declined_checkpoint_leaves_no_deadline(is_written: bool) -> None:
    task = running()
    task.apply_command(CheckpointCommand(1, under=1, turn=0, timeout_ms=1000.0))
    align = task.due()
    assert align is not None
    assert task.deadline_ms() is None
    task.take(align, 500.0)
    if is_written:
        task.on_part(WrittenPart("s", 1, 7, 1, 1, 0, 0, ""))
    assert task.deadline_ms() == 1500.0
    task.tick(1500.0)
    assert (task.report.declined, task.deadline_ms()) == (0, 1500.0)
    task.tick(1501.0)
    assert (task.report.declined, task.deadline_ms()) == (1, None), (
        "it waits for the master, without looking at the time"
    )
    assert task.is_halted
    task.apply_command(CheckpointCommand(1, under=2, turn=0, over=1, timeout_ms=1000.0))
    align = task.due()
    assert align is not None
    task.take(align, 9000.0)
    assert task.deadline_ms() == 10_000.0
