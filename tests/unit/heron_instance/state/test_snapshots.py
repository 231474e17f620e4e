"""Snapshots and part files: which thread encodes, round trips, selection of key groups, and detection of damage."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.state.keyed_state import KeyedState
from heron_instance.core.state.snapshot import CannotEncode, KeyGroupRows, TaskSnapshot, read_part
from heron_instance.core.values_codec import ValuesCodec
from heron_instance.shell.checkpoint_io import PartWriter
from heron_instance.shell.inbox import InboxItem, PartFailed, PartWritten
from heron_runtime.checkpoint_files import CheckpointFolder
from heron_runtime.model.checkpoints import ALL_GROUPS, StatePart
from heron_runtime.wire.checkpoint_formats import (
    MAGIC,
    PIECE_BYTES,
    TASK_STATE,
    Block,
    DamagedPart,
    checked_pieces,
    checksum,
    encode_head,
)

CODEC = ValuesCodec()
DRAFT = StatePart("count", 3, 0xABC, 2, 17, 4, 0, "", (1 << 5) | (1 << 9))
plain = st.one_of(st.integers(), st.text(), st.binary(), st.none(), st.booleans(), st.floats(allow_nan=False))
rows = st.lists(st.one_of(st.tuples(plain, st.one_of(plain, st.lists(plain))), st.tuples(plain)), max_size=4)


def written(own: list[Any], groups: list[KeyGroupRows]) -> tuple[StatePart, bytes]:
    part, pieces = TaskSnapshot(DRAFT, own, groups, CODEC).encode()
    return part, b"".join(pieces)


def read(part: StatePart, data: bytes, groups: int = ALL_GROUPS, codec: ValuesCodec = CODEC) -> list[KeyGroupRows]:
    return list(read_part(part, lambda offset, size: data[offset : offset + size], groups, codec))


@given(rows, rows, rows)
def test_part_round_trip_returns_only_the_requested_groups(own: list[Any], one: list[Any], two: list[Any]) -> None:
    blocks = [KeyGroupRows(5, True, one), KeyGroupRows(9, False, two)]
    part, data = written(own, blocks)
    state = [KeyGroupRows(TASK_STATE, True, own)] if own else []
    assert read(part, data) == state + blocks
    assert read(part, data, 1 << 9) == state + blocks[1:]
    assert read(part, data, 0) == state
    assert part.name == "2-17-3-abc.part"
    assert part.size == len(data)


def test_every_damaged_byte_is_detected() -> None:
    part, data = written([("a", 1)], [KeyGroupRows(5, True, [("k", "v")]), KeyGroupRows(9, False, [("gone",)])])
    for place in range(len(data)):
        broken = bytearray(data)
        broken[place] ^= 0x10
        with pytest.raises(DamagedPart, match=r"2-17-3-abc\.part of checkpoint 17 \(count, task 3\)"):
            read(part, bytes(broken))
    for size in range(len(data)):
        with pytest.raises(DamagedPart):
            read(part, data[:size])


def test_file_that_does_not_match_its_part_is_rejected() -> None:
    part, _ = written([], [KeyGroupRows(5, True, [("k", 1)])])
    _, other = written([], [KeyGroupRows(5, True, [("k", 2)])])
    with pytest.raises(DamagedPart, match="another file of the same name"):
        read(part, other)


def test_value_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(CannotEncode, match=r"count, task 3.*key 'bad'.*pickle"):
        written([], [KeyGroupRows(5, True, [("good", 1), ("bad", lambda: None)])])


def claiming(blocks: list[Block], size: int | None = None) -> tuple[StatePart, bytes]:
    """Return a part whose head declares these blocks, and that head."""
    head, proof = encode_head(DRAFT, blocks)
    total = len(head) + sum(block.size for block in blocks)
    return replace(DRAFT, size=total if size is None else size, checksum=proof), head


@pytest.mark.parametrize(
    "block",
    [
        Block(5, True, 0, 0, 2**31, ""), Block(5, True, 0, 0, -1, ""), Block(5, True, 0, 9, 1, ""),
        Block(5, True, 0, -9, 1, ""), Block(-2, True, 0, 0, 1, ""), Block(1024, True, 0, 0, 1, ""),
    ],
)  # fmt: skip
def test_block_outside_of_its_file_is_rejected_before_it_is_read(block: Block) -> None:
    part, head = claiming([block], size=100 + 1)
    sizes: list[int] = []

    def read_counted(offset: int, size: int) -> bytes:
        sizes.append(size)
        return head[offset : offset + size]

    for read_all in (lambda: list(read_part(part, read_counted, ALL_GROUPS, CODEC)),
                     lambda: list(checked_pieces(part, read_counted))):  # fmt: skip
        with pytest.raises(DamagedPart):
            read_all()
    assert max(sizes) <= len(head)


def test_a_large_block_is_copied_in_pieces_of_bounded_size() -> None:
    part, head = claiming([Block(5, True, 0, 0, 2**31, "")])  # possible with a sparse file
    sizes: list[int] = []

    def read_counted(offset: int, size: int) -> bytes:
        sizes.append(size)
        return head[offset : offset + size] if offset < len(head) else bytes(size if len(sizes) < 50 else 0)

    with pytest.raises(DamagedPart, match="key group 5"):
        list(checked_pieces(part, read_counted))
    assert max(sizes) <= PIECE_BYTES


@pytest.mark.parametrize("head", [b"[]", b"{}", b"[" * 100_000, b"\xff"])
def test_unreadable_head_is_damage_even_with_a_valid_checksum(head: bytes) -> None:
    data = MAGIC + len(head).to_bytes(4, "little") + head
    part = replace(DRAFT, size=len(data), checksum=checksum(head))
    with pytest.raises(DamagedPart, match="head"):
        read(part, data)


@given(rows, rows)
def test_pieces_of_a_part_form_the_whole_file(own: list[Any], one: list[Any]) -> None:
    part, data = written(own, [KeyGroupRows(5, True, one)])
    read_some = lambda offset, size: data[offset : offset + size]  # noqa: E731
    assert b"".join(checked_pieces(part, read_some)) == data


def test_msgpack_serializer_never_unpickles_state() -> None:
    part, data = written([], [KeyGroupRows(5, True, [("k", {1, 2})]), KeyGroupRows(9, True, [("k", 1)])])
    codec = ValuesCodec("msgpack")
    with pytest.raises(DamagedPart, match=r"key group 5: pickled, but topology\.serializer is msgpack"):
        read(part, data, 1 << 5, codec)
    assert read(part, data, 1 << 9, codec) == [KeyGroupRows(9, True, [("k", 1)])]


class Watched(ValuesCodec):
    """Codec that records the threads that call it."""

    def __init__(self, *serializer: Any) -> None:
        super().__init__(*serializer)
        self.threads: list[threading.Thread] = []
        encode = self.encode

        def watched(rows: Any) -> tuple[int, bytes]:
            self.threads.append(threading.current_thread())
            return encode(rows)

        self.encode = watched


class Own:
    """A user-defined serializer."""

    def serialize(self, values: Any) -> bytes:
        return pickle.dumps(values)

    def deserialize(self, data: bytes) -> Any:
        return pickle.loads(data)


def snapshot(value: Any, codec: ValuesCodec, number: int = 1, own: Any = ()) -> tuple[KeyedState, TaskSnapshot]:
    state = KeyedState(ALL_GROUPS)
    for key in range(50):
        state[f"key-{key}"] = value
    draft = StatePart("count", 3, 0xABC, 2, number, number, 0, "", ALL_GROUPS)
    return state, TaskSnapshot(draft, own, state.take(number, number), codec)


@pytest.mark.parametrize(
    ("value", "serializer", "waits"),
    [
        (1, ("auto",), True),
        ((1, "a", None), ("auto",), True),
        (1, ("pickle",), True),
        ([1], ("auto",), False),
        (([1], 2), ("auto",), False),
        (((1, 2), 3), ("auto",), False),  # only flat tuples are inspected
        ({"a": 1}, ("pickle",), False),
        (1, ("msgpack",), False),  # it may reject a value, and user code must learn of that
        (1, ("m:Own", 1 << 20, lambda path: Own), False),  # user code runs only on the executor's thread
    ],
)
def test_immutable_values_are_encoded_by_the_writer_thread(value: Any, serializer: Any, waits: bool) -> None:
    codec = Watched(*serializer)
    _, taken = snapshot(value, codec)
    assert bool(codec.threads) is not waits
    calls = len(codec.threads)
    taken.encode()
    assert bool(len(codec.threads) - calls) is waits


def test_mutable_value_makes_later_snapshots_encode_at_once() -> None:
    codec = Watched()
    state, _ = snapshot(1, codec)
    state["key-1"] = [1]
    state["key-1"] = 1
    TaskSnapshot(StatePart("count", 3, 0xABC, 2, 2, 2, 0, "", ALL_GROUPS), (), state.take(2, 2), codec)
    assert codec.threads


def test_own_state_of_a_task_is_encoded_at_once() -> None:
    own = [("items", [1])]
    state, taken = snapshot(1, ValuesCodec(), own=own)
    own[0][1].append(2)
    state["key-1"] = 99
    del state["key-2"]
    part, pieces = taken.encode()
    first, *groups = read(part, b"".join(pieces))
    assert first.rows == [("items", [1])]
    assert sorted(row for group in groups for row in group.rows) == sorted((f"key-{key}", 1) for key in range(50))


class Heard:
    """Inbox stand-in that can be waited for."""

    def __init__(self) -> None:
        self.items: list[InboxItem] = []
        self._came = threading.Semaphore(0)

    def put(self, item: InboxItem) -> None:
        self.items.append(item)
        self._came.release()

    def wait(self, count: int) -> None:
        for _ in range(count):
            assert self._came.acquire(timeout=60)


class Held:
    """Snapshot whose encoding waits for a signal."""

    def __init__(self, number: int, encode: Callable[[], Any]) -> None:
        _, self.real = snapshot(number, ValuesCodec(), number)
        self.draft = self.real.draft
        self._first = encode

    def encode(self) -> Any:
        self._first()
        return self.real.encode()


def test_waiting_part_is_superseded_by_a_later_checkpoint(tmp_path: Path) -> None:
    heard, may_go = Heard(), threading.Event()
    writer = PartWriter(CheckpointFolder(tmp_path), heard.put)
    begun = threading.Event()

    def first() -> None:
        begun.set()
        assert may_go.wait(60)

    threads: list[threading.Thread] = []
    writer.write(Held(1, first))  # type: ignore[arg-type]
    assert begun.wait(60)
    writer.write(Held(2, lambda: None))  # type: ignore[arg-type]
    writer.write(Held(3, lambda: threads.append(threading.current_thread())))  # type: ignore[arg-type]
    may_go.set()
    heard.wait(3)
    assert [type(item) for item in heard.items] == [PartWritten, PartFailed, PartWritten]
    assert "a later checkpoint began" in heard.items[1].why  # type: ignore[union-attr]
    assert [item.part.checkpoint for item in heard.items if isinstance(item, PartWritten)] == [1, 3]
    assert threads
    assert threads[0] is not threading.current_thread()


@pytest.mark.parametrize(
    ("error", "named"), [(MemoryError(), "out of memory"), (OSError(28, "No space left on device"), "No space left")]
)
def test_part_that_cannot_be_written_is_declined_and_the_next_is_written(
    tmp_path: Path, error: BaseException, named: str
) -> None:
    heard = Heard()

    def fails() -> None:
        raise error

    writer = PartWriter(CheckpointFolder(tmp_path), heard.put)
    writer.write(Held(1, fails))  # type: ignore[arg-type]
    heard.wait(1)
    writer.write(Held(2, lambda: None))  # type: ignore[arg-type]
    heard.wait(1)
    failed, written = heard.items
    assert isinstance(failed, PartFailed)
    assert (failed.generation, failed.checkpoint) == (2, 1)
    assert named in failed.why
    assert "2-1-3-abc.part" in failed.why
    assert isinstance(written, PartWritten)
    assert CheckpointFolder(tmp_path).part_file(written.part.name).stat().st_size == written.part.size
