"""Files of checkpoints: manifests, and the frame of the parts that tasks write.

A manifest names the parts of a checkpoint. It is a line with a checksum, followed by readable JSON. It is verified
before anything else of the checkpoint is read, and its checksums verify the parts. Sets of key groups are hexadecimal,
since they have 1 024 bits.

A part is `HRNYPART`, the length of the head (four bytes, little-endian), the head as JSON, then blocks: one for the
task's own state, one for each key group. The head names the writer and, for each block, its position and the checksum
of its bytes; the checksum of the part is that of the head. Every byte is thus covered, a block can be read without the
blocks before it, and a file can be verified without knowledge of its contents.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Annotated, Any

import msgspec

from heron_runtime.model.checkpoints import AdoptionMode, CommitToken, Manifest, StatePart
from heron_runtime.model.ids import KEY_GROUPS
from heron_runtime.model.plan import PlanVersion
from heron_runtime.wire.errors import UNREADABLE, MalformedMessage

MANIFEST_FORMAT = "heronry-checkpoint-1"
MOST_BYTES = 256 * 1024 * 1024  # of a manifest's file
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
_Groups = Annotated[str, msgspec.Meta(pattern=f"^[0-9a-f]{{1,{KEY_GROUPS // 4}}}$")]


class _Plan(msgspec.Struct, forbid_unknown_fields=True):
    epoch: _Number
    number: _Number


class _Token(msgspec.Struct, forbid_unknown_fields=True):
    checkpoint: _Number
    name: str


class _Part(msgspec.Struct, forbid_unknown_fields=True):
    """Part as JSON.

    The file name of the part consists of these numbers. Their types ensure that the file is inside the folder.
    """

    component: _Name
    task: _Number
    incarnation: Annotated[int, msgspec.Meta(ge=0)]
    generation: _Number
    checkpoint: _Number
    turn: _Number
    size: _Number
    checksum: Annotated[str, msgspec.Meta(max_length=128)]
    groups: _Groups = "0"
    tokens: tuple[_Token, ...] = ()

    def part(self) -> StatePart:
        """Return the part."""
        return StatePart(
            self.component, self.task, self.incarnation, self.generation, self.checkpoint, self.turn, self.size,
            self.checksum, int(self.groups, 16),
            tuple(CommitToken(token.checkpoint, token.name) for token in self.tokens),
        )  # fmt: skip


class _Manifest(msgspec.Struct, forbid_unknown_fields=True):
    topology_id: str
    checkpoint: _Number
    generation: _Number
    turn: Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
    plan: _Plan
    parts: tuple[_Part, ...] = ()
    layers: dict[_Name, tuple[_Part, ...]] = {}
    tables: dict[_Name, tuple[_Number, ...]] = {}
    code_digest: str = ""
    shapes: dict[str, str] = {}
    adopted: AdoptionMode = AdoptionMode.NO


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the manifest as the bytes of its file."""
    body = json.dumps(_plain(asdict(manifest)), indent=1, sort_keys=True).encode()
    return f"{MANIFEST_FORMAT} {_checksum(body)}\n".encode() + body + b"\n"


def decode_manifest(data: bytes) -> Manifest:
    """Decode the bytes of a manifest's file. Raises MalformedMessage with a description of the fault."""
    head, _, body = data.partition(b"\n")
    name, _, checksum = head.decode("ascii", "replace").partition(" ")
    body = body.rstrip(b"\n")
    if name != MANIFEST_FORMAT:
        raise MalformedMessage(f"it begins with {name[:40]!r}; this version of Heronry reads {MANIFEST_FORMAT}")
    if _checksum(body) != checksum:
        raise MalformedMessage("it is damaged: its checksum does not match")
    try:
        manifest = msgspec.json.decode(body, type=_Manifest)
    except (*UNREADABLE, RecursionError) as error:  # a checksum proves integrity, not the identity of the writer
        raise MalformedMessage(f"it is not a manifest: {error}") from None
    if any(len(table) > KEY_GROUPS for table in manifest.tables.values()):
        raise MalformedMessage(f"it is not a manifest: a table has more than {KEY_GROUPS} key groups")
    return Manifest(
        manifest.topology_id, manifest.checkpoint, manifest.generation, manifest.turn,
        PlanVersion(manifest.plan.epoch, manifest.plan.number), _parts(manifest.parts),
        {component: _parts(parts) for component, parts in manifest.layers.items()}, manifest.tables,
        manifest.code_digest, manifest.shapes, manifest.adopted,
    )  # fmt: skip


