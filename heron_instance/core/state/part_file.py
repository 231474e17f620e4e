"""The file of a part: what one task has written for one checkpoint, so that a reader takes only the groups it owns.

Layout: ``HRNYPART`` and the length of the head (four bytes, little-endian), the head as JSON, then blocks: one for the
task's own state, one for each key group. The head names the writer, and for each block its place and the checksum of
its bytes; the checksum of the part is that of the head. So every byte that is read is covered, and a block can be read
without those before it. Rows are encoded as values of tuples are (``values_codec``), ``auto`` by default.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import msgspec

from heron_instance.core.state.keyed import GroupRows, Row
from heron_instance.core.values_codec import ValuesCodec, ValuesError
from heron_runtime.model.checkpoints import Part

MAGIC = b"HRNYPART"
FORMAT = 1
TASK_STATE = -1  # the block of the task's own state, in place of a group
_LENGTH_BYTES = 4
_MOST_HEAD_BYTES = 16 * 1024 * 1024


class Damaged(ValueError):
    """A part cannot be read. The text names file, checkpoint, task and what is wrong."""


class CannotEncode(ValueError):
    """Some state cannot be written. The text names the key."""


class _Block(msgspec.Struct, array_like=True):
    group: int
    full: bool
    codec: int
    offset: int
    size: int
    checksum: str


class _Head(msgspec.Struct):
    format: int
    component: str
    task: int
    incarnation: int
    generation: int
    checkpoint: int
    turn: int
    groups: str
    blocks: list[_Block]


def encode_part(
    draft: Part, own_state: Iterable[Row], groups: Iterable[GroupRows], codec: ValuesCodec
) -> tuple[Part, list[bytes]]:
    """The pieces of the file, in order, and its part. ``draft`` says whose it is. Raises CannotEncode."""
    blocks: list[_Block] = []
    pieces: list[bytes] = []
    offset = 0
    own = GroupRows(TASK_STATE, True, list(own_state))
    for found in (own, *groups) if own.rows else groups:
        number, data = _encode_rows(found.rows, codec, draft)
        blocks.append(_Block(found.group, found.full, number, offset, len(data), _checksum(data)))
        pieces.append(data)
        offset += len(data)
    head = msgspec.json.encode(
        _Head(
            FORMAT, draft.component, draft.task, draft.incarnation, draft.generation, draft.checkpoint, draft.turn,
            f"{draft.groups:x}", blocks,
        )
    )  # fmt: skip
    start = MAGIC + len(head).to_bytes(_LENGTH_BYTES, "little") + head
    return replace(draft, size=len(start) + offset, checksum=_checksum(head)), [start, *pieces]


def read_part(part: Part, read: Callable[[int, int], bytes], groups: int, codec: ValuesCodec) -> Iterator[GroupRows]:
    """The task's own state, if it has any (group ``TASK_STATE``), then the blocks of these groups. Raises Damaged.

    ``read(offset, size)`` gives bytes of the file, fewer at its end; it may raise OSError.
    """
    where = f"{part.name} of checkpoint {part.checkpoint} ({part.component}, task {part.task})"
    head, start = _read_head(part, read, where)
    for block in head.blocks:
        if block.group != TASK_STATE and not groups >> block.group & 1:
            continue
        data = read(start + block.offset, block.size)
        if _checksum(data) != block.checksum:
            raise Damaged(f"{where} is damaged in its block of key group {block.group}")
        try:
            yield GroupRows(block.group, block.full, codec.decode(block.codec, data))
        except ValuesError as error:
            raise Damaged(f"{where}, key group {block.group}: {error}") from error


def _read_head(part: Part, read: Callable[[int, int], bytes], where: str) -> tuple[_Head, int]:
    start = len(MAGIC) + _LENGTH_BYTES
    begin = read(0, start)
    if len(begin) < start or not begin.startswith(MAGIC):
        raise Damaged(f"{where} is no file of this kind")
    size = int.from_bytes(begin[len(MAGIC) :], "little")
    data = read(start, size) if size <= _MOST_HEAD_BYTES else b""
    if _checksum(data) != part.checksum:
        raise Damaged(f"{where} is damaged in its head, or another file of the same name")
    head = msgspec.json.decode(data, type=_Head)  # its checksum is the one that was promised
    if head.format != FORMAT:
        raise Damaged(f"{where} has format {head.format}; this version of Heronry reads {FORMAT}")
    return head, start + size


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


def _checksum(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
