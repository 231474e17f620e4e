"""Codec of sketches: DDSketch's own protobuf, used in ``ProcessMetrics.sketches`` and ``MetricValue.sketch``.

Any DDSketch library can read them (``ddsketch.pb.proto.DDSketchProto`` in Python).
"""

from __future__ import annotations

from collections.abc import Mapping

from ddsketch.pb import ddsketch_pb2
from google.protobuf.message import DecodeError

from heron_runtime.model.sketch import GAMMA, ZERO_BIN, Sketch
from heron_runtime.wire.errors import MalformedMessage

_MAX_BINS = 4096


def encode_sketch(sketch: Sketch) -> bytes:
    """Return ``sketch`` as a protobuf ``DDSketch``."""
    message = ddsketch_pb2.DDSketch(zeroCount=sketch.bins.get(ZERO_BIN, 0.0))
    message.mapping.gamma = GAMMA
    keys = [key for key in sketch.bins if key != ZERO_BIN]
    if keys:
        first, last = min(keys), max(keys)
        message.positiveValues.contiguousBinIndexOffset = first
        message.positiveValues.contiguousBinCounts.extend(sketch.bins.get(k, 0.0) for k in range(first, last + 1))
    return bytes(message.SerializeToString())


def check_sketches(sketches: Mapping[str, bytes], known: Mapping[str, bytes]) -> None:
    """Raise MalformedMessage if a sketch cannot be decoded. Sketches equal to `known` ones are not decoded again."""
    for name, data in sketches.items():
        if known.get(name) != data:
            decode_sketch(data)


def decode_sketch(data: bytes) -> Sketch:
    """Return the sketch in ``data``. Raises MalformedMessage, also for another accuracy or too many bins."""
    try:
        message = ddsketch_pb2.DDSketch()
        message.ParseFromString(data)
    except DecodeError as error:
        raise MalformedMessage(f"not a DDSketch: {error}") from None
    store = message.positiveValues
    if not data:
        return Sketch()
    if abs(message.mapping.gamma - GAMMA) > 1e-9:
        raise MalformedMessage(f"sketch with gamma {message.mapping.gamma}, expected {GAMMA}")
    if len(store.contiguousBinCounts) > _MAX_BINS or len(store.binCounts) > _MAX_BINS:
        raise MalformedMessage(f"sketch with more than {_MAX_BINS} bins")
    bins = {key: count for key, count in store.binCounts.items() if count > 0}
    for key, count in enumerate(store.contiguousBinCounts, store.contiguousBinIndexOffset):
        if count > 0:
            bins[key] = bins.get(key, 0.0) + count
    if message.zeroCount > 0:
        bins[ZERO_BIN] = message.zeroCount
    return Sketch(bins)
