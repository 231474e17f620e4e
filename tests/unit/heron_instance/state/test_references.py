"""``topology.stateful.check.references``: detection of changes that a checkpoint would lose."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.state.keyed_state import KeyedState, ReferenceChecker, StaleReference
from heron_instance.core.state.task_state import RestoredState, TaskState
from heron_runtime.model.checkpoints import ALL_GROUPS
from tests.unit.heron_instance.state.test_task_state import Keyed, plan_of

KEYS = ["a", "b", "c"]
CHECK = {"topology.stateful.check.references": True}


def told(state: KeyedState | TaskState) -> str:
    """Return the error text of the check, or an empty string."""
    try:
        state.check_references()
    except StaleReference as error:
        return str(error)
    return ""


class World:
    """Task whose user code keeps references to values. ``lost``: keys whose change no checkpoint will include."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.state = KeyedState(ALL_GROUPS)
        self.kept: dict[str, list[int]] = {}  # references that still belong to the state
        self.touched: set[str] = set()
        self.lost: set[str] = set()
        self.checkpoints = 0

    def step(self) -> None:
        key, do = self.draw.choice(KEYS), self.draw.random()
        if do < 0.2:
            self.kept[key] = self.state.setdefault(key, [0])
            self.touched.add(key)
            if self.draw.random() < 0.5:
                self.kept[key].append(self.draw.randint(0, 9))
        elif do < 0.3:
            self.state[key] = self.draw.choice([[0], [1, 2]])
            self.touched.add(key)
            self.kept[key] = self.state.peek(key)
        elif do < 0.4 and key in self.state:
            del self.state[key]
            self.touched.add(key)
            self.kept.pop(key, None)
        elif do < 0.5 and key in self.kept:
            self.kept[key].append(self.draw.randint(0, 9))
            if key not in self.touched:
                self.lost.add(key)
        elif do > 0.8:
            self.checkpoint()

    def checkpoint(self) -> None:
        lost = self.lost - self.touched
        assert bool(told(self.state)) == bool(lost), f"lost are {lost}"
        self.checkpoints += 1
        list(self.state.take(self.checkpoints, self.checkpoints))
        if self.draw.random() < 0.5:
            self.state.completed(self.checkpoints)
        self.touched.clear()
        self.lost.clear()


def run(seed: int) -> None:
    world = World(seed)
    for _ in range(60):
        world.step()
    world.checkpoint()


@given(st.integers(0, 1_000_000))
def test_check_reports_exactly_the_lost_changes(seed: int) -> None:
    run(seed)


def kept_state(config: dict[str, Any], restored: RestoredState | None = None) -> TaskState:
    plan = plan_of()
    object.__setattr__(plan.topology, "config", {**plan.topology.config, **config})
    made = TaskState(plan, 3, Keyed(), restored or RestoredState(), lambda: 0.0)
    assert made.by_key is not None
    made.by_key.groups = ALL_GROUPS
    return made


@pytest.mark.parametrize("config", [{}, CHECK])
def test_lost_changes_are_reported_only_if_the_check_is_enabled(config: dict[str, Any]) -> None:
    made = kept_state(config)
    assert made.by_key is not None
    reference = made.by_key.setdefault("alice", [1])
    assert not told(made)
    list(made.take(1, 1)[1])
    reference.append(2)
    said = told(made)
    assert bool(said) == bool(config)
    assert not said or "k, task 3: the value of key 'alice' in self.keyed has changed" in said


def test_lost_changes_of_restored_values_are_reported() -> None:
    before = kept_state(CHECK)
    assert before.by_key is not None
    before.by_key["alice"] = [1]
    blocks = list(before.by_key.take(1, 1))
    made = kept_state(CHECK, RestoredState(blocks=blocks))
    assert made.by_key is not None
    made.by_key.peek("alice").append(2)
    assert "alice" in told(made)


def test_check_ignores_values_that_cannot_be_pickled() -> None:
    class Odd:
        def __reduce__(self) -> Any:
            raise OSError("not now")

    checked = ReferenceChecker((int,))
    assert checked.lost({"a": Odd(), "b": [1]}, ()) == []
    assert checked.lost({"a": Odd(), "b": [2]}, ()) == ["b"]
