"""Laws of a part's file: what goes in comes out, of the groups asked for only, and damage is found and named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.state.part_file import CannotEncode, Snapshot, read_part
from heron_instance.core.state.taken import GroupRows
from heron_instance.core.values_codec import ValuesCodec
from heron_runtime.model.checkpoints import ALL_GROUPS, Part
from heron_runtime.wire.part_heads import TASK_STATE, Damaged

CODEC = ValuesCodec()
DRAFT = Part("count", 3, 0xABC, 2, 17, 4, 0, "", (1 << 5) | (1 << 9))
plain = st.one_of(st.integers(), st.text(), st.binary(), st.none(), st.booleans(), st.floats(allow_nan=False))
rows = st.lists(st.one_of(st.tuples(plain, st.one_of(plain, st.lists(plain))), st.tuples(plain)), max_size=4)


def written(own: list[Any], groups: list[GroupRows]) -> tuple[Part, bytes]:
    part, pieces = Snapshot(DRAFT, own, groups, CODEC).encode()
    return part, b"".join(pieces)


def read(part: Part, data: bytes, groups: int = ALL_GROUPS) -> list[GroupRows]:
    return list(read_part(part, lambda offset, size: data[offset : offset + size], groups, CODEC))


@given(rows, rows, rows)
def test_what_goes_in_comes_out_and_only_what_is_asked_for(own: list[Any], one: list[Any], two: list[Any]) -> None:
    blocks = [GroupRows(5, True, one), GroupRows(9, False, two)]
    part, data = written(own, blocks)
    state = [GroupRows(TASK_STATE, True, own)] if own else []
    assert read(part, data) == state + blocks
    assert read(part, data, 1 << 9) == state + blocks[1:]
    assert read(part, data, 0) == state
    assert part.name == "2-17-3-abc.part"
    assert part.size == len(data)


def test_every_damaged_byte_is_found() -> None:
    part, data = written([("a", 1)], [GroupRows(5, True, [("k", "v")]), GroupRows(9, False, [("gone",)])])
    for place in range(len(data)):
        broken = bytearray(data)
        broken[place] ^= 0x10
        with pytest.raises(Damaged, match=r"2-17-3-abc\.part of checkpoint 17 \(count, task 3\)"):
            read(part, bytes(broken))
    for size in range(len(data)):
        with pytest.raises(Damaged):
            read(part, data[:size])


def test_another_file_under_its_name_is_found() -> None:
    part, _ = written([], [GroupRows(5, True, [("k", 1)])])
    _, other = written([], [GroupRows(5, True, [("k", 2)])])
    with pytest.raises(Damaged, match="another file of the same name"):
        read(part, other)


def test_what_cannot_be_pickled_is_named() -> None:
    with pytest.raises(CannotEncode, match=r"count, task 3.*key 'bad'.*pickle"):
        written([], [GroupRows(5, True, [("good", 1), ("bad", lambda: None)])])
