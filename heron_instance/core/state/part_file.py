"""The file of a part: what one task has written for one checkpoint, so that a reader takes only the groups it owns.

Its frame, which proves what is read, is that of ``heron_runtime/wire/checkpoint_formats.py``. Rows are encoded as
values of tuples are (``values_codec``), ``auto`` by default.

A quiet point makes a ``Snapshot`` of what the part will hold. What user code could change before it is encoded, and
what may turn out not to be encodable, is encoded at once; the rest by the thread that writes the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from heron_instance.core.state.taken import GroupRows, Row, Taken
from heron_instance.core.values_codec import CodecNumber, ValuesCodec, ValuesError
from heron_runtime.model.checkpoints import Part
from heron_runtime.wire.checkpoint_formats import (
    TASK_STATE,
    Block,
    Damaged,
    checksum,
    encode_head,
    read_blocks,
    read_data,
    whose,
)

_Encoded = tuple[int, bool, int, bytes]  # group, whether in full, codec, rows


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
