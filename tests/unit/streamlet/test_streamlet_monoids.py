"""Monoid laws, windows, event times, and comparison of results."""

from __future__ import annotations

import datetime as dt
import math
import operator
import pickle
import random
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from itertools import permutations
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heronry.streamlet import Monoid, count, distinct, max_, mean, min_, monoid, sliding, sum_, top_k, tumbling
from heronry.streamlet.compare import close
from heronry.streamlet.monoid import builtin_monoid, check_laws, monoid_of_function
from heronry.streamlet.sketch import DistinctSketch
from heronry.streamlet.windows import EventTimeError, hour_folder, to_ms
from tests.support.streamlets.comparison import difference

NUMBERS = st.one_of(st.integers(-(10**6), 10**6), st.floats(-1e6, 1e6), st.none())
BUILTIN = [count(), sum_(), min_(), max_(), mean(), top_k(2), distinct(5)]


@pytest.mark.parametrize("tried", BUILTIN, ids=repr)
@given(values=st.lists(NUMBERS, max_size=5))
def test_built_in_monoids_satisfy_the_laws(tried: Monoid, values: list[Any]) -> None:
    check_laws(tried, values)


@given(st.lists(st.floats(allow_nan=True), min_size=1, max_size=4))
def test_nan_is_greater_than_every_number(values: list[float]) -> None:
    for tried in (min_(), max_(), top_k(2)):
        check_laws(tried, values)
    numbers = [v for v in values if v == v]
    assert close(min_().folded(values), min(numbers) if numbers else math.nan)
    assert close(max_().folded(values), math.nan if len(numbers) < len(values) else max(numbers))


def test_check_laws_detects_violations() -> None:
    with pytest.raises(AssertionError, match=r"commutative|associative|zero"):
        check_laws(monoid(0, operator.sub), [1, 2, 3])
    with pytest.raises(AssertionError, match="zero \\+ a differs"):
        check_laws(monoid(1, operator.add), [1, 2])
    check_laws(monoid(Counter, operator.add, lift=lambda v: Counter([v])), ["a", "b", "a"])
    check_laws(monoid_of_function(max), [3, 1, 2])
    with pytest.raises(TypeError, match="write dict without brackets"):
        monoid({}, operator.or_)


def test_none_values_are_ignored_but_counted() -> None:
    results = {tried.name: tried.finish(tried.folded([None, None])) for tried in BUILTIN}
    assert results == {"count": 2, "sum": None, "min": None, "max": None, "mean": None, "top_k": (), "distinct": 0}


def test_top_k_breaks_ties_by_canonical_key() -> None:
    rows = [{"w": w, "n": n} for w, n in (("b", 2), ("a", 2), ("c", 3), ("d", 1))]
    best = top_k(3, by="n")
    assert [row["w"] for row in best.finish(best.folded(rows))] == ["c", "a", "b"]
    check_laws(best, rows)


def test_built_in_monoids_are_found_by_name() -> None:
    for tried in BUILTIN:
        again = builtin_monoid(str(tried.builtin), dict(tried.parameters))
        packed = tried.pack(tried.folded([3, 1, 2]))
        assert close(again.finish(again.unpack(packed)), tried.finish(tried.folded([3, 1, 2])))


@given(st.lists(st.integers(0, 400)), st.integers(1, 5), st.randoms())
def test_sketch_depends_only_on_the_set(values: list[int], parts: int, rng: Any) -> None:
    tried = distinct(5)  # 32 hashes, far beyond exactness here
    whole = tried.folded(values)
    rng.shuffle(values)
    joined = tried.zero()
    for part in range(parts):
        piece = tried.folded(values[part::parts])
        joined = tried.add(joined, pickle.loads(pickle.dumps(piece)))
    assert joined.to_bytes() == whole.to_bytes()
    assert joined.estimate() == whole.estimate()


def test_sketch_is_accurate_and_equal_keys_count_once() -> None:
    sketch = distinct().folded([*range(50_000), *map(float, range(1000))])
    assert abs(sketch.estimate() - 50_000) < 5 * 50_000 / 64
    assert distinct().finish(distinct().folded([1, 1.0, True, None])) == 1
    assert isinstance(sketch, DistinctSketch)


WINDOWS = st.one_of(
    st.integers(1, 5000).map(lambda n: tumbling(n / 1000)),
    st.tuples(st.integers(1, 5000), st.integers(1, 5000)).map(lambda p: sliding(max(p) / 1000, min(p) / 1000)),
)


@given(WINDOWS, st.integers(-(10**12), 10**13))
@example(sliding(10, 3), -1)
def test_record_is_in_exactly_the_windows_that_contain_it(window: Any, time_ms: int) -> None:
    starts = list(window.starts(time_ms))
    assert starts == sorted(starts)
    assert starts
    assert all(s % window.every_ms == 0 and s <= time_ms < s + window.length_ms for s in starts)
    before, after = starts[0] - window.every_ms, starts[-1] + window.every_ms
    assert not before <= time_ms < before + window.length_ms
    assert time_ms < after


