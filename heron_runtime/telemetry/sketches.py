"""Sketches as bytes: DDSketch's own protobuf, as ``ProcessMetrics.sketches`` and ``MetricValue.sketch`` carry them.

Any DDSketch library can read them (``ddsketch.pb.proto.DDSketchProto`` in Python). Cores add and subtract sketches, so
the few fields are read and written here without protobuf's library: a mapping (1) with its gamma (1); positive values
(2) as a map (1), or as counts of neighbouring bins (2) from an offset (3); and the count of zeros (4). Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from heron_runtime.model.sketch import GAMMA, ZERO_BIN, Sketch
from heron_runtime.wire.errors import MalformedMessage

_MAX_BINS = 4096
_DOUBLE = struct.Struct("<d")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_MAX_VARINT_BYTES = 10


def encode_sketch(sketch: Sketch) -> bytes:
    """``sketch`` as a protobuf ``DDSketch``."""
    parts = [_field(1, b"\x09" + _DOUBLE.pack(GAMMA))]
    keys = [key for key in sketch.bins if key != ZERO_BIN]
    if keys:
        first, last = min(keys), max(keys)
        counts = [sketch.bins.get(key, 0.0) for key in range(first, last + 1)]
        packed = _field(2, struct.pack(f"<{len(counts)}d", *counts))
        parts.append(_field(2, packed + b"\x18" + _varint(first << 1 if first >= 0 else (-first << 1) - 1)))
    if zeros := sketch.bins.get(ZERO_BIN, 0.0):
        parts.append(b"\x21" + _DOUBLE.pack(zeros))
    return b"".join(parts)


def decode_sketch(data: bytes) -> Sketch:
    """The sketch in ``data``. Raises MalformedMessage, also for another accuracy or an absurd size."""
    if not data:
        return Sketch()
    gamma = zeros = 0.0
    bins: dict[int, float] = {}
    counts: list[float] = []
    offset = 0
    for number, kind, value in _fields(data):
        if (number, kind) == (1, _BYTES):
            gamma = _last(value, 1, _FIXED64, gamma)
        elif (number, kind) == (4, _FIXED64):
            (zeros,) = _DOUBLE.unpack(value)
        elif (number, kind) == (2, _BYTES):
            offset = _store(value, bins, counts, offset)
    if abs(gamma - GAMMA) > 1e-9:
        raise MalformedMessage(f"sketch with gamma {gamma}, expected {GAMMA}")
    found = {key: count for key, count in bins.items() if count > 0}
    for key, count in enumerate(counts, offset):
        if count > 0:
            found[key] = found.get(key, 0.0) + count
    if zeros > 0:
        found[ZERO_BIN] = zeros
    return Sketch(found)


def _store(data: bytes, bins: dict[int, float], counts: list[float], offset: int) -> int:
    """Add the bins of a message ``Store``; returns the offset of ``counts``."""
    for number, kind, value in _fields(data):
        if (number, kind) == (1, _BYTES):
            bins[_signed(_last_number(value, 1))] = _last(value, 2, _FIXED64, 0.0)
        elif number == 2 and kind in (_BYTES, _FIXED64):
            if len(value) % _DOUBLE.size:
                raise MalformedMessage("not a DDSketch: counts that are cut off")
            counts.extend(count for (count,) in _DOUBLE.iter_unpack(value))
        elif (number, kind) == (3, _VARINT):
            offset = _signed(_number(value))
        if len(bins) > _MAX_BINS or len(counts) > _MAX_BINS:
            raise MalformedMessage(f"sketch with more than {_MAX_BINS} bins")
    return offset


def _last(data: bytes, number: int, kind: int, default: float) -> float:
    """The last double of this number in a message."""
    for found, of, value in _fields(data):
        if (found, of) == (number, kind):
            (default,) = _DOUBLE.unpack(value)
    return default


def _last_number(data: bytes, number: int) -> int:
    """The last whole number of this number in a message."""
    return next((_number(v) for n, k, v in reversed([*_fields(data)]) if (n, k) == (number, _VARINT)), 0)


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Number, wire type and value of each field. Raises MalformedMessage."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        begin = at
        if kind == _VARINT:
            _, at = _read_varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        elif kind == _BYTES:
            size, begin = _read_varint(data, at)
            at = begin + size
        else:
            raise MalformedMessage(f"not a DDSketch: a field of wire type {kind}")
        if at > len(data) or number == 0:
            raise MalformedMessage("not a DDSketch: it is cut off or damaged")
        yield number, kind, data[begin:at]


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(_MAX_VARINT_BYTES):
        if at >= len(data):
            raise MalformedMessage("not a DDSketch: it is cut off")
        byte = data[at]
        value |= (byte & 0x7F) << (7 * shift)
        at += 1
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise MalformedMessage("not a DDSketch: a number that is too long")


def _number(data: bytes) -> int:
    return _read_varint(data, 0)[0] & 0xFFFFFFFF  # sint32


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | _BYTES]) + _varint(len(value)) + value
