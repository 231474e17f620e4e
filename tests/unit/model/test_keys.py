"""Key encoding: properties and golden vectors; equal keys meet in every process and release."""

from __future__ import annotations

import datetime as dt
import enum
import math
import subprocess
import sys
import uuid
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from heron_runtime.model.keys import UnsupportedKey, encode, group_of, group_of_many, key_group

# A change to one of these breaks every topology with keyed state.
GOLDEN = [
    ("", b"s", 542),
    ("the", b"sthe", 166),
    ("wörd", b"sw\xc3\xb6rd", 760),
    ("\ud800", b"s\xed\xa0\x80", 321),
    (0, b"n0", 56),
    (1, b"n1", 73),
    (-1, b"n-1", 625),
    (2**70, b"n400000000000000000", 826),
    (1.5, b"n3/2", 279),
    (0.1, b"nccccccccccccd/80000000000000", 978),
    (math.inf, b"ninf", 160),
    (math.nan, b"nnan", 432),
    (None, b"N", 711),
    (b"", b"b", 79),
    (b"abc", b"babc", 665),
    (dt.date(2024, 2, 29), b"d19782", 372),
    (dt.datetime(2024, 2, 29, 12, 30, 15, 250000), b"t1709209815250000", 489),
    (dt.datetime(2024, 2, 29, 12, 30, 15, tzinfo=dt.timezone(dt.timedelta(hours=2))), b"z1709202615000000", 912),
    (("a", 1), b"(2:2:sa2:n1", 265),
    ((), b"(0:", 770),
    (frozenset({"a", "b", 3}), b"{3:2:n32:sa2:sb", 225),
    (Decimal("0.1"), b"n1/a", 293),
    (Fraction(1, 3), b"n1/3", 390),
    (2j, b"c2:2:n02:n2", 255),
]
GOLDEN_MANY = [(("a", "b"), 569), (("a", 1), 942), (("a", 1.5), 185), (("ö", None), 273)]

numbers_ = st.one_of(
    st.booleans(),
    st.integers(-5, 5),
    st.integers(),
    st.floats(),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, 0.5, math.inf]),
    st.decimals(allow_nan=False),
    st.sampled_from([Decimal(1), Decimal("1.0"), Decimal("0.5"), Decimal("Infinity")]),
    st.fractions(),
    st.sampled_from([1 + 0j, 2j]),  # numpy's types have their own test, because their == rounds the other operand
)
zones = st.sampled_from(
    [dt.UTC, ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York"), dt.timezone(dt.timedelta(hours=5))]
)
moments = st.one_of(
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=zones),
    # Times around a clock change, so that equal ones occur.
    st.builds(
        lambda hour, fold, zone: dt.datetime(2024, 10, 27, hour, 30, fold=fold, tzinfo=zone),
        st.integers(0, 3), st.integers(0, 1), st.one_of(st.none(), zones),
    ),
)  # fmt: skip
scalars = st.one_of(st.none(), st.text(max_size=4), st.binary(max_size=3), numbers_, moments)
keys = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple), st.frozensets(inner.filter(lambda key: key == key), max_size=3)
    ),
    max_leaves=5,
)


@pytest.mark.parametrize(("value", "encoded", "group"), GOLDEN)
def test_encoding_and_group_match_golden_vectors(value: Any, encoded: bytes, group: int) -> None:
    assert (encode(value), group_of(value), key_group((value,))) == (encoded, group, group)


@pytest.mark.parametrize(("values", "group"), GOLDEN_MANY)
def test_group_of_several_fields_matches_golden_vectors(values: tuple[Any, ...], group: int) -> None:
    assert group_of_many(values) == key_group(values) == group


def has_fold(key: Any) -> bool:
    if isinstance(key, tuple | frozenset):
        return any(map(has_fold, key))
    return isinstance(key, dt.datetime) and key.fold == 1


@given(keys, keys)
def test_equal_keys_have_equal_encodings(a: Any, b: Any) -> None:
    """Except for the second occurrence of a repeated hour, which Python treats as equal to the first."""
    if a == b and not has_fold(a) and not has_fold(b):
        assert encode(a) == encode(b)
        assert group_of(a) == group_of(b)
        assert group_of_many((a, "x")) == group_of_many((b, "x"))


@given(st.datetimes(timezones=zones), st.datetimes(timezones=zones))
def test_zoned_times_are_keys_by_their_instant(a: dt.datetime, b: dt.datetime) -> None:
    assume(all(2 <= moment.year < 9999 for moment in (a, b)))
    assert (encode(a) == encode(b)) == (a.astimezone(dt.UTC) == b.astimezone(dt.UTC))
    assert encode(a) == encode(a.astimezone(dt.UTC))


def test_repeated_hour_yields_two_keys() -> None:
    first = dt.datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert encode(first) != encode(first.replace(fold=1))


