"""Key indexes: two keys share an entry if and only if fields grouping treats them as equal."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from heron_instance.core.state.keyed_state import index_of, index_of_many
from heron_runtime.model.keys import encode


class Hooked:
    def __init__(self, key: Any) -> None:
        self.key = key

    def __heronry_key__(self) -> Any:
        return self.key


FLOATS = [0.0, -0.0, 1.0, 0.5, 2.0**70, float("inf"), float("-inf"), float("nan")]
EXACT = [
    Decimal("1"),
    Decimal("0.5"),
    Decimal("NaN"),
    Decimal("-Infinity"),
    Fraction(1, 2),
    Fraction(1, 3),
    Fraction(2),
]
ODD = [np.int64(1), np.float64(0.5), np.float32("nan"), np.bool_(True), 1 + 0j, 1 + 1j]
numbers = st.one_of(
    st.integers(-3, 3),
    st.integers(),
    st.booleans(),
    st.floats(),
    st.sampled_from(FLOATS),
    st.sampled_from(EXACT),
    st.sampled_from(ODD),
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
