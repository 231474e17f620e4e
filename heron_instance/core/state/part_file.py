"""The file of a part: what one task has written for one checkpoint, so that a reader takes only the groups it owns.

Its frame, which proves what is read, is that of ``heron_runtime/wire/part_heads.py``. Rows are encoded as values of
tuples are (``values_codec``), ``auto`` by default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from heron_instance.core.state.keyed import GroupRows, Row
from heron_instance.core.values_codec import ValuesCodec, ValuesError
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


class CannotEncode(ValueError):
    """Some state cannot be written. The text names the key."""


def encode_part(
    draft: Part, own_state: Iterable[Row], groups: Iterable[GroupRows], codec: ValuesCodec
) -> tuple[Part, list[bytes]]:
    """The pieces of the file, in order, and its part. ``draft`` says whose it is. Raises CannotEncode."""
    blocks: list[Block] = []
    pieces: list[bytes] = []
    offset = 0
    own = GroupRows(TASK_STATE, True, list(own_state))
    for found in (own, *groups) if own.rows else groups:
        number, data = _encode_rows(found.rows, codec, draft)
        blocks.append(Block(found.group, found.full, number, offset, len(data), checksum(data)))
        pieces.append(data)
        offset += len(data)
    start, proof = encode_head(draft, blocks)
    return replace(draft, size=len(start) + offset, checksum=proof), [start, *pieces]


def read_part(part: Part, read: Callable[[int, int], bytes], groups: int, codec: ValuesCodec) -> Iterator[GroupRows]:
    """The task's own state, if it has any (group ``TASK_STATE``), then the blocks of these groups. Raises Damaged.

    ``read(offset, size)`` gives bytes of the file, fewer at its end; it may raise OSError.
    """
    for block in read_blocks(part, read):
        if block.group != TASK_STATE and not groups >> block.group & 1:
            continue
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
