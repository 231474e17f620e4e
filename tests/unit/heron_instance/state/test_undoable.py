"""A mapping whose changes can be undone, whatever they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.state.undoable import UndoableMapping

changes = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 9)), max_size=12)


def change(mapping: UndoableMapping, made: list[tuple[str, int | None]]) -> None:
    """None deletes."""
    for key, value in made:
        if value is None:
            mapping.pop(key, None)
        else:
            mapping[key] = value


@given(changes, changes, changes)
def test_undone_it_is_what_it_was_and_kept_it_is_not(
    first: list[tuple[str, int | None]], kept: list[tuple[str, int | None]], undone: list[tuple[str, int | None]]
) -> None:
    mapping = UndoableMapping()
    change(mapping, first)
    mapping.begin()
    change(mapping, kept)
    mapping.keep()
    before = dict(mapping)
    mapping.begin()
    change(mapping, undone)
    mapping.undo()
    assert dict(mapping) == before
    change(mapping, undone)
    after = dict(mapping)
    mapping.undo()  # nothing has begun
    assert dict(mapping) == after
