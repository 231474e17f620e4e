"""Gauges over time: 5 s points for 10 minutes, 1 minute points for 3 hours, as ``history`` keeps growth.

A gauge has no growth; a point keeps the least, the greatest, the last, the sum and the number of the values that came
while it was current. So points roll up: the minute's are those of all its values (a mean of means would not be), and a
point nobody reported in is empty, which is not the same as 0. Both rings are given the same values, so what they say of
whole minutes is the same.

Bound: 5 columns of 8 bytes for 300 points, 12 000 bytes a gauge, and some 1 100 bytes of objects.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, nan

from topology_master.core.history import COARSE_POINTS, COARSE_SECONDS, FINE_POINTS, FINE_SECONDS, window


@dataclass(frozen=True, slots=True)
class GaugePoint:
    """What is known of a span of time. Without values ``count`` is 0 and the others are NaN."""

    minimum: float = nan
    maximum: float = nan
    mean: float = nan
    last: float = nan
    count: float = 0.0


EMPTY_POINT = GaugePoint()


class _Ring:
    """Points of one length. ``_newest`` is the number of the current point (seconds since 1970 by its length)."""

    __slots__ = ("_count", "_last", "_max", "_min", "_newest", "_size", "_sum")

    def __init__(self, size: int) -> None:
        self._size = size
        self._newest = 0
        self._min = array("d", [inf]) * size
        self._max = array("d", [-inf]) * size
        self._last = array("d", [nan]) * size
        self._sum = array("d", [0.0]) * size
        self._count = array("d", [0.0]) * size

    def add(self, number: int, value: float) -> None:
        for n in range(max(self._newest + 1, number - self._size + 1), number + 1):
            self._clear(n % self._size)
        self._newest = max(self._newest, number)
        at = self._newest % self._size
        self._min[at] = min(self._min[at], value)
        self._max[at] = max(self._max[at], value)
        self._last[at] = value
        self._sum[at] += value
        self._count[at] += 1

    def lasts(self, end: int, count: int) -> tuple[float, ...]:
        """The last value of each point, NaN where there is none; ``end`` is the number of the last point asked for."""
        oldest = self._newest - self._size
        return tuple(
            self._last[n % self._size] if oldest < n <= self._newest else nan for n in range(end - count + 1, end + 1)
        )

    def points(self, end: int, count: int) -> Iterator[GaugePoint]:
        """Each point, oldest first."""
        oldest = self._newest - self._size
        for n in range(end - count + 1, end + 1):
            at = n % self._size
            yield self._point(((at, at + 1),)) if oldest < n <= self._newest else EMPTY_POINT

    def together(self, end: int, count: int) -> GaugePoint:
        """All these points as one."""
        first = max(end - count + 1, self._newest - self._size + 1)
        stop = min(end, self._newest) + 1
        if first >= stop:
            return EMPTY_POINT
        at, to = first % self._size, (stop - 1) % self._size + 1
        return self._point(((at, to),) if at < to else ((at, self._size), (0, to)))

    def _point(self, parts: Sequence[tuple[int, int]]) -> GaugePoint:
        count = sum(sum(self._count[a:b]) for a, b in parts)
        if not count:
            return EMPTY_POINT
        return GaugePoint(
            min(min(self._min[a:b]) for a, b in parts),
            max(max(self._max[a:b]) for a, b in parts),
            sum(sum(self._sum[a:b]) for a, b in parts) / count,
            next(v for a, b in reversed(parts) for v in reversed(self._last[a:b]) if v == v),
            count,
        )

    def _clear(self, at: int) -> None:
        self._min[at], self._max[at], self._last[at] = inf, -inf, nan
        self._sum[at] = self._count[at] = 0.0


class GaugeRings:
    """The recent values of one gauge."""

    __slots__ = ("_coarse", "_fine")

    def __init__(self) -> None:
        self._fine = _Ring(FINE_POINTS)
        self._coarse = _Ring(COARSE_POINTS)

    def add(self, now: float, value: float) -> None:
        """A value at ``now`` (seconds; a time before the current point counts as now). Not a number: ignored."""
        if value == value:
            self._fine.add(int(now // FINE_SECONDS), value)
            self._coarse.add(int(now // COARSE_SECONDS), value)

    def lasts(self, now: float, seconds: float) -> tuple[float, ...]:
        """The last value of each point of the last ``seconds``, oldest first; NaN where nobody reported."""
        ring, end, count = self._chosen(now, seconds)
        return ring.lasts(end, count)

    def points(self, now: float, seconds: float) -> tuple[GaugePoint, ...]:
        """Each point of the last ``seconds``, oldest first."""
        ring, end, count = self._chosen(now, seconds)
        return tuple(ring.points(end, count))

    def together(self, now: float, seconds: float) -> GaugePoint:
        """The last ``seconds`` as one point (see ``history.covered_seconds``)."""
        ring, end, count = self._chosen(now, seconds)
        return ring.together(end, count)

    def _chosen(self, now: float, seconds: float) -> tuple[_Ring, int, int]:
        step, count = window(seconds)
        return (self._fine if step == FINE_SECONDS else self._coarse), int(now // step), count