def _parts(parts: tuple[_Part, ...]) -> tuple[StatePart, ...]:
    return tuple(part.part() for part in parts)


def _plain(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _plain(item, key) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return f"{value:x}" if name == "groups" else value


def _checksum(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


MAGIC = b"HRNYPART"
PART_FORMAT = 1
TASK_STATE = -1  # the block of the task's own state, in place of a group
_LENGTH_BYTES = 4
_MOST_HEAD_BYTES = 16 * 1024 * 1024
PIECE_BYTES = 1024 * 1024
Read = Callable[[int, int], bytes]  # (offset, size) of the file, fewer bytes at its end; may raise OSError


class DamagedPart(ValueError):
    """A part cannot be read. The text names file, checkpoint, task and what is wrong."""


class Block(msgspec.Struct, array_like=True):
    """Position of the rows of one key group in a part. ``codec`` is the number of their encoding."""

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


def encode_head(part: StatePart, blocks: list[Block]) -> tuple[bytes, str]:
    """Return the beginning of the file and the checksum of the part."""
    head = msgspec.json.encode(
        _Head(
            PART_FORMAT, part.component, part.task, part.incarnation, part.generation, part.checkpoint, part.turn,
            f"{part.groups:x}", blocks,
        )
    )  # fmt: skip
    return MAGIC + len(head).to_bytes(_LENGTH_BYTES, "little") + head, checksum(head)


def whose(part: StatePart) -> str:
    """Return a description of a part for messages."""
    return f"{part.name} of checkpoint {part.checkpoint} ({part.component}, task {part.task})"


def read_blocks(part: StatePart, read: Read) -> list[Block]:
    """Read the blocks of a part, with their offsets in the file. Raises DamagedPart."""
    start = len(MAGIC) + _LENGTH_BYTES
    begin = read(0, start)
    if len(begin) < start or not begin.startswith(MAGIC):
        raise DamagedPart(f"{whose(part)} is not a checkpoint part")
    size = int.from_bytes(begin[len(MAGIC) :], "little")
    data = read(start, size) if size <= _MOST_HEAD_BYTES else b""
    if checksum(data) != part.checksum:
        raise DamagedPart(f"{whose(part)} is damaged in its head, or another file of the same name")
    try:
        head = msgspec.json.decode(data, type=_Head)
    except (*UNREADABLE, RecursionError) as error:  # a checksum proves integrity, not the identity of the writer
        raise DamagedPart(f"{whose(part)} has a head that cannot be read: {error}") from None
    if head.format != PART_FORMAT:
        raise DamagedPart(f"{whose(part)} has format {head.format}; this version of Heronry reads {PART_FORMAT}")
    at = start + size
    for block in head.blocks:
        block.offset += start + size
        if not TASK_STATE <= block.group < KEY_GROUPS:
            raise DamagedPart(f"{whose(part)} has a block of key group {block.group}")
        if block.offset != at or block.size < 0:
            raise DamagedPart(f"{whose(part)} has a gap before its block of key group {block.group}")
        at += block.size
    if at != part.size:
        raise DamagedPart(f"{whose(part)} is too {'short' if at < part.size else 'long'}: {at} bytes of {part.size}")
    return head.blocks


def read_data(part: StatePart, block: Block, read: Read) -> bytes:
    """Read and verify the bytes of a block. Raises DamagedPart."""
    data = read(block.offset, block.size)
    if checksum(data) != block.checksum:
        raise DamagedPart(f"{whose(part)} is damaged in its block of key group {block.group}")
    return data


def checked_pieces(part: StatePart, read: Read) -> Iterator[bytes]:
    """Yield the whole file in pieces of bounded size. Raises DamagedPart, also if it is too long or too short.

    A block is verified only after all its pieces were yielded. The caller must therefore discard all pieces if this
    raises.
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
            raise DamagedPart(f"{whose(part)} is damaged in its block of key group {block.group}")
    if read(part.size, 1):
        raise DamagedPart(f"{whose(part)} is too long")


def checksum(data: bytes) -> str:
    """Return the checksum of a head or block."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()
