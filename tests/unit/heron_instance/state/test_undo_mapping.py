"""Mapping whose changes can be undone, compared with a model."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.state.task_state import UndoableMapping

STEPS = st.lists(
    st.tuples(st.sampled_from(("set", "append", "append", "delete", "begin", "keep", "undo")), st.sampled_from("abc")),
    max_size=40,
)


@given(STEPS)
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
