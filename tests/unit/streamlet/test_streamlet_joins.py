"""Window joins: results compared with brute force, and invalid joins."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronry import TopologyError
from heronry.streamlet import Builder, Joined, Window, collect, session, sliding, tumbling
from heronry.streamlet.joins import JOIN_MONOID, KINDS, Sided
from heronry.streamlet.monoid import check_laws
from heronry.streamlet.reference import run

RECORDS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-20, 40), st.integers(0, 3)), max_size=10)


def joined(lefts: list[Any], rights: list[Any], window: Window, how: str) -> list[Joined]:
    builder = Builder("p")
    left, right = (builder.source(side, event_time=1, unit="ms") for side in (lefts, rights))
    left.key_by(0).window(window).join(right.key_by(0), how).sink(collect(), name="out")
    return run(builder.build())["out"]


FIXED = [tumbling(0.01), sliding(0.02, 0.007)]


@given(RECORDS, RECORDS, st.sampled_from(FIXED), st.sampled_from(KINDS))
def test_every_pair_of_a_window_is_emitted_once(lefts: list[Any], rights: list[Any], window: Window, how: str) -> None:
    are_the_pairs(lefts, rights, window, how)


def are_the_pairs(lefts: list[Any], rights: list[Any], window: Window, how: str) -> None:
    expected: list[Joined] = []
    for start in range(-50, 50):
        if start % window.every_ms:
            continue
        end = start + window.length_ms
        for key in "ab":
            inside = [[r for r in side if r[0] == key and start <= r[1] < end] for side in (lefts, rights)]
            mine, theirs = inside
            expected += [Joined(key, start, end, a, b) for a in mine for b in theirs]
            if how in ("left", "outer") and not theirs:
                expected += [Joined(key, start, end, a, None) for a in mine]
            if how in ("right", "outer") and not mine:
                expected += [Joined(key, start, end, None, b) for b in theirs]
    assert Counter(joined(lefts, rights, window, how)) == Counter(expected)


def test_sessions_of_both_sides_are_joined() -> None:
    found = joined([("a", 0, 1), ("a", 30, 2)], [("a", 5, 3), ("a", 9, 4)], session(0.005), "left")
    assert found == [
        Joined("a", 0, 14, ("a", 0, 1), ("a", 5, 3)),
        Joined("a", 0, 14, ("a", 0, 1), ("a", 9, 4)),
        Joined("a", 30, 35, ("a", 30, 2), None),
    ]


def test_both_sides_may_have_their_own_event_time() -> None:
    builder = Builder("p")
    orders = builder.source([{"id": 1, "at": 5}, {"id": 2, "at": 70}])
    payments = builder.source([{"order": 1, "paid": 59_000}, {"order": 2, "paid": 20_000}])
    left = orders.key_by("id").window(tumbling(60), event_time="at")
    right = payments.key_by("order").window(tumbling(60), event_time="paid", unit="ms")
    left.join(right).sink(collect(), name="out")
    assert [(row.key, row.right["paid"]) for row in run(builder.build())["out"]] == [(1, 59_000)]


@given(st.lists(st.integers(0, 1), max_size=5))
def test_join_lists_form_a_monoid(sides: list[int]) -> None:
    counted = JOIN_MONOID.__class__(
        "counted", JOIN_MONOID.zero, JOIN_MONOID.add, lambda acc: tuple(map(Counter, acc)), JOIN_MONOID.lift
    )
    check_laws(counted, [Sided(side, "k", None, n) for n, side in enumerate(sides)])


def test_packed_join_state_is_independent_of_later_adds() -> None:
    lists = JOIN_MONOID.folded([Sided(side, "k", None, n) for n, side in enumerate([0, 1, 1])])
    kept = JOIN_MONOID.pack(lists)
    JOIN_MONOID.add(lists, JOIN_MONOID.lift(Sided(0, "k", None, 9)))
    assert kept == [[0], [1, 2]]
    restored = JOIN_MONOID.unpack(kept)
    JOIN_MONOID.add(restored, JOIN_MONOID.lift(Sided(1, "k", None, 9)))
    assert kept == [[0], [1, 2]]


@given(RECORDS, st.sampled_from([tumbling(0.01), session(0.005)]), st.randoms(use_true_random=False))
def test_distinct_keeps_one_of_equal_records_per_window(records: list[Any], window: Window, draw: Any) -> None:
    def kept(those: list[Any]) -> list[Any]:
        builder = Builder("p")
        keyed = builder.source(those, event_time=1, unit="ms").key_by(0).window(window)
        keyed.count_by_key().sink(collect(), name="windows")
        once = keyed.distinct(name="once")
        once.sink(collect(), name="out")
        once.late().sink(collect(), name="late")
        found = run(builder.build())
        assert found["late"] == []
        assert Counter(key for key, *_ in found["out"]) == Counter(row.key for row in found["windows"])
        return found["out"]

    found = kept(records)
    assert set(found) <= set(records)
    draw.shuffle(records)
    assert kept(records) == found


def streams() -> tuple[Any, Any]:
    builder = Builder("p")
    a, b = (builder.source(range(3), event_time=int, name=name) for name in "ab")
    return a, b


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda a, b: a.key_by().window(tumbling(1)).join(b.key_by(), "inner2"), "how is 'inner2'"),
        (lambda a, b: a.key_by().window(tumbling(1)).join(b), "needs key_by"),
        (lambda a, b: a.key_by().join(b.key_by()), "and a window"),
        (lambda a, b: a.key_by().distinct(name="d"), "step 'd': distinct needs a window"),
        (lambda a, b: a.window(tumbling(1)).distinct(name="d"), "step 'd' .*no key"),
        (lambda a, b: a.key_by().window(tumbling(1)).join(3, name="j"), "step 'j': 3 is not a streamlet"),
        (
            lambda a, b: a.key_by().window(tumbling(1)).join(b.key_by().window(tumbling(2))),
            "different windows",
        ),
        (
            lambda a, b: a.key_by().window(tumbling(1), event_time=int).join(b.key_by()),
            "one side has event_time=",
        ),
    ],
)
def test_invalid_join_is_rejected(make: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        make(*streams())


def test_side_without_event_time_is_named() -> None:
    builder = Builder("p")
    timed, timeless = builder.source(range(3), event_time=int), builder.source(range(3), name="timeless")
    timed.key_by().window(tumbling(1), name="w").join(timeless.key_by(), name="j").log()
    with pytest.raises(TopologyError, match="step 'j': 'w' has no event time: 'timeless' does not set one"):
        builder.build()


def test_join_steps_are_named_after_the_join() -> None:
    a, b = streams()
    pairs = a.key_by().window(tumbling(1)).join(b.key_by(), name="j")
    pairs.log()
    pairs.late().log()
    names = [step.name for step in a._draft.to_program().steps]
    assert names == ["a", "b", "j-left", "j-right", "j-both", "j", "j-pairs", "log", "j-late", "log_2"]
