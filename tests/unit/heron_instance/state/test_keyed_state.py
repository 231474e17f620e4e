"""Laws of keyed state: what is restored is what was there at the checkpoint, and each rule is needed for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from state_history import run

from heron_instance.core.state import keyed
from heron_instance.core.state.expiry import SPARE, Expiry
from heron_instance.core.state.keyed import KeyedState, NotOwned
from heron_instance.core.state.taken import GroupRows, Taken
from heron_runtime.model import checkpoints
from heron_runtime.model.checkpoints import ALL_GROUPS
from heron_runtime.model.keys import UnsupportedKey, group_of


@given(st.integers(0, 1_000_000))
def test_what_is_restored_is_what_was_there(seed: int) -> None:
    run(seed)


def _without_deletions(patch: pytest.MonkeyPatch) -> None:
    blocks = Taken.__iter__

    def without(self: Taken) -> Iterator[GroupRows]:
        for block in blocks(self):
            yield GroupRows(block.group, block.full, [row for row in block.rows if len(row) > 1])

    patch.setattr(Taken, "__iter__", without)


def _mutable_not_marked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keyed, "UNCHANGEABLE", keyed.UNCHANGEABLE | {list})


def _delta_against_what_did_not_complete(patch: pytest.MonkeyPatch) -> None:
    take = KeyedState.take

    def forgets(self: KeyedState, checkpoint: int, turn: int) -> Taken:
        taken = take(self, checkpoint, turn)
        self.completed(checkpoint)
        return taken

    patch.setattr(KeyedState, "take", forgets)


def _not_copied_although_it_waits(patch: pytest.MonkeyPatch) -> None:
    take = KeyedState.take

    def live(self: KeyedState, checkpoint: int, turn: int) -> Taken:
        plain, self._plain = self._plain, False
        taken = replace(take(self, checkpoint, turn), may_wait=plain)
        self._plain = plain
        return taken

    patch.setattr(KeyedState, "take", live)


def _what_can_be_changed_waits(patch: pytest.MonkeyPatch) -> None:
    take = KeyedState.take

    def waits(self: KeyedState, checkpoint: int, turn: int) -> Taken:
        self._plain = True
        return take(self, checkpoint, turn)

    patch.setattr(KeyedState, "take", waits)
    patch.setattr(KeyedState, "check", lambda self: None)


def _any_tuple_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keyed, "_is_plain_tuple", lambda value: type(value) is tuple)


def _turn_by_task(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keyed, "full_groups", lambda turn: checkpoints.full_groups(turn + 1))


def _loaded_without_its_full_block(patch: pytest.MonkeyPatch) -> None:
    load = KeyedState.load

    def merged(self: KeyedState, blocks: Any) -> None:
        load(self, (GroupRows(block.group, False, block.rows) for block in blocks if not block.full))

    patch.setattr(KeyedState, "load", merged)


def _ends_not_kept(patch: pytest.MonkeyPatch) -> None:
    blocks = Taken.__iter__

    def without(self: Taken) -> Iterator[GroupRows]:
        for block in blocks(self):
            yield GroupRows(block.group, block.full, [row[:2] for row in block.rows])

    patch.setattr(Taken, "__iter__", without)


def _old_places_in_the_heap_count(patch: pytest.MonkeyPatch) -> None:
    def pass_time(self: Expiry) -> list[Any]:
        self.now = max(self.now, self._wall())
        due = {index for at, _, index in self._heap if at <= self.now and index in self.times}
        self._heap = [place for place in self._heap if place[0] > self.now]
        for index in due:
            del self.times[index]
        return list(due)

    patch.setattr(Expiry, "pass_time", pass_time)


def _set_anew_it_ends_all_the_same(patch: pytest.MonkeyPatch) -> None:
    set_item, put = KeyedState.__setitem__, KeyedState.put

    def assign(self: KeyedState, key: Any, value: Any) -> None:
        at = self._expiry.times.get(self._index(key))
        set_item(self, key, value)
        if at is not None:
            self._expiry.set(self._index(key), at)

    patch.setattr(KeyedState, "__setitem__", assign)
    patch.setattr(KeyedState, "put", put)


def _ended_but_not_changed(patch: pytest.MonkeyPatch) -> None:
    pass_time = KeyedState.pass_time

    def unseen(self: KeyedState) -> None:
        before = set(self._changed)
        pass_time(self)
        self._changed = before

    patch.setattr(KeyedState, "pass_time", unseen)


def _undone_without_its_end(patch: pytest.MonkeyPatch) -> None:
    undo = KeyedState.undo

    def forgets(self: KeyedState) -> None:
        self._before = {index: (value, None) for index, (value, _) in (self._before or {}).items()}
        undo(self)

    patch.setattr(KeyedState, "undo", forgets)


def _time_follows_a_clock_put_back(patch: pytest.MonkeyPatch) -> None:
    pass_time = Expiry.pass_time

    def back(self: Expiry) -> list[Any]:
        self.now = self._wall()
        return pass_time(self)

    patch.setattr(Expiry, "pass_time", back)


MUTATIONS = (
    _ends_not_kept,
    _old_places_in_the_heap_count,
    _set_anew_it_ends_all_the_same,
    _ended_but_not_changed,
    _undone_without_its_end,
    _time_follows_a_clock_put_back,
    _without_deletions,
    _mutable_not_marked,
    _delta_against_what_did_not_complete,
    _not_copied_although_it_waits,
    _what_can_be_changed_waits,
    _any_tuple_waits,
    _turn_by_task,
    _loaded_without_its_full_block,
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.__name__.strip("_"))
def test_each_rule_is_needed(mutation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation(monkeypatch)
    assert any(_breaks(seed) for seed in range(150))


def _breaks(seed: int) -> bool:
    try:
        run(seed)
    except AssertionError:
        return True
    return False


def test_a_key_of_another_task_is_refused_and_named() -> None:
    own = 1 << group_of("mine")
    state = KeyedState(own, where="counter, task 3")
    state["mine"] = 1
    for act in (lambda: state["theirs"], lambda: state.__setitem__("theirs", 2), lambda: "theirs" in state):
        with pytest.raises(NotOwned, match=r"'theirs' belongs to another task than counter, task 3"):
            act()
    with pytest.raises(UnsupportedKey, match="use tuple"):
        state[["a", "list"]] = 1
    assert dict(state) == {"mine": 1}


def test_a_key_of_several_fields_is_a_tuple_of_them() -> None:
    state = KeyedState(ALL_GROUPS, fields=2)
    state["a", 1] = "x"
    assert state["a", 1.0] == "x"
    assert list(state) == [("a", 1)]
    for wrong in ("a", ("a",), ("a", 1, 2), ["a", 1]):
        with pytest.raises(TypeError, match="2 fields"):
            state[wrong]


def test_what_a_record_has_changed_can_be_undone() -> None:
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
    state.undo()  # nothing has begun
    assert state["items"] == [1, 2]


def test_looking_does_not_make_a_change_and_reading_in_place_does() -> None:
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


def test_keys_of_deleted_entries_are_forgotten() -> None:
    state = KeyedState(ALL_GROUPS)
    for number in range(500_000, 500_000 + 20_000):
        state[number + 0.5] = 1
        del state[number + 0.5]
    list(state.take(1, 0))
    state.completed(1)
    kept = len(state._keys)
    assert kept < 5_000
    state.check()


def test_a_time_to_live_is_a_positive_number_of_seconds() -> None:
    state = KeyedState(ALL_GROUPS)
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="a positive number of seconds"):
            state.put("key", 1, ttl=wrong)
    assert len(state) == 0


def test_what_is_set_anew_again_and_again_leaves_little_behind() -> None:
    now = 0.0
    state = KeyedState(ALL_GROUPS, wall=lambda: now)
    for number in range(20_000):
        state.put(number % 10, number, ttl=1000 + number)
    state.check()
    assert len(state._expiry._heap) <= 2 * 10 + SPARE
    now = 1e6
    assert len(state) == 10, "time stands still until it passes"
    state.pass_time()
    assert len(state) == len(state._expiry._heap) == 0