@given(numbers_, numbers_)
def test_numbers_have_equal_encodings_exactly_if_equal(a: Any, b: Any) -> None:
    if a == a and b == b:
        assert (encode(a) == encode(b)) == (a == b)


@given(st.integers(-(2**53), 2**53))
def test_every_numeric_type_agrees_on_an_integer(value: int) -> None:
    same = [value, float(value), Decimal(value), Fraction(value), complex(value), np.int64(value), np.float64(value)]
    assert {encode(one) for one in same} == {encode(value)}
    assert {group_of(one) for one in same} == {group_of(value)}
    assert {group_of_many((one, one)) for one in same} == {group_of_many((value, value))}


@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_tuple_encoding_separates_its_elements(a: tuple[str, str], b: tuple[str, str]) -> None:
    assert (encode(a) == encode(b)) == (a == b)


def test_numpy_scalars_encode_their_exact_values() -> None:
    for value in (np.int64(1), np.uint8(3), np.bool_(True), np.float32(0.1), np.float64(0.1), np.float32(0.5)):
        assert encode(value) == encode(value.item())
    assert encode(np.longdouble(1) / 4) == encode(0.25)


def test_nan_is_one_key_for_all_types() -> None:
    kinds = [math.nan, -math.nan, Decimal("nan"), Decimal("-sNaN"), np.float32("nan"), complex(math.nan, 1)]
    assert {encode(nan) for nan in kinds} == {b"nnan"}


def test_types_that_never_compare_equal_stay_distinct() -> None:
    midnight = dt.datetime(2024, 1, 1)
    apart = [
        "1",
        b"1",
        1,
        None,
        (1,),
        frozenset({1}),
        midnight,
        midnight.date(),
        midnight.replace(tzinfo=dt.UTC),
        "None",
    ]
    assert len({encode(value) for value in apart}) == len(apart)


def test_subclasses_encode_like_their_values() -> None:
    class Colour(enum.StrEnum):
        RED = "red"

    class Level(enum.IntEnum):
        HIGH = 3

    assert group_of(Colour.RED) == group_of("red")
    assert group_of(np.str_("red")) == group_of("red")
    assert group_of(Level.HIGH) == group_of(3)


def test_class_may_define_its_key() -> None:
    class Point:
        def __init__(self, x: int, y: int) -> None:
            self.x, self.y = x, y

        def __heronry_key__(self) -> tuple[int, int]:
            return self.x, self.y

    assert encode(Point(1, 2)) == encode((1, 2))
    assert group_of(Point(1, 2)) == group_of((1.0, 2.0))
    assert group_of_many((Point(1, 2), "a")) == group_of_many(((1, 2), "a"))


@pytest.mark.parametrize(
    ("value", "cure"),
    [
        ([1], "use tuple(value)"),
        ({"a": 1}, "use tuple(sorted(value.items()))"),
        ({1}, "use frozenset(value)"),
        (bytearray(b"a"), "use bytes(value)"),
        (uuid.UUID(int=1), "use str(value)"),
        (enum.Enum("Colour", "RED").RED, "use value.name"),  # type: ignore[attr-defined]  # made at run time
        (object(), "__heronry_key__"),
        (np.datetime64("2024-01-01"), "__heronry_key__"),
        (Decimal("1E999999999"), "use str(value)"),
        ((1, [2]), "use tuple(value)"),
    ],
)
def test_unsupported_type_is_rejected_with_a_remedy(value: Any, cure: str) -> None:
    for attempt in (group_of, lambda key: group_of_many(("a", key))):
        with pytest.raises(UnsupportedKey) as caught:
            attempt(value)
        assert cure in str(caught.value)
    located = caught.value.located("count", "default", "word")
    assert str(located).startswith("component 'count', stream 'default', field 'word': ")
    assert cure in str(located)


def test_endlessly_nested_key_is_rejected() -> None:
    class Endless:
        def __heronry_key__(self) -> tuple[Endless]:
            return (self,)

    with pytest.raises(UnsupportedKey, match="nested deeper"):
        encode(Endless())


def test_extreme_datetimes_are_keys() -> None:
    east, west = dt.timezone(dt.timedelta(hours=14)), dt.timezone(dt.timedelta(hours=-12))
    assert encode(dt.datetime.min.replace(tzinfo=east)) < encode(dt.datetime.max.replace(tzinfo=west))


def test_encoding_is_independent_of_the_hash_seed() -> None:
    program = (
        "from heron_runtime.model.keys import key_group; "
        "print([key_group(k) for k in [('word',), (3.5,), ('a', 1), (frozenset('abcdef'),), (b'x', None)]])"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(p for p in sys.path if p)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert answers == {
        f"{[key_group(k) for k in [('word',), (3.5,), ('a', 1), (frozenset('abcdef'),), (b'x', None)]]}\n"
    }


def test_key_groups_are_spread_evenly() -> None:
    counts = np.bincount([group_of(f"word{n}") for n in range(50_000)], minlength=1024)
    assert counts.min() > 15
    assert counts.max() < 100
