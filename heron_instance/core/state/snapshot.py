"""The file of a part: what one task has written for one checkpoint, so that a reader takes only the groups it owns.

Its frame, which proves what is read, is that of ``heron_runtime/wire/part_heads.py``. Rows are encoded as values of
tuples are (``values_codec``), ``auto`` by default.

A quiet point makes a ``Snapshot`` of what the part will hold. What user code could change before it is encoded, and
what may turn out not to be encodable, is encoded at once; the rest by the thread that writes the file.

What a checkpoint takes of the state by key, at the moment at which it is taken.

Theory of operation. The executor stands while a checkpoint is taken. To look up each entry that has changed, or whose
group is due in full, to sort them by key group and to encode them takes microseconds each; to copy the whole mapping
takes a few nanoseconds an entry. So where no value can be changed in place (``may_wait``) the checkpoint takes a copy
of the mapping, and a thread that writes the part does the rest while records are processed again: what an entry is set
to meanwhile is another value. Otherwise all of it is done while the executor stands, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from heron_instance.core.groupings import groups_of_keys
from heron_instance.core.values_codec import CodecNumber, ValuesCodec, ValuesError
from heron_runtime.model.checkpoints import Part
from heron_runtime.wire.part_heads import (
    TASK_STATE,
    Block,
    Damaged,
    checksum,
    encode_head,
    read_blocks,
    read_data,
    whose,
)

Row = tuple[Any, ...]  # (key, value), (key, value, when it ends), or (key,): deleted
_Encoded = tuple[int, bool, int, bytes]  # group, whether in full, codec, rows


@dataclass(frozen=True, slots=True)
class GroupRows:
    """What a checkpoint holds of one key group: all entries (``full``), or those that changed and were deleted."""

    group: int
    full: bool
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class Taken:
    """Entries by index: ``values``, ``keys`` of those that are not their own index, ``ends`` of those that have one.

    ``full``: who is in the groups of ``due``, a set of groups, which are held in full; ``changed``: who else counts;
    ``single``: keys have one field. Iterating gives the blocks, in order of groups.
    """

    values: dict[Any, Any]
    keys: dict[Any, Any]
    ends: dict[Any, float]
    due: int
    full: set[Any]
    changed: list[set[Any]]
    single: bool
    may_wait: bool

    def __iter__(self) -> Iterator[GroupRows]:
        """Where there is no block of a group that is due in full, the group is empty."""
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
                    yield GroupRows(group, True, rows)
            else:
                yield GroupRows(group, False, rows)

    def _by_group(self, indexes: list[Any]) -> Iterator[tuple[int, list[Any]]]:
        if not indexes:
            return
        keys = [self.keys.get(index, index) for index in indexes] if self.keys else indexes
        groups = groups_of_keys(keys, single=self.single)
        order = np.argsort(groups, kind="stable")
        found, starts = np.unique(groups[order], return_index=True)
        places = order.tolist()
        ends = [*starts.tolist()[1:], len(places)]
        for group, start, end in zip(found.tolist(), starts.tolist(), ends, strict=True):
            yield group, [indexes[place] for place in places[start:end]]


class CannotEncode(ValueError):
    """Some state cannot be written. The text names the key."""


class Snapshot:
    """What a task keeps for a checkpoint, from the moment it is made. ``draft`` says whose it is."""

    def __init__(self, draft: Part, own_state: Iterable[Row], groups: Iterable[GroupRows], codec: ValuesCodec) -> None:
        """``codec`` is for snapshots alone. Raises CannotEncode, unless it may wait."""
        self.draft = draft
        self._codec = codec
        own = GroupRows(TASK_STATE, True, list(own_state))
        self._own = [self._encoded(own)] if own.rows else []
        waits = isinstance(groups, Taken) and groups.may_wait and codec.takes_all_plain
        self._groups = map(self._encoded, groups) if waits else [self._encoded(each) for each in groups]

    def encode(self) -> tuple[Part, list[bytes]]:
        """Its part and the pieces of the file, in order. Once, and by any thread, which holds no lock."""
        blocks: list[Block] = []
        pieces: list[bytes] = []
        offset = 0
        for group, full, number, data in (*self._own, *self._groups):
            blocks.append(Block(group, full, number, offset, len(data), checksum(data)))
            pieces.append(data)
            offset += len(data)
        start, proof = encode_head(self.draft, blocks)
        return replace(self.draft, size=len(start) + offset, checksum=proof), [start, *pieces]

    def _encoded(self, found: GroupRows) -> _Encoded:
        return found.group, found.full, *_encode_rows(found.rows, self._codec, self.draft)


def read_part(part: Part, read: Callable[[int, int], bytes], groups: int, codec: ValuesCodec) -> Iterator[GroupRows]:
    """The task's own state, if it has any (group ``TASK_STATE``), then the blocks of these groups. Raises Damaged.

    ``read(offset, size)`` gives bytes of the file, fewer at its end; it may raise OSError.
    """
    for block in read_blocks(part, read):
        if block.group != TASK_STATE and not groups >> block.group & 1:
            continue
        if block.codec == CodecNumber.PICKLE and codec.refuses_pickle:
            raise Damaged(
                f"{whose(part)}, key group {block.group}: pickled, and topology.serializer is msgpack; "
                "restore with the serializer auto, or begin without this checkpoint"
            )
        data = read_data(part, block, read)
        try:
            yield GroupRows(block.group, block.full, codec.decode(block.codec, data))
        except ValuesError as error:
            raise Damaged(f"{whose(part)}, key group {block.group}: {error}") from error


def _encode_rows(rows: list[Row], codec: ValuesCodec, draft: Part) -> tuple[int, bytes]:
    try:
        return codec.encode(rows)
    except Exception as error:  # whatever a user's value raises when it is pickled
        for row in rows:
            try:
                codec.encode([row])
            except Exception as own:
                raise CannotEncode(
                    f"the state of {draft.component}, task {draft.task}, cannot be written: the value of key "
                    f"{row[0]!r:.80}: {type(own).__name__}: {own}"
                ) from own
        raise CannotEncode(f"the state of {draft.component}, task {draft.task}, cannot be written: {error}") from error
