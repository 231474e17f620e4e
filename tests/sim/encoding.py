"""Messages as bytes of the production codecs, and the handling of garbled bytes.

Theory of operation. In some simulations (``Network.encodes``) all messages between processes, packets and control
messages alike, travel as bytes: encoded when sent, decoded when received. This adds two invariants. The received
message equals the sent one, field by field: a codec that drops a field is detected at once, and not only where it leads
to a visible fault (a lost fail, for example, leads only to a timeout). And a decoder that is given garbled bytes raises
MalformedMessage and no other exception, since links catch no other.

A garbled message breaks its connection before any of it has been applied. Often the decoder notices. Otherwise (for
example if one bit of a tuple's values has changed) the bytes form another valid message, and the simulator breaks the
connection as well: below the codec there is TCP, and between hosts TLS, whose checksums have already detected the
change. No core could detect what these checksums miss, so no invariant is checked on it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heron_runtime.wire import data_codec, message_codecs
from heron_runtime.wire.errors import MalformedMessage

from .simulation import Violation


@dataclass(frozen=True)
class Code:
    """Codec of one stream: messages to bytes and back."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


@dataclass(frozen=True)
class Conversation:
    """Control streams of a connection: messages of its client, and messages of its server."""

    client: Code
    server: Code


def _of(production: Any) -> Code:
    return Code(production.encode, production.decode)


PACKETS = Code(data_codec.encode_packet, data_codec.decode_packet)
INSTANCES = Conversation(_of(message_codecs.INSTANCE_CONTROL), _of(message_codecs.INSTANCE_CONTROL))
PEERS = Conversation(_of(message_codecs.PEER_CONTROL), _of(message_codecs.PEER_CONTROL))
MASTERS = Conversation(_of(message_codecs.TO_MASTER), _of(message_codecs.FROM_MASTER))


class Garbled(Exception):
    """Signal that bytes differ from those sent. ``by_decoder``: the decoder has noticed it."""

    def __init__(self, reason: str, by_decoder: bool) -> None:
        super().__init__(reason)
        self.by_decoder = by_decoder


class Encoded:
    """Message in flight: its bytes and its original. ``tuples``: how many it carries."""

    def __init__(self, message: Any, code: Code, tuples: int) -> None:
        self.tuples = tuples
        self._message = message
        self._code = code
        self._data = code.encode(message)
        self._garbled = False

    def garble(self, rng: random.Random) -> None:
        """Flip some of its bits, or truncate it."""
        self._garbled = True
        data = bytearray(self._data)
        if not data or rng.random() < 0.5:
            self._data = bytes(data[: rng.randrange(len(data) or 1)])
            return
        for _ in range(rng.choice((1, 1, 2, 8))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        self._data = bytes(data)

    def decode(self) -> Any:
        """Return the received message. Raises Garbled, Violation."""
        try:
            message = self._code.decode(self._data)
        except MalformedMessage as error:
            if not self._garbled:
                raise Violation(f"{self._message!r} cannot be decoded: {error}") from error
            raise Garbled(str(error), by_decoder=True) from error
        except Exception as error:
            raise Violation(f"a decoder raises {type(error).__name__}: {error}") from error
        if self._garbled:
            raise Garbled("its checksum is wrong", by_decoder=False)
        if message != self._message:
            raise Violation(f"what arrives is not what was sent: {message!r}, not {self._message!r}")
        return message
