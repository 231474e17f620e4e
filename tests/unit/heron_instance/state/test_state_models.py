"""Undoable mapping, ownership of splits and expiry of entries, each compared with an exhaustive model."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.state.keyed_state import SPARE_ENTRIES, ExpiryQueue
from heron_instance.core.state.task_state import Listed, SplitNotOwned, SplitPositions, UndoableMapping
from heron_runtime.model.keys import group_of

CHANGES = st.lists(
    st.tuples(st.sampled_from(("set", "append", "append", "delete", "begin", "keep", "undo")), st.sampled_from("abc")),
    min_size=15,  # in fewer steps, few changes are undone
    max_size=40,
)


@given(CHANGES)
def test_undo_reverts_changes_in_place(steps: list[tuple[str, str]]) -> None:
    mapping, model = UndoableMapping(), dict[Any, Any]()
    before: dict[Any, Any] | None = None
    for number, (what, key) in enumerate(steps):
        match what:
            case "set":
                mapping[key] = [number]
                model[key] = [number]
            case "append" if key in model:
                mapping[key].append(number)
                model[key].append(number)
            case "append" | "delete" if key not in model:
                with pytest.raises(KeyError):
                    mapping[key].append(number) if what == "append" else mapping.__delitem__(key)
            case "delete":
                del mapping[key]
                del model[key]
            case "begin":
                mapping.begin()
                before = copy.deepcopy(model)
            case "keep":
                mapping.keep()
                before = None
            case "undo":
                mapping.undo()
                model, before = (model if before is None else before), None
        assert (key in mapping) == (key in model)
        assert len(mapping) == len(model)
        assert sorted(mapping) == sorted(model)
        assert eval(repr(mapping)) == model


TASKS = (3, 5, 9)
NAMES = [f"part-{n}" for n in range(8)]


@given(
    st.dictionaries(st.sampled_from(NAMES), st.one_of(st.none(), st.integers(0, 20))),
    st.dictionaries(st.sampled_from(NAMES), st.integers()),
)
def test_each_split_has_one_owner_and_snapshots_hold_listed_splits(
    numbers: dict[str, int | None], restored: dict[str, int]
) -> None:
    listed: list[Listed] = [name if number is None else (name, number) for name, number in numbers.items()]
    for task in TASKS:
        positions = SplitPositions(task, [9, 3, 5], lambda: listed)
        positions.load(restored.items())
        mine = [
            name
            for name, number in numbers.items()
            if TASKS[(group_of(name) if number is None else number) % len(TASKS)] == task
        ]
        assert positions.owned() == mine
        assert [name for name in NAMES if name in numbers and positions.owns(name)] == sorted(mine)
        assert positions.taken() == [(name, restored[name]) for name in mine if name in restored]
        for name in NAMES:
            if positions.owns(name):
                positions[name] = -1
                assert positions[name] == -1
            else:
                with pytest.raises(SplitNotOwned, match=f"split '{name}' is read by another task"):
                    positions[name] = -1
        owned = {name for name in NAMES if positions.owns(name)}
        assert (set(positions), len(positions)) == (owned, len(owned))
        for name in owned:
            del positions[name]
        assert (list(positions), len(positions), positions.taken()) == ([], 0, [])


STEPS = st.lists(
    st.tuples(st.sampled_from(("set", "set", "forget", "wait", "back")), st.integers(0, 5), st.integers(0, 9)),
    max_size=60,
)


@given(STEPS)
def test_entry_expires_once_at_its_latest_time(steps: list[tuple[str, int, int]]) -> None:
    wall = [100.0]
    expiry, ends, now = ExpiryQueue(lambda: wall[0]), dict[Any, float](), 100.0
    assert expiry.now == 100.0
    for what, index, seconds in steps:
        if what == "set":
            expiry.set(index, now + seconds)
            ends[index] = now + seconds
        elif what == "forget":
            expiry.forget(index)
            ends.pop(index, None)
        else:
            wall[0] += seconds if what == "wait" else -seconds
            now = max(now, wall[0])
            due = expiry.pass_time()
            assert expiry.now == now, "time never goes back"
            assert sorted(due) == sorted(index for index, at in ends.items() if at <= now)
            ended = [ends.pop(index) for index in due]
            assert ended == sorted(ended), "the soonest first"
        assert expiry.times == ends
        expiry.check()


def test_repeated_updates_of_an_entry_keep_the_heap_small() -> None:
    expiry = ExpiryQueue(lambda: 0.0)
    for n in range(10 * SPARE_ENTRIES):
        expiry.set("one", n)
        expiry.check()
    expiry.forget("one")
    assert expiry.times == {}
    expiry.check()
