"""Handshake of a link: both ends prove that they know the key of the task without sending it.

::

    caller    Opening(version, stream, topology, task, incarnation, nonce of the caller)
    server    Challenge(nonce of the server, proof of the server)
    caller    proof of the caller
    server    accepted                                  or, instead of any answer: refused, and why

Each task has its own key, derived from the topology's secret. A stream manager has the secret and can derive every key.
An instance, which runs user code, has only its own key. It cannot derive the secret or another task's key from it.

A proof is HMAC-SHA256 with that key over the role of the prover, the opening as it was sent, and the nonce of the
server. It is thus valid for one task, one incarnation, one stream and one connection. A replayed proof fails because
the nonce differs, and a reflected one because the role differs. Until the other end is authenticated, frames of more
than 4 096 bytes are refused.
"""

from __future__ import annotations

import hmac
import struct
from typing import Annotated, TypeVar

import msgspec

from heron_runtime.net.frames import Tag
from heron_runtime.wire.errors import UNREADABLE, MalformedMessage

LINK_VERSION = 1
NONCE_BYTES = 32
CALLER = b"heronry link, caller"
SERVER = b"heronry link, server"
DOWNLOAD = "heronry package, caller"
INSTANCE = "heronry instance"
KEY_BYTES = 64  # of an instance's key: 32 random ones, as hex

T = TypeVar("T")
_Nonce = Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]


class LinkRefused(Exception):
    """One end refuses the other. The text is the reason."""


class Opening(msgspec.Struct, frozen=True):
    """First message of the caller: its identity and the requested stream."""

    version: int
    stream: int
    topology_id: str
    task: int
    incarnation: int
    nonce: _Nonce


class Challenge(msgspec.Struct, frozen=True):
    """Answer of the server to an opening."""

    nonce: _Nonce
    proof: bytes


_OPENING = msgspec.msgpack.Decoder(Opening)
_CHALLENGE = msgspec.msgpack.Decoder(Challenge)
encode = msgspec.msgpack.encode


def decode_opening(body: bytes) -> Opening:
    """Decode the opening in ``body``. Raises MalformedMessage, or LinkRefused if the other end has another version."""
    opening = _decode(_OPENING, body, "opening")
    if opening.version != LINK_VERSION:
        raise LinkRefused(f"links are of version {LINK_VERSION} here, not {opening.version}: restart the container")
    if opening.stream not in (Tag.CONTROL, Tag.DATA):
        raise MalformedMessage(f"unknown stream {opening.stream}")
    return opening


def decode_challenge(body: bytes) -> Challenge:
    """Decode the challenge in ``body``. Raises MalformedMessage."""
    return _decode(_CHALLENGE, body, "challenge")


def instance_key(secret: str, topology_id: str, container: int, task: int) -> str:
    """Return the key by which a task and its stream manager authenticate each other."""
    text = "\0".join((INSTANCE, topology_id, str(container), str(task)))
    return hmac.digest(secret.encode(), text.encode(), "sha256").hex()


def prove(key: str, role: bytes, opening: bytes, nonce: bytes) -> bytes:
    """Return the proof of ``role`` for an opening, as it was sent, and a nonce of the server."""
    text = role + struct.pack("<I", len(opening)) + opening + nonce
    return hmac.digest(key.encode(), text, "sha256")


def prove_download(secret: str, topology_id: str, digest: str, nonce: str) -> str:
    """Return the proof with which a container requests a package from the API server, for a nonce of that server."""
    text = "\0".join((DOWNLOAD, topology_id, digest, nonce)).encode("utf-8", "surrogatepass")
    return hmac.digest(secret.encode(), text, "sha256").hex()


def is_proof(given: bytes, key: str, role: bytes, opening: bytes, nonce: bytes) -> bool:
    """Return True if ``given`` is the expected proof. The comparison takes constant time."""
    return hmac.compare_digest(given, prove(key, role, opening, nonce))


def _decode(decoder: msgspec.msgpack.Decoder[T], body: bytes, what: str) -> T:
    try:
        return decoder.decode(body)
    except UNREADABLE as error:
        raise MalformedMessage(f"not the {what} of a link: {error}") from None
