"""Messages as the bytes of the production codecs, and what happens to bytes that were garbled on their way.

Theory of operation. In some worlds (``Network.encodes``) all that processes say to each other, packets and control
messages alike, travels as bytes: encoded when it is sent, decoded when it arrives. Two laws come with that. What
arrives is what was sent, field by field: a codec that drops something is noticed at once, and not only where it leads
to something worse (a lost fail, for one, leads to nothing but a timeout). And a decoder that is given garbled bytes
raises MalformedMessage and nothing else, since links catch nothing else.

A garbled message breaks its connection before any of it has been applied. Often the decoder notices. Where it does not
(a bit of a tuple's values has changed, say) the bytes make another message that is just as valid, and the simulator
breaks the connection as well: under the codec there is TCP, and between hosts TLS, whose checksums have seen it first.
What they let through could be found by no core, so no law is tried on it.
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
    """How the messages of one stream become bytes, and messages again."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


@dataclass(frozen=True)
class Conversation:
    """The control streams of a connection: what its client says, and what its server says."""

    client: Code
    server: Code


def _of(production: Any) -> Code:
    return Code(production.encode, production.decode)


PACKETS = Code(data_codec.encode_packet, data_codec.decode_packet)
INSTANCES = Conversation(_of(message_codecs.INSTANCE_CONTROL), _of(message_codecs.INSTANCE_CONTROL))
PEERS = Conversation(_of(message_codecs.PEER_CONTROL), _of(message_codecs.PEER_CONTROL))
MASTERS = Conversation(_of(message_codecs.TO_MASTER), _of(message_codecs.FROM_MASTER))


class Garbled(Exception):
    """Bytes that are not those that were sent. ``by_decoder``: it was the decoder that noticed."""

    def __init__(self, reason: str, by_decoder: bool) -> None:
        super().__init__(reason)
        self.by_decoder = by_decoder


class Encoded:
    """A message on its way: its bytes, and what it was. ``tuples``: how many it carries."""

    def __init__(self, message: Any, code: Code, tuples: int) -> None:
        self.tuples = tuples
        self._message = message
        self._code = code
        self._data = code.encode(message)
        self._garbled = False

    def garble(self, rng: random.Random) -> None:
        """Flip some of its bits, or cut it short."""
        self._garbled = True
        data = bytearray(self._data)
        if not data or rng.random() < 0.5:
            self._data = bytes(data[: rng.randrange(len(data) or 1)])
            return
        for _ in range(rng.choice((1, 1, 2, 8))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        self._data = bytes(data)

    def decode(self) -> Any:
        """The message that has arrived. Raises Garbled, Violation."""
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
