"""Keyed state: ownership, undo, change detection, expiry and restore."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heron_instance.core.state.keyed_state import KeyedState, NotOwned
from heron_runtime.model.checkpoints import ALL_GROUPS
from heron_runtime.model.keys import UnsupportedKey, group_of
from tests.support.harness.state_history import run


@given(st.integers(0, 1_000_000))
@example(15)  # entries expire between checkpoints
@example(30)
def test_restore_returns_the_state_of_the_checkpoint(seed: int) -> None:
    run(seed)


def test_key_of_another_task_is_rejected_by_name() -> None:
    own = 1 << group_of("mine")
    state = KeyedState(own, where="counter, task 3")
    state["mine"] = 1
    for act in (lambda: state["theirs"], lambda: state.__setitem__("theirs", 2), lambda: "theirs" in state):
        with pytest.raises(NotOwned, match=r"counter, task 3: key 'theirs' belongs to another task"):
            act()
    with pytest.raises(UnsupportedKey, match="use tuple"):
        state[["a", "list"]] = 1
    assert dict(state) == {"mine": 1}


def test_key_of_several_fields_is_a_tuple() -> None:
    state = KeyedState(ALL_GROUPS, fields=2)
    state["a", 1] = "x"
    assert state["a", 1.0] == "x"
    assert list(state) == [("a", 1)]
    for wrong in ("a", ("a",), ("a", 1, 2), ["a", 1]):
        with pytest.raises(TypeError, match="2 fields"):
            state[wrong]


def test_undo_reverts_the_changes_of_a_record() -> None:
    state = KeyedState(ALL_GROUPS)
    state.update({"count": 1, "items": [1], "gone": "soon"})
    before = {"count": 1, "items": [1], "gone": "soon"}
    state.begin()
    state["count"] = 2
    state["count"] = 3
    mine = state["items"]
    mine.append(2)
    assert state["items"] is mine, "one copy for the whole record"
    state["new"] = {}
    del state["gone"]
    state.undo()
    assert dict(state) == before
    state.begin()
    state["items"].append(2)
    state.keep()
    assert state["items"] == [1, 2]
    state.undo()  # no record has begun
    assert state["items"] == [1, 2]


def test_peek_does_not_mark_a_change_and_item_access_does() -> None:
    state = KeyedState(ALL_GROUPS)
    state.update({"count": 1, "items": [1]})
    assert sum(len(block.rows) for block in state.take(1, 0)) >= 1
    state.completed(1)

    def taken(number: int) -> list[Any]:
        found = [row for block in state.take(number, 0) if not block.full for row in block.rows]
        state.completed(number)
        return found

    turn_zero_is_full = {key for key in ("count", "items") if group_of(key) % 8 == 0}
    assert not turn_zero_is_full, "these keys would be written anyway"
    assert state["count"] == state.peek("count") == 1
    assert state.peek("items") == [1]
    assert state.peek("none", 5) == 5
    assert taken(2) == []
    assert state["items"] == [1]
    assert taken(3) == [("items", [1])]


def test_keys_of_deleted_entries_are_released() -> None:
    state = KeyedState(ALL_GROUPS)
    for number in range(500_000, 500_000 + 20_000):
        state[number + 0.5] = 1
        del state[number + 0.5]
    list(state.take(1, 0))
    state.completed(1)
    kept = len(state._keys)
    assert kept < 5_000
    state.check()


def test_time_to_live_must_be_positive_and_finite() -> None:
    state = KeyedState(ALL_GROUPS)
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="a positive number of seconds"):
            state.put("key", 1, ttl=wrong)
    assert len(state) == 0
