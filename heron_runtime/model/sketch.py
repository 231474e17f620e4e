"""Distributions as values: DDSketch's bins, with addition, subtraction and quantiles.

DDSketch counts a value v > 0 in bin ceil(log_gamma(v)). Every result is within 1 % of the true value, and two sketches
are added bin by bin. Addition is therefore exact, associative and commutative. Since the bins of one process only
increase, a later sketch minus an earlier one is the sketch of the values in between. Processes report totals, and
consumers subtract to get an interval.

The bins are those of ``ddsketch`` (same gamma, same keys; ``heron_runtime.wire.sketch_codec`` reads and writes its
protobuf). Here they are a plain mapping, since the cores compute with them and must not depend on protobuf. Values are
milliseconds or a user's measurements. They are clamped to 10^-6 … 10^12, so that a sketch has at most 2 075 bins. Zero
and negative values count as zero.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

ACCURACY = 0.01
GAMMA = (1 + ACCURACY) / (1 - ACCURACY)
_MULTIPLIER = 1 / math.log(GAMMA)
MIN_VALUE, MAX_VALUE = 1e-6, 1e12
ZERO_BIN = -(1 << 31)  # key of the bin for zeros
_ENTRY = struct.Struct("<id")


def bin_of(value: float) -> int:
    """Return the bin that counts ``value``."""
    if value < MIN_VALUE:
        return ZERO_BIN
    return math.ceil(math.log(min(value, MAX_VALUE)) * _MULTIPLIER)


def value_of(key: int) -> float:
    """Return the representative value of a bin, which is within 1 % of each value counted there."""
    return 0.0 if key == ZERO_BIN else math.exp(key / _MULTIPLIER) * (2.0 / (1.0 + GAMMA))


@dataclass(frozen=True, slots=True)
class Sketch:
    """Sketch: mapping from bin to count, without empty bins. Treat as immutable."""

    bins: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Iterable[float]) -> Sketch:
        """Return the sketch of these values."""
        bins: dict[int, float] = {}
        for value in values:
            key = bin_of(value)
            bins[key] = bins.get(key, 0.0) + 1.0
        return cls(bins)

    @property
    def count(self) -> float:
        """Number of values."""
        return sum(self.bins.values())

    @property
    def sum(self) -> float:
        """Sum of the values, within 1 %."""
        return sum(value_of(key) * count for key, count in self.bins.items())

    @property
    def mean(self) -> float:
        """Mean of the values, within 1 %; 0 for an empty sketch."""
        count = self.count
        return self.sum / count if count else 0.0

    def __add__(self, other: Sketch) -> Sketch:
        if not other.bins:
            return self
        bins = dict(self.bins)
        for key, count in other.bins.items():
            bins[key] = bins.get(key, 0.0) + count
        return Sketch(bins)

    def __sub__(self, earlier: Sketch) -> Sketch:
        """Return the values since `earlier`. A bin that shrank, which is unexpected, counts as unchanged."""
        rest = {key: count - earlier.bins.get(key, 0.0) for key, count in self.bins.items()}
        return Sketch({key: count for key, count in rest.items() if count > 0})

    def join(self, other: Sketch) -> Sketch:
        """Return the later of two states of one growing sketch: the maximum of each bin. Order and repeats are safe."""
        bins = dict(self.bins)
        for key, count in other.bins.items():
            if count > bins.get(key, 0.0):
                bins[key] = count
        return Sketch(bins)

    def quantile(self, q: float) -> float | None:
        """Return the q-quantile (0…1) within 1 %, or None for an empty sketch."""
        return self.quantiles((q,))[0]

    def quantiles(self, qs: Iterable[float]) -> list[float | None]:
        """Return several quantiles at once."""
        keys = sorted(self.bins)
        total = self.count
        answers: list[float | None] = []
        for q in qs:
            if not total or not 0 <= q <= 1:
                answers.append(None)
                continue
            rank, below, quantile_key = q * (total - 1), 0.0, keys[-1]
            for key in keys:
                below += self.bins[key]
                if below > rank:
                    quantile_key = key
                    break
            answers.append(value_of(quantile_key))
        return answers

    def count_up_to(self, bound: float) -> float:
        """Return the number of values up to `bound` (a histogram bucket), within 1 % of the bound."""
        last = bin_of(bound)
        return sum(count for key, count in self.bins.items() if key <= last)

    def pack(self) -> bytes:
        """Return the bins as bytes, 12 for each bin, in order. Small enough to keep hundreds of sketches."""
        return b"".join(_ENTRY.pack(key, self.bins[key]) for key in sorted(self.bins))

    @classmethod
    def unpack(cls, data: bytes) -> Sketch:
        """Return the sketch in the result of ``pack``."""
        return cls(dict(_ENTRY.iter_unpack(data)))


EMPTY_SKETCH = Sketch()
