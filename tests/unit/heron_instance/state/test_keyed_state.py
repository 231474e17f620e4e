"""Keyed state: ownership, key indexes, undo, change detection, references that checkpoints lose, and expiry."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heron_instance.core.state.keyed_state import (
    KeyedState,
    NotOwned,
    ReferenceChecker,
    StaleReference,
    index_of_many,
)
from heron_instance.core.state.task_state import RestoredState, TaskState
from heron_runtime.model.checkpoints import ALL_GROUPS
from heron_runtime.model.ids import DEFAULT_STREAM
from heron_runtime.model.keys import UnsupportedKey, encode, group_of, index_of
from heronry.api.component import BasicBolt, Spout
from heronry.testing import Recorder
from tests.support.harness.executors import ExecutorHarness, Part, fields
from tests.support.harness.state_history import run
from tests.support.harness.stateful_executors import StatefulExecutorHarness
from tests.unit.heron_instance.state.test_task_state import Keyed, plan_of


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


class Hooked:
    def __init__(self, key: Any) -> None:
        self.key = key

    def __heronry_key__(self) -> Any:
        return self.key


FLOATS = [0.0, -0.0, 1.0, 0.5, 2.0**70, float("inf"), float("-inf"), float("nan")]
EXACT = [*map(Decimal, ("1", "0.5", "NaN", "-Infinity")), Fraction(1, 2), Fraction(1, 3), Fraction(2)]
ODD = [np.int64(1), np.float64(0.5), np.float32("nan"), np.bool_(True), 1 + 0j, 1 + 1j]
numbers = st.one_of(
    st.integers(-3, 3), st.integers(), st.booleans(), st.floats(), st.sampled_from([*FLOATS, *EXACT, *ODD])
)
moments = st.sampled_from([
    dt.date(2020, 1, 1), dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2020, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))),
])  # fmt: skip
texts = st.sampled_from(["", "a", "N", "n1", "s", "ä", "\ud800", b"", b"a", b"n1", b"\xed\xa0\x80", None])
simple = st.one_of(numbers, moments, texts)
keys = st.recursive(
    simple, lambda inner: st.one_of(st.tuples(inner), st.tuples(inner, inner), inner.map(Hooked)), max_leaves=4
)


@given(keys, keys)
@example(Fraction(17, 2), 9)
@example(Fraction(16, 3), Fraction(17, 3))
def test_equal_keys_have_equal_indexes(one: Any, other: Any) -> None:
    same = encode(one) == encode(other)
    assert (index_of(one) == index_of(other)) is same
    if same:
        assert hash(index_of(one)) == hash(index_of(other))


@given(st.lists(simple, min_size=2, max_size=2), st.lists(simple, min_size=2, max_size=2))
@example([float("nan"), 1], [float("nan"), 1])  # distinct NaN objects are one key
def test_keys_of_several_fields_compare_field_by_field(one: list[Any], other: list[Any]) -> None:
    same = list(map(encode, one)) == list(map(encode, other))
    assert (index_of_many(tuple(one)) == index_of_many(tuple(other))) is same


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


def run_world(seed: int) -> None:
    world = World(seed)
    for _ in range(60):
        world.step()
    world.checkpoint()


@given(st.integers(0, 1_000_000))
def test_check_reports_exactly_the_lost_changes(seed: int) -> None:
    run_world(seed)


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


BOLT = 2
TTL_S = 10.0


class Source(Spout):
    """Spout that emits the rows that the test has set."""

    def initialize(self, config: Any, context: Any) -> None:
        self.rows: list[tuple[str, str]] = []

    def next_tuple(self) -> None:
        rows, self.rows = self.rows, []
        self.emit_many(rows)


class Visits(BasicBolt):
    """Bolt that counts visits and forgets a visitor after ten seconds. ``seen`` holds each observed state."""

    def initialize(self, config: Any, context: Any) -> None:
        self.seen: list[Any] = [sorted(self.keyed.items())]
        self.during: Any = lambda: None

    def process(self, tup: Any) -> None:
        who, what = tup.values
        if what == "come":
            self.keyed.put(who, [1], ttl=TTL_S)
        elif what == "again":
            self.keyed[who].append(1)  # an update in place does not extend the lifetime
        elif what == "stay":
            self.keyed[who] = [1]
        before = self.keyed.get(who)
        self.during()
        assert self.keyed.get(who) is before
        assert (who in self.keyed) is (before is not None)
        self.seen.append((who, None if before is None else len(before)))


PARTS = {
    "s": Part(Source, 1, {DEFAULT_STREAM: ["who", "what"]}),
    "b": Part(Visits, 1, {}, [("s", DEFAULT_STREAM, fields("who"))]),
}


def visit(world: ExecutorHarness, *rows: tuple[str, str]) -> Any:
    """Feed these rows to the bolt and return everything it has seen."""
    source: Any = world.objects("s")[0]
    source.rows = list(rows)
    world.run()
    assert world.executors[BOLT].failed is None
    return world.objects("b")[0].seen


def test_entry_expires_between_calls_and_not_within_one() -> None:
    world = StatefulExecutorHarness(PARTS, wall_s=100.0)
    assert visit(world, ("ann", "come"), ("bob", "come"), ("bob", "stay")) == [[], ("ann", 1), ("bob", 1), ("bob", 1)]

    def lasts() -> None:
        world.wall_s += 2 * TTL_S

    bolt: Any = world.objects("b")[0]
    bolt.during = lasts
    assert visit(world, ("ann", "again"))[-1] == ("ann", 2)
    bolt.during = lambda: None
    assert visit(world, ("ann", "look"), ("bob", "look"))[-2:] == [("ann", None), ("bob", 1)]
    assert dict(bolt.keyed) == {"bob": [1]}


@pytest.mark.parametrize("away_s", [4.0, 40.0])
def test_expiry_survives_a_restore_and_precedes_user_code(away_s: float) -> None:
    world = StatefulExecutorHarness(PARTS, wall_s=100.0)
    visit(world, ("ann", "come"), ("bob", "stay"))
    world.wall_s += 5
    visit(world, ("cat", "come"), ("ann", "again"))
    blocks = list(world.executors[BOLT].task.state.by_key.take(1, 0))
    other = StatefulExecutorHarness(PARTS, restored={BOLT: RestoredState(1, blocks)}, wall_s=world.wall_s + away_s)
    left = {"ann": [1, 1], "bob": [1], "cat": [1]} if away_s < 5 else {"bob": [1]}
    assert visit(other) == [sorted(left.items())], "as initialize saw it"
    other.wall_s += 5
    left.pop("ann", None)
    visit(other, ("dan", "look"))
    assert dict(other.objects("b")[0].keyed) == left
    deleted = {row[0] for block in other.executors[BOLT].task.state.by_key.take(2, 1) for row in block.rows}
    assert "ann" in deleted, "the next checkpoint says so"


def test_time_to_live_works_without_checkpoints() -> None:
    world = ExecutorHarness(PARTS, {"topology.reliability.mode": "ATMOST_ONCE"})
    assert visit(world, ("ann", "come"), ("ann", "again"))[-1] == ("ann", 2)
    component = Visits()
    Recorder.attach(component)
    component.keyed.put("ann", 1, ttl=TTL_S)
    assert (component.keyed["ann"], component.keyed.peek("bob", 2)) == (1, 2)
