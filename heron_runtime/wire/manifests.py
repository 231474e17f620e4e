"""Manifests as files: JSON that a person can read, behind a line with its checksum.

A manifest says what a checkpoint is made of, so nothing of a checkpoint is believed before the manifest has proved
itself; the parts it names are proved by the checksums in it (``part_heads.py``). Sets of key
groups are written in hexadecimal, since they have 1 024 bits.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

from heron_runtime.model.checkpoints import Adopted, Manifest, Part, Token
from heron_runtime.model.plan import PlanVersion
from heron_runtime.wire.errors import MalformedMessage

FORMAT = "heronry-checkpoint-1"


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
    found = json.loads(body)  # its checksum is right, so it is what was written
    found["plan"] = PlanVersion(**found["plan"])
    found["parts"] = _parts(found["parts"])
    found["layers"] = {component: _parts(parts) for component, parts in found["layers"].items()}
    found["adopted"] = Adopted(found.get("adopted", ""))
    found["tables"] = {component: tuple(tasks) for component, tasks in found["tables"].items()}
    return Manifest(**found)


def _parts(found: list[dict[str, Any]]) -> tuple[Part, ...]:
    return tuple(
        Part(**{**part, "groups": int(part["groups"], 16), "tokens": tuple(Token(**t) for t in part["tokens"])})
        for part in found
    )


def _plain(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _plain(item, key) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return f"{value:x}" if name == "groups" else value


def _checksum(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