def test_event_times_are_converted_to_milliseconds() -> None:
    utc = dt.datetime(2026, 11, 21, 7, 30, 0, 1999, tzinfo=dt.UTC)
    assert to_ms(utc) == 1795246200001
    assert to_ms(utc.replace(tzinfo=None)) == to_ms(utc)
    assert to_ms("2026-11-21T08:30:00.001+01:00") == to_ms(utc)
    assert to_ms(dt.datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=dt.UTC)) == -1
    assert (to_ms(2), to_ms(2, "ms"), to_ms(1.0005), to_ms(1.0015)) == (2000, 2, 1000, 1002)
    assert hour_folder(to_ms(utc)) == "date=2026-11-21/hour=07"
    for wrong in (None, True, math.nan, math.inf, "yesterday", [1]):
        with pytest.raises(EventTimeError):
            to_ms(wrong)


def test_results_are_compared_as_bags_with_tolerance() -> None:
    assert difference([("a", 0.1 + 0.2), ("b", 1)], [("b", 1), ("a", 0.3)]) == ""
    assert difference([0.9999995000000001], [0.9999995]) == ""
    assert difference([("a", 0.3)], [("a", 0.3001)]) != ""
    assert difference([1, 1], [1]) != ""
    assert close(math.nan, math.nan)
    assert not close("1", 1)
    assert "1 only in the first" in difference([{"a": 1}, 2], [2])


def test_sum_of_booleans_is_a_number() -> None:
    told = [sum_().finish(sum_().folded(values)) for values in ([True], [False], [True, True], [None], ["a"], [1.5])]
    assert [repr(value) for value in told] == ["1", "0", "2", "None", "'a'", "1.5"]


def test_sum_of_decimals_is_exact_in_any_order() -> None:
    values = [Decimal(text) for text in ("1e40", "0.0000000001", "-1e40", "7")] + [1]
    for order in permutations(values):
        assert sum_().finish(sum_().folded(order)) == Decimal("8.0000000001")
        assert mean().finish(mean().folded(order)) == Decimal("8.0000000001") / 5


FINITE = st.floats(allow_nan=False, allow_infinity=False)
EXACT_VALUES = st.one_of(
    FINITE, st.sampled_from([0.1, 1e16, -1e16, 1e308, -1e308, 5e-324]), st.integers(-(2**70), 2**70)
)


def sum_of_fractions(values: list[Any]) -> float:
    if not any(isinstance(value, float) for value in values):
        return sum(values)
    total = sum(map(Fraction, values))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


@given(st.lists(EXACT_VALUES, min_size=1, max_size=60), st.randoms(), st.integers(1, 7))
@example([1e16, 1.0, -1e16], random.Random(1), 1)
@example([1e308] * 9 + [-1e308] * 9 + [0.5], random.Random(1), 3)
@example([0.1] * 60, random.Random(1), 5)
@example([2**53 + 1, 0.5], random.Random(1), 1)
def test_a_sum_with_floats_is_exact_in_any_order_and_any_groups(values: list[Any], rng: Any, groups: int) -> None:
    expected = sum_of_fractions(values)
    rng.shuffle(values)
    tried = sum_()
    total = tried.zero()
    for group in range(groups):
        total = tried.add(total, tried.unpack(tried.pack(tried.folded(values[group::groups]))))
    assert tried.finish(total) == expected
    average = mean()
    assert average.finish(average.unpack(average.pack(average.folded(values)))) == pytest.approx(
        float(sum(map(Fraction, values)) / len(values)), rel=1e-15, abs=5e-324
    )


def test_sums_of_infinities_and_nan_follow_ieee_754() -> None:
    for values, expected in (([math.inf, 0.1, 0.2], math.inf), ([0.1, 0.2, -math.inf, 1], -math.inf)):
        for order in permutations(values):
            assert sum_().finish(sum_().folded(order)) == expected
    for values in ([math.inf, -math.inf, 0.1], [math.nan, 0.1, 0.2, math.inf]):
        for order in permutations(values):
            assert math.isnan(sum_().finish(sum_().folded(order)))
    assert math.copysign(1, sum_().finish(sum_().folded([-0.0, -0.0, None]))) == -1


def test_a_sum_of_floats_stays_one_number_while_it_is_exact_and_small_otherwise() -> None:
    assert sum_().folded([0.5, 2, 1e9]) == 1000000002.5
    assert len(sum_().folded([0.1 * n for n in range(10_000)])) < 30
    assert sum_().unpack(3.5) == 3.5  # as earlier versions have saved it
    assert mean().finish(mean().unpack([3.5, 2])) == 1.75


def test_floats_and_decimals_are_not_added() -> None:
    for values in ([0.1, 0.2, Decimal(1)], [Decimal(1), 0.1]):
        with pytest.raises(TypeError):
            sum_().folded(values)
