"""Handshake of a link: both ends prove that they know the key of the task without sending it.

::

    caller    Opening(version, stream, topology, task, incarnation, nonce of the caller)
    server    Challenge(nonce of the server, proof of the server)
    caller    proof of the caller
    server    accepted                                  or, instead of any answer: refused, and why

The key is the task's own, derived from the topology's secret: a stream manager knows the secret and so every key, an
instance, which runs user code, knows its own key and nothing that leads to the secret or to another task's.

A proof is HMAC-SHA256 with that key over the role of who proves, the opening as it was sent and the nonce of the
server. So it holds for one task, one incarnation, one stream and one connection: played again it meets another nonce,
sent back it names the wrong role. Until an end is satisfied it reads no frame of more than 4 096 bytes.
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
    """One end refuses the other; the text says why."""


class Opening(msgspec.Struct, frozen=True):
    """First message of the caller: its identity and the stream it wants."""

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
    """The opening in ``body``. Raises MalformedMessage, and LinkRefused where the other end speaks another version."""
    opening = _decode(_OPENING, body, "opening")
    if opening.version != LINK_VERSION:
        raise LinkRefused(f"links are of version {LINK_VERSION} here, not {opening.version}: restart the container")
    if opening.stream not in (Tag.CONTROL, Tag.DATA):
        raise MalformedMessage(f"there is no stream {opening.stream}")
    return opening


def decode_challenge(body: bytes) -> Challenge:
    """The challenge in ``body``. Raises MalformedMessage."""
    return _decode(_CHALLENGE, body, "challenge")


def instance_key(secret: str, topology_id: str, container: int, task: int) -> str:
    """The key by which this task and its stream manager know each other."""
    text = "\0".join((INSTANCE, topology_id, str(container), str(task)))
    return hmac.digest(secret.encode(), text.encode(), "sha256").hex()


def prove(key: str, role: bytes, opening: bytes, nonce: bytes) -> bytes:
    """The proof of ``role`` for this opening, as it was sent, and this nonce of the server."""
    text = role + struct.pack("<I", len(opening)) + opening + nonce
    return hmac.digest(key.encode(), text, "sha256")


def prove_download(secret: str, topology_id: str, digest: str, nonce: str) -> str:
    """The proof of a container that asks the api server for this package, under a nonce that it was given."""
    text = "\0".join((DOWNLOAD, topology_id, digest, nonce)).encode("utf-8", "surrogatepass")
    return hmac.digest(secret.encode(), text, "sha256").hex()


def is_proof(given: bytes, key: str, role: bytes, opening: bytes, nonce: bytes) -> bool:
    """True if ``given`` is that proof; takes the same time whatever it is."""
    return hmac.compare_digest(given, prove(key, role, opening, nonce))


def _decode(decoder: msgspec.msgpack.Decoder[T], body: bytes, what: str) -> T:
    try:
        return decoder.decode(body)
    except UNREADABLE as error:
        raise MalformedMessage(f"not the {what} of a link: {error}") from None
