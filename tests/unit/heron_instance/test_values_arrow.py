"""Arrow codec: rows round-trip, also where a table cannot hold them."""

from __future__ import annotations

import pytest

from heron_instance.core.values_codec import CodecNumber, ValuesCodec

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install heronry[archive]")


def test_rows_survive_the_arrow_codec() -> None:
    codec = ValuesCodec("arrow")
    rows = [(1, "a", 1.5), (2, "b", 2.5)]
    assert codec.encode(rows)[0] == CodecNumber.ARROW
    assert codec.decode(*codec.encode(rows)) == rows
    assert codec.decode(*codec.encode([(1, True), ("x", 1)])) == [(1, True), ("x", 1)]
