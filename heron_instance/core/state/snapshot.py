"""Snapshots: the content of a checkpoint for one task, and the file of a part.

Theory of operation. The executor is halted while a snapshot is taken. Looking up each changed entry and each entry of
the groups that are due in full, sorting them by key group and encoding them takes microseconds each; copying the whole
mapping takes a few nanoseconds per entry. So where every value is immutable (``may_wait``) the snapshot takes a copy of
the mapping, and the thread that writes the part does the rest while records are processed again. Otherwise all of it is
done while the executor is halted, and nothing is copied.

A part is the file of one task for one checkpoint, laid out so that a reader takes only the groups it owns. Its head,
which verifies the blocks, is that of ``heron_runtime/wire/checkpoint_formats.py``. Rows are encoded like values of
tuples (``values_codec``), ``auto`` by default. State that user code could change before it is encoded, or that may turn
out not to be encodable, is encoded at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from heron_instance.core.groupings import groups_of_keys
from heron_instance.core.values_codec import CodecNumber, ValuesCodec, ValuesError
from heron_runtime.model.checkpoints import StatePart
from heron_runtime.wire.checkpoint_formats import (
    TASK_STATE,
    Block,
    DamagedPart,
    checksum,
    encode_head,
    read_blocks,
    read_data,
    whose,
)

Row = tuple[Any, ...]  # (key, value), (key, value, when it ends), or (key,): deleted
_Encoded = tuple[int, bool, int, bytes]  # group, whether in full, codec, rows


@dataclass(frozen=True, slots=True)
class KeyGroupRows:
    """Rows of one key group in a checkpoint: all entries (``full``), or those changed and deleted."""

    group: int
    full: bool
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class KeyedSnapshot:
    """Entries by index. Iteration yields the blocks, in order of groups.

    Attributes:
        values: Values by index.
        keys: Keys that are not their own index.
        ends: Ends of entries with a time to live.
        due: Bit set of the groups held in full.
        full: Indexes of the entries in these groups.
        changed: Sets of indexes of other changed entries.
        single: Keys have one field.
        may_wait: Iteration may be deferred.
    """

    values: dict[Any, Any]
    keys: dict[Any, Any]
    ends: dict[Any, float]
    due: int
    full: set[Any]
    changed: list[set[Any]]
    single: bool
    may_wait: bool

    def __iter__(self) -> Iterator[KeyGroupRows]:
        """Yield the blocks. A group that is due in full and has no block is empty."""
        values, keys, ends = self.values, self.keys, self.ends
        for group, indexes in self._by_group([*self.full, *set().union(*self.changed).difference(self.full)]):
            rows: list[Row] = [(i, values[i]) if i in values else (i,) for i in indexes]
            if ends:
                rows = [(*row, ends[row[0]]) if row[0] in ends else row for row in rows]
            if keys:
                rows = [(keys.get(row[0], row[0]), *row[1:]) for row in rows]
            if self.due >> group & 1:
                rows = [row for row in rows if len(row) > 1]
                if rows:
                    yield KeyGroupRows(group, True, rows)
            else:
                yield KeyGroupRows(group, False, rows)

    def _by_group(self, indexes: list[Any]) -> Iterator[tuple[int, list[Any]]]:
        if not indexes:
            return
        keys = [self.keys.get(index, index) for index in indexes] if self.keys else indexes
        groups = groups_of_keys(keys, single=self.single)
        order = np.argsort(groups, kind="stable")
        present, starts = np.unique(groups[order], return_index=True)
        places = order.tolist()
        ends = [*starts.tolist()[1:], len(places)]
        for group, start, end in zip(present.tolist(), starts.tolist(), ends, strict=True):
            yield group, [indexes[place] for place in places[start:end]]


class CannotEncode(ValueError):
    """Some state cannot be encoded. The text names the key."""


class TaskSnapshot:
    """Content of a checkpoint for one task. ``draft`` identifies it."""

    def __init__(
        self, draft: StatePart, own_state: Iterable[Row], groups: Iterable[KeyGroupRows], codec: ValuesCodec
    ) -> None:
        """Encode at once all state that may change. ``codec`` is used for snapshots only. Raises CannotEncode."""
        self.draft = draft
        self._codec = codec
        own = KeyGroupRows(TASK_STATE, True, list(own_state))
        self._own = [self._encoded(own)] if own.rows else []
        waits = isinstance(groups, KeyedSnapshot) and groups.may_wait and codec.takes_all_plain
        self._groups = map(self._encoded, groups) if waits else [self._encoded(each) for each in groups]

    def encode(self) -> tuple[StatePart, list[bytes]]:
        """Return the part and the pieces of its file, in order. Called once, by any thread, without a lock."""
        blocks: list[Block] = []
        pieces: list[bytes] = []
        offset = 0
        for group, full, number, data in (*self._own, *self._groups):
            blocks.append(Block(group, full, number, offset, len(data), checksum(data)))
            pieces.append(data)
            offset += len(data)
        start, proof = encode_head(self.draft, blocks)
        return replace(self.draft, size=len(start) + offset, checksum=proof), [start, *pieces]

    def _encoded(self, rows: KeyGroupRows) -> _Encoded:
        return rows.group, rows.full, *_encode_rows(rows.rows, self._codec, self.draft)


def read_part(
    part: StatePart, read: Callable[[int, int], bytes], groups: int, codec: ValuesCodec
) -> Iterator[KeyGroupRows]:
    """Yield the task's own state, if any (group ``TASK_STATE``), then the blocks of these groups.

    Args:
        part: StatePart to read.
        read: Returns bytes of the file for an offset and a size, fewer at its end; may raise OSError.
        groups: Bit set of key groups.
        codec: Codec of the rows.

    Raises:
        DamagedPart: A block is damaged or cannot be decoded.
    """
    for block in read_blocks(part, read):
        if block.group != TASK_STATE and not groups >> block.group & 1:
            continue
        if block.codec == CodecNumber.PICKLE and codec.refuses_pickle:
            raise DamagedPart(
                f"{whose(part)}, key group {block.group}: pickled, but topology.serializer is msgpack\n"
                "hint: restore with the serializer auto, or start without this checkpoint"
            )
        data = read_data(part, block, read)
        try:
            yield KeyGroupRows(block.group, block.full, codec.decode(block.codec, data))
        except ValuesError as error:
            raise DamagedPart(f"{whose(part)}, key group {block.group}: {error}") from error


def _encode_rows(rows: list[Row], codec: ValuesCodec, draft: StatePart) -> tuple[int, bytes]:
    try:
        return codec.encode(rows)
    except Exception as error:  # any exception of pickling a user's value
        for row in rows:
            try:
                codec.encode([row])
            except Exception as own:
                raise CannotEncode(
                    f"{draft.component}, task {draft.task}: state cannot be encoded: value of key "
                    f"{row[0]!r:.80}: {type(own).__name__}: {own}"
                ) from own
        raise CannotEncode(f"{draft.component}, task {draft.task}: state cannot be encoded: {error}") from error
