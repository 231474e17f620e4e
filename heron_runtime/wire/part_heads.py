"""The frame of a part's file: what says who has written it, where its blocks are, and proves that they are whole.

Layout: ``HRNYPART`` and the length of the head (four bytes, little-endian), the head as JSON, then blocks: one for the
task's own state, one for each key group. The head names the writer, and for each block its place and the checksum of
its bytes; the checksum of the part is that of the head. So every byte that is read is covered, a block can be read
without those before it, and whoever wants to know whether a file is whole need not know what stands in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import msgspec

from heron_runtime.model.checkpoints import Part
from heron_runtime.model.ids import KEY_GROUPS
from heron_runtime.wire.errors import UNREADABLE

MAGIC = b"HRNYPART"
FORMAT = 1
TASK_STATE = -1  # the block of the task's own state, in place of a group
_LENGTH_BYTES = 4
_MOST_HEAD_BYTES = 16 * 1024 * 1024
PIECE_BYTES = 1024 * 1024
Read = Callable[[int, int], bytes]  # (offset, size) of the file, fewer bytes at its end; may raise OSError


class Damaged(ValueError):
    """A part cannot be read. The text names file, checkpoint, task and what is wrong."""


class Block(msgspec.Struct, array_like=True):
    """Where the rows of one group are. ``codec`` numbers how they are encoded."""

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
    blocks: list[Block]


def encode_head(part: Part, blocks: list[Block]) -> tuple[bytes, str]:
    """What the file begins with, and the checksum of the part."""
    head = msgspec.json.encode(
        _Head(
            FORMAT, part.component, part.task, part.incarnation, part.generation, part.checkpoint, part.turn,
            f"{part.groups:x}", blocks,
        )
    )  # fmt: skip
    return MAGIC + len(head).to_bytes(_LENGTH_BYTES, "little") + head, checksum(head)


def whose(part: Part) -> str:
    """A part, for people."""
    return f"{part.name} of checkpoint {part.checkpoint} ({part.component}, task {part.task})"


def read_blocks(part: Part, read: Read) -> list[Block]:
    """Its blocks; their offsets are those in the file. Raises Damaged."""
    start = len(MAGIC) + _LENGTH_BYTES
    begin = read(0, start)
    if len(begin) < start or not begin.startswith(MAGIC):
        raise Damaged(f"{whose(part)} is no file of this kind")
    size = int.from_bytes(begin[len(MAGIC) :], "little")
    data = read(start, size) if size <= _MOST_HEAD_BYTES else b""
    if checksum(data) != part.checksum:
        raise Damaged(f"{whose(part)} is damaged in its head, or another file of the same name")
    try:
        head = msgspec.json.decode(data, type=_Head)
    except (*UNREADABLE, RecursionError) as error:  # a checksum proves what was written, not who wrote it
        raise Damaged(f"{whose(part)} has a head that cannot be read: {error}") from None
    if head.format != FORMAT:
        raise Damaged(f"{whose(part)} has format {head.format}; this version of Heronry reads {FORMAT}")
    at = start + size
    for block in head.blocks:
        block.offset += start + size
        if not TASK_STATE <= block.group < KEY_GROUPS:
            raise Damaged(f"{whose(part)} has a block of key group {block.group}")
        if block.offset != at or block.size < 0:
            raise Damaged(f"{whose(part)} has a gap before its block of key group {block.group}")
        at += block.size
    if at != part.size:
        raise Damaged(f"{whose(part)} is too {'short' if at < part.size else 'long'}: {at} bytes of {part.size}")
    return head.blocks


def read_data(part: Part, block: Block, read: Read) -> bytes:
    """The bytes of a block. Raises Damaged."""
    data = read(block.offset, block.size)
    if checksum(data) != block.checksum:
        raise Damaged(f"{whose(part)} is damaged in its block of key group {block.group}")
    return data


def checked_pieces(part: Part, read: Read) -> Iterator[bytes]:
    """Yield the whole file in pieces of bounded size. Raises Damaged, also where it is too long or too short.

    A block has proved itself only when the piece after it is asked for, so discard all pieces if this raises.
    """
    blocks = read_blocks(part, read)
    yield read(0, blocks[0].offset if blocks else part.size)
    for block in blocks:
        proof = hashlib.blake2b(digest_size=16)
        for at in range(block.offset, block.offset + block.size, PIECE_BYTES):
            data = read(at, min(PIECE_BYTES, block.offset + block.size - at))
            if not data:
                break
            proof.update(data)
            yield data
        if proof.hexdigest() != block.checksum:
            raise Damaged(f"{whose(part)} is damaged in its block of key group {block.group}")
    if read(part.size, 1):
        raise Damaged(f"{whose(part)} is too long")


def checksum(data: bytes) -> str:
    """Of a head or block."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()
