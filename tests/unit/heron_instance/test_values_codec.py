"""Value codecs: rows round-trip with their types."""

from __future__ import annotations

import enum
import math
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heron_instance.core.values_codec import MAX_BATCH_BYTES, CodecNumber, ValuesCodec, ValuesError


class Colour(enum.IntEnum):
    RED = 1


class MyStr(str):
    __slots__ = ()


plain = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(exclude_categories=[])), st.binary()
)
odd = st.one_of(
    st.just(Colour.RED),
    st.just(MyStr("x")),
    st.just(Decimal("1.50")),
    st.just(datetime(2024, 1, 1, tzinfo=UTC)),
    st.tuples(st.integers()),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(), st.integers(), max_size=3),
    st.frozensets(st.integers(), max_size=3),
    st.just(bytearray(b"x")),
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return type(a) is type(b) and a == b


@given(
    rows=st.lists(st.tuples(st.one_of(plain, odd), plain), min_size=1, max_size=20),
    name=st.sampled_from(["auto", "pickle"]),
)
@example(rows=[(1 << 64, "\ud800"), (True, 1)], name="auto")
def test_rows_survive_the_codec(rows: list[tuple[Any, ...]], name: str) -> None:
    codec = ValuesCodec(name)
    number, data = codec.encode(rows)
    back = codec.decode(number, data)
    assert all(type(row) is tuple for row in back)
    assert len(back) == len(rows)
    assert all(same(x, y) for a, b in zip(rows, back, strict=True) for x, y in zip(a, b, strict=True))


@given(
    rows=st.lists(st.tuples(st.integers(-(2**63), 2**63), st.floats(), st.binary(), st.none()), min_size=1, max_size=9)
)
def test_plain_values_use_msgpack(rows: list[tuple[Any, ...]]) -> None:
    assert ValuesCodec().encode(rows)[0] == CodecNumber.MSGPACK


def test_row_without_values_survives() -> None:
    codec = ValuesCodec()
    assert codec.decode(*codec.encode([(), ()])) == [(), ()]


def test_batch_is_cut_at_one_mebibyte_in_order() -> None:
    rows = [(i, "x" * (i * 997 % 60_000)) for i in range(200)]
    codec = ValuesCodec()
    pieces = codec.encode_cut(rows)
    assert len(pieces) > 3
    assert all(len(piece.data) <= MAX_BATCH_BYTES for piece in pieces)
    assert [p.start for p in pieces[1:]] == [p.stop for p in pieces[:-1]]
    assert [row for piece in pieces for row in codec.decode(piece.codec, piece.data)] == rows


def test_batch_of_exactly_the_limit_is_not_cut() -> None:
    codec = ValuesCodec()
    spare = len(codec.encode([("a",), ("x" * 100_000,)])[1]) - 100_000
    for more, pieces in ((0, 1), (1, 2)):
        rows = [("a",), ("x" * (MAX_BATCH_BYTES - spare + more),)]
        assert len(codec.encode_cut(rows)) == pieces


@pytest.mark.parametrize("serializer", ["auto", "msgpack", "pickle"])
def test_large_rows_are_encoded_about_once(serializer: str) -> None:
    rows = [(i, "x" * 500_000) for i in range(400)]  # 200 MB
    codec = ValuesCodec(serializer)
    encode, made = codec.encode, list[int]()

    def watched(some: Any) -> tuple[int, bytes]:
        number, data = encode(some)
        made.append(len(data))
        return number, data

    codec.encode = watched  # type: ignore[method-assign]
    pieces = codec.encode_cut(rows)
    assert max(made) <= 17 * 500_100, "a sample, and pieces"
    assert sum(made) <= 2.2 * 400 * 500_100
    assert [row for piece in pieces for row in codec.decode(piece.codec, piece.data)] == rows
    assert codec.pickled_batches == 0


def test_oversized_or_unserializable_tuple_is_refused_alone() -> None:
    rows: list[tuple[Any, ...]] = [(1,), ("x" * 3_000_000,), (2,), (lambda: 1,), (3,), ("y" * 1_500_000,)]
    codec = ValuesCodec(tuple_max_bytes=2_000_000)
    pieces = codec.encode_cut(rows)
    refused = {piece.start: piece.refused for piece in pieces if piece.refused}
    assert set(refused) == {1, 3}
    assert "topology.tuple.max.bytes" in refused[1]
    assert sum(piece.stop - piece.start for piece in pieces) == len(rows)
    kept = [row for piece in pieces if not piece.refused for row in codec.decode(piece.codec, piece.data)]
    assert kept == [rows[0], rows[2], rows[4], rows[5]]


class Reverse:
    def serialize(self, rows: list[Any]) -> bytes:
        return repr(rows).encode()

    def deserialize(self, data: bytes) -> list[Any]:
        return list(eval(data))


def test_user_defined_serializer_is_used() -> None:
    codec = ValuesCodec("my.module:Reverse", load={"my.module:Reverse": Reverse}.__getitem__)
    assert codec.decode(*codec.encode([(1, "a")])) == [(1, "a")]


def test_codec_errors_name_the_remedy() -> None:
    with pytest.raises(ValuesError, match="auto, msgpack, pickle"):
        ValuesCodec("jason")
    with pytest.raises(ValuesError, match="set the serializer to auto"):
        ValuesCodec("msgpack").encode([((1,),)])
    with pytest.raises(ValuesError, match="cannot be decoded"):
        ValuesCodec().decode(CodecNumber.MSGPACK, b"\xc1")
    with pytest.raises(ValuesError, match="unknown encoding 9"):
        ValuesCodec().decode(9, b"")


def test_arrow_without_pyarrow_names_the_requirement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValuesError, match="requirements"):
        ValuesCodec("arrow")


def test_batch_that_fits_is_not_cut_despite_a_large_sample() -> None:
    rows = [("x" * 200,)] * 1000
    assert [(piece.start, piece.stop) for piece in ValuesCodec().encode_cut(rows)] == [(0, 1000)]


def test_rows_survive_the_arrow_codec() -> None:
    """Some rows have no table form."""
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install heronry[archive]")
    codec = ValuesCodec("arrow")
    rows = [(1, "a", 1.5), (2, "b", 2.5)]
    assert codec.encode(rows)[0] == CodecNumber.ARROW
    assert codec.decode(*codec.encode(rows)) == rows
    assert codec.decode(*codec.encode([(1, True), ("x", 1)])) == [(1, True), ("x", 1)]
