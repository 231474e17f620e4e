"""Sketch of distinct values, used by every engine: a theta sketch of the Apache DataSketches library.

A theta sketch that is kept trimmed consists of exactly the k smallest hashes of the set, so the estimate is a function
of the set of values. (HyperLogLog's estimate depends on how sketches were merged, and two engines merge differently.)
Values are canonical key bytes, hashed by MurmurHash3, so 1, 1.0 and True are one value in every process.
"""

from __future__ import annotations

import base64
from typing import Any

import mmh3

DEFAULT_LG_K = 12
_SEED = 0x48524E59


def _library() -> Any:
    try:
        import datasketches
    except ImportError:
        raise RuntimeError(
            "distinct() needs the library datasketches, which is not installed: pip install datasketches"
        ) from None
    return datasketches


class DistinctSketch:
    """Mergeable sketch of distinct values. ``update`` takes canonical key bytes."""

    __slots__ = ("_lg_k", "_sketch", "_union")

    def __init__(self, lg_k: int = DEFAULT_LG_K) -> None:
        self._lg_k = lg_k
        self._sketch: Any = None  # sketch of the values added here
        self._union: Any = None  # union of the sketches merged in

    def update(self, key: bytes) -> None:
        """Add one value."""
        if self._sketch is None:
            self._sketch = _library().update_theta_sketch(self._lg_k)
        self._sketch.update(mmh3.hash64(key, _SEED)[0])

    def merge(self, other: DistinctSketch) -> None:
        """Add all values of another sketch, which is unchanged."""
        if self._union is None:
            self._union = _library().theta_union(self._lg_k)
        self._union.update(other.compact())

    def compact(self) -> Any:
        """Return the library's sketch of all values, trimmed and in order."""
        union = _library().theta_union(self._lg_k)
        if self._sketch is not None:
            self._sketch.trim()
            union.update(self._sketch.compact(True))
        if self._union is not None:
            union.update(self._union.get_result(True))
        return union.get_result(True)

    def estimate(self) -> int:
        """Return the estimated number of distinct values."""
        return round(float(self.compact().get_estimate()))

    def to_bytes(self) -> bytes:
        """Return the serialized sketch. The bytes are the same for the same set of values."""
        return bytes(self.compact().serialize())

    @classmethod
    def from_bytes(cls, data: bytes, lg_k: int = DEFAULT_LG_K) -> DistinctSketch:
        """Return the sketch that ``to_bytes`` has serialized."""
        made = cls(lg_k)
        made._union = _library().theta_union(lg_k)
        made._union.update(_library().compact_theta_sketch.deserialize(data))
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return (DistinctSketch.from_bytes, (self.to_bytes(), self._lg_k))

    def __repr__(self) -> str:
        return f"DistinctSketch(about {self.estimate()}, {base64.b16encode(self.to_bytes()[:4]).decode()}…)"
