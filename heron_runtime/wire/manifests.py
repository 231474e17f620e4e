"""Manifests as files: JSON that a person can read, behind a line with its checksum.

A manifest says what a checkpoint is made of, so nothing of a checkpoint is believed before the manifest has proved
itself; the parts it names are proved by the checksums in it (``part_heads.py``). Sets of key
groups are written in hexadecimal, since they have 1 024 bits.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Annotated, Any

import msgspec

from heron_runtime.model.checkpoints import Adopted, Manifest, Part, Token
from heron_runtime.model.ids import KEY_GROUPS
from heron_runtime.model.plan import PlanVersion
from heron_runtime.wire.errors import UNREADABLE, MalformedMessage

FORMAT = "heronry-checkpoint-1"
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
    """A part as JSON. Its file's name is made of these numbers, so their types keep it inside the folder."""

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

    def part(self) -> Part:
        """Return the part."""
        return Part(
            self.component, self.task, self.incarnation, self.generation, self.checkpoint, self.turn, self.size,
            self.checksum, int(self.groups, 16), tuple(Token(token.checkpoint, token.name) for token in self.tokens),
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
    adopted: Adopted = Adopted.NO


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of the file."""
    body = json.dumps(_plain(asdict(manifest)), indent=1, sort_keys=True).encode()
    return f"{FORMAT} {_checksum(body)}\n".encode() + body + b"\n"


def decode_manifest(data: bytes) -> Manifest:
    """The manifest. Raises MalformedMessage, which says what is wrong with it."""
    head, _, body = data.partition(b"\n")
    name, _, checksum = head.decode("ascii", "replace").partition(" ")
    body = body.rstrip(b"\n")
    if name != FORMAT:
        raise MalformedMessage(f"it begins with {name[:40]!r}; this version of Heronry reads {FORMAT}")
    if _checksum(body) != checksum:
        raise MalformedMessage("it is damaged: its checksum is another one")
    try:
        found = msgspec.json.decode(body, type=_Manifest)
    except (*UNREADABLE, RecursionError) as error:  # a checksum proves what was written, not who wrote it
        raise MalformedMessage(f"it is not a manifest: {error}") from None
    if any(len(table) > KEY_GROUPS for table in found.tables.values()):
        raise MalformedMessage(f"it is not a manifest: a table has more than {KEY_GROUPS} key groups")
    return Manifest(
        found.topology_id, found.checkpoint, found.generation, found.turn,
        PlanVersion(found.plan.epoch, found.plan.number), _parts(found.parts),
        {component: _parts(parts) for component, parts in found.layers.items()}, found.tables, found.code_digest,
        found.shapes, found.adopted,
    )  # fmt: skip


def _parts(found: tuple[_Part, ...]) -> tuple[Part, ...]:
    return tuple(part.part() for part in found)


def _plain(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _plain(item, key) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return f"{value:x}" if name == "groups" else value


def _checksum(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
