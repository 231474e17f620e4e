"""(key, accumulator) as the bytes that cross the shuffle, and back.

Most keys and accumulators are plain scalars, which MessagePack writes three times as fast as pickle; all others are
pickled. The first byte tells: an array of two is 0x92 in MessagePack, and pickles begin with 0x80.
"""

from __future__ import annotations

import pickle
from typing import Any

import msgspec

_SCALARS = frozenset({str, int, float, bool, type(None)})
_ARRAY_OF_TWO = 0x92
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def dump(key: Any, accumulator: Any) -> bytes:
    """Raises what the user's classes raise when they are pickled."""
    if key.__class__ in _SCALARS and accumulator.__class__ in _SCALARS:
        try:
            return _encode((key, accumulator))
        except (OverflowError, UnicodeEncodeError, msgspec.MsgspecError):
            pass  # an int beyond 64 bits, a lone surrogate
    return pickle.dumps((key, accumulator), pickle.HIGHEST_PROTOCOL)


def load(payload: bytes) -> Any:
    """The pair, equal to what was dumped and of the same types."""
    return _decode(payload) if payload[0] == _ARRAY_OF_TWO else pickle.loads(payload)
