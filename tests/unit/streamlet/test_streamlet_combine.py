"""Combiner of all engines: its rows add up to the reference result for any split of the records."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from operator import add
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.keys import encode
from heronry.streamlet import Builder, collect, count, mean, monoid, sequence, session, sliding, sum_, tumbling
from heronry.streamlet.combine import Combiner, Session, emitted, put
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.program import Exchange, Program, ReduceStep, Ref, split_into_segments
from heronry.streamlet.reference import run
from tests.support.streamlets.comparison import difference


class Unhashable:
    """Unhashable value whose equality its key hook defines."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unhashable) and self.number == other.number

    def __heronry_key__(self) -> tuple[str, int]:
        return ("unhashable", self.number)


class Moment(dt.datetime):
    """Subclass, as those of pandas and pendulum."""


class Place(NamedTuple):
    """Key of several fields."""

    at: dt.datetime
    name: str


TWICE = [Moment(2024, 10, 27, 2, 30, fold=fold, tzinfo=ZoneInfo("Europe/Berlin")) for fold in (0, 1)]
KEYS = st.one_of(
    st.sampled_from([None, True, 1, 1.0, 2, float("nan"), "a", b"a", (1, "a"), (1.0, "a"), frozenset([1])]),
    st.sampled_from([np.int8(1), Fraction(1), Decimal(1), Decimal("NaN"), Decimal("sNaN")]),  # not all are comparable
    st.sampled_from([*TWICE, *(Place(at, "a") for at in TWICE), *(frozenset([at]) for at in TWICE)]),
    st.builds(Unhashable, st.integers(0, 2)),
)
REDUCERS = [count(), sum_(), mean(), monoid(tuple, tuple.__add__, lift=lambda v: (v,), finish=len, name="own")]
RECORDS = st.lists(st.tuples(KEYS, st.integers(-5, 5), st.integers(0, 100)), max_size=30)


def program_of(reducer: Any, window: Any) -> Program:
    builder = Builder("p")
    keyed = builder.source([], name="in").key_by(0, name="by")
    windowed = keyed if window is None else keyed.window(window, 2, unit="ms", name="when")
    windowed.reduce_by_key(reducer, 1, name="r").sink(collect(), name="out")
    return builder.build()


@given(
    records=RECORDS,
    size=st.integers(1, 9),
    takes=st.integers(1, 4),
    reducer=st.sampled_from(REDUCERS),
    window=st.sampled_from([None, tumbling(0.03), sliding(0.03, 0.01)]),
)
def test_combined_lists_of_any_length_equal_the_reference(
    records: list[Any], size: int, takes: int, reducer: Any, window: Any
) -> None:
    program = program_of(reducer, window)
    step = program.by_name["r"]
    assert isinstance(step, ReduceStep)
    combiner, rows = Combiner(step), []
    for number, at in enumerate(range(0, len(records), size)):
        combiner.add(records[at : at + size], None)
        if number % takes == 0:
            rows += combiner.take()
    rows += combiner.take()
    assert not list(combiner.take())
    met: dict[Any, Any] = {}  # keyed by encodings, as after the shuffle
    for key, *start, acc in rows:
        name = (encode(key), *start)
        met[name] = (key, *start, step.monoid.add(met[name][-1], acc) if name in met else acc)
    found = [emitted(step, k, s[0] if s else None, acc) for k, *s, acc in met.values()]
    assert difference(map(plain, found), map(plain, run(program, {"in": records})["out"])) == ""


@given(
    records=RECORDS,
    size=st.integers(1, 9),
    reducer=st.sampled_from(REDUCERS),
    window=st.sampled_from([tumbling(0.03), sliding(0.03, 0.01)]),
)
def test_each_record_counts_in_the_row_of_its_first_window(
    records: list[Any], size: int, reducer: Any, window: Any
) -> None:
    step = program_of(reducer, window).by_name["r"]
    assert isinstance(step, ReduceStep)
    combiner = Combiner(step, counted=True)
    found, wanted = Counter[Any](), Counter((encode(key), window.starts(time)[0]) for key, _, time in records)
    for at in range(0, len(records), size):
        combiner.add(records[at : at + size], None)
        numbers = combiner.record_counts()
        for (key, start, _), number in zip(combiner.take(), numbers, strict=True):
            found[encode(key), start] += number
    assert +found == wanted


@given(records=RECORDS, reducer=st.sampled_from(REDUCERS))
def test_each_record_counts_in_the_row_of_its_session(records: list[Any], reducer: Any) -> None:
    step = program_of(reducer, session(0.01)).by_name["r"]
    assert isinstance(step, ReduceStep)
    combiner = Combiner(step, counted=True)
    combiner.add(records, None)
    numbers = combiner.record_counts()
    met: dict[bytes, list[Session]] = {}  # rows of one key may overlap before the shuffle
    for (key, start, (last, _)), number in zip(combiner.take(), numbers, strict=True):
        put(met.setdefault(encode(key), []), Session(start, last, number), 10, add)
    for key, sessions in met.items():
        for one in sessions:
            assert one.acc == sum(encode(k) == key and one.start <= time <= one.last for k, _, time in records)
    assert sum(one.acc for sessions in met.values() for one in sessions) == len(records)


def plain(result: Any) -> Any:
    return result._replace(key=encode(result.key))


def test_failure_names_its_own_step() -> None:
    step = program_of(sum_(), tumbling(1)).by_name["r"]
    assert isinstance(step, ReduceStep)
    for name, bad in {"by": [["a"], 1, 1], "when": ["a", 1, "x"], "r": ["a", "x", 1]}.items():
        with pytest.raises(StepFailed) as caught:
            Combiner(step).add([("a", 1, 1), tuple(bad)], None)
        assert caught.value.step == name


def test_program_splits_at_reducers_and_where_an_engine_requires() -> None:
    builder = Builder("p")
    a, b = (builder.source(sequence(3), name=name) for name in "ab")
    both = a.map(abs, name="m").union(b, name="u")
    both.key_by().count_by_key(name="r").filter(bool, name="f").sink(collect(), name="s")
    program = builder.build()
    found = split_into_segments(program)
    assert {entry: segment.steps for entry, segment in found.items()} == {
        "a": ("a", "m", "u"), "b": ("b", "u"), "r": ("r", "f", "s"),
    }  # fmt: skip
    assert [found[entry].exchanges for entry in "abr"] == [(Exchange(Ref("u"), "r"),)] * 2 + [()]
    apart = split_into_segments(program, lambda step, entries: not entries or step.name in ("u", "r"))
    assert {entry: segment.steps for entry, segment in apart.items()} == {
        "a": ("a", "m"), "b": ("b",), "u": ("u",), "r": ("r", "f", "s"),
    }  # fmt: skip
    assert apart["a"].exchanges == (Exchange(Ref("m"), "u"),)


def test_value_function_that_changes_its_record_fails_with_its_own_error() -> None:
    builder = Builder("p")
    orders = builder.source([], name="in").key_by("item")
    orders.sum_by_key(value=lambda order: float(order.pop("amount")), name="r").sink(collect(), name="out")
    step = builder.build().by_name["r"]
    assert isinstance(step, ReduceStep)
    with pytest.raises(StepFailed) as caught:
        Combiner(step).add([{"item": "a", "amount": "1"}, {"item": "a", "amount": "n/a"}], None)
    assert isinstance(caught.value.__cause__, ValueError)
