"""Split of a snapshot's encoding between the halted executor and the writer thread."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heron_instance.core.state.keyed_state import KeyedState
from heron_instance.core.state.snapshot import TaskSnapshot, read_part
from heron_instance.core.values_codec import ValuesCodec
from heron_instance.shell.checkpoint_io import PartWriter
from heron_instance.shell.inbox import InboxItem, PartFailed, PartWritten
from heron_runtime.checkpoint_files import CheckpointFolder
from heron_runtime.model.checkpoints import ALL_GROUPS, StatePart


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
    data = b"".join(pieces)
    first, *groups = read_part(part, lambda offset, size: data[offset : offset + size], ALL_GROUPS, ValuesCodec())
    assert first.rows == [("items", [1])]
    assert sorted(row for group in groups for row in group.rows) == sorted((f"key-{key}", 1) for key in range(50))


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
    heard: list[InboxItem] = []
    told, may_go = threading.Semaphore(0), threading.Event()

    def put(item: InboxItem) -> None:
        heard.append(item)
        told.release()

    writer = PartWriter(CheckpointFolder(tmp_path), put)
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
    for _ in range(3):
        assert told.acquire(timeout=60)
    assert [type(item) for item in heard] == [PartWritten, PartFailed, PartWritten]
    assert "a later checkpoint began" in heard[1].why  # type: ignore[union-attr]
    assert [item.part.checkpoint for item in heard if isinstance(item, PartWritten)] == [1, 3]
    assert threads
    assert threads[0] is not threading.current_thread()


@pytest.mark.parametrize(
    ("error", "named"), [(MemoryError(), "out of memory"), (OSError(28, "No space left on device"), "No space left")]
)
def test_part_that_cannot_be_written_is_declined_and_the_next_is_written(
    tmp_path: Path, error: BaseException, named: str
) -> None:
    heard: list[InboxItem] = []
    told = threading.Semaphore(0)

    def put(item: InboxItem) -> None:
        heard.append(item)
        told.release()

    def fails() -> None:
        raise error

    writer = PartWriter(CheckpointFolder(tmp_path), put)
    writer.write(Held(1, fails))  # type: ignore[arg-type]
    assert told.acquire(timeout=60)
    writer.write(Held(2, lambda: None))  # type: ignore[arg-type]
    assert told.acquire(timeout=60)
    failed, written = heard
    assert isinstance(failed, PartFailed)
    assert (failed.generation, failed.checkpoint) == (2, 1)
    assert named in failed.why
    assert "2-1-3-abc.part" in failed.why
    assert isinstance(written, PartWritten)
    assert CheckpointFolder(tmp_path).part_file(written.part.name).stat().st_size == written.part.size
