"""Metrics over time in rings of fixed size: 5 s points for 10 minutes, 1 minute points for 3 hours.

A counter's growth is added to the current point of both rings, so a sum over whole minutes is the same from either
ring. Sketches are kept packed (12 bytes per bin that is not empty).

A point of a gauge keeps the least, the greatest, the last, the sum and the number of the values that arrived while it
was current. The point of a minute summarises all values of that minute; it is not a mean of means. A point without
reports is empty, which differs from 0. A gauge takes 5 columns of 8 bytes for 300 points, which is 12,000 bytes, and
about 1,100 bytes of objects.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, MutableSequence, Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import TypeVar

from heron_runtime.model.sketch import Sketch

T = TypeVar("T")

FINE_SECONDS, FINE_POINTS = 5, 120
COARSE_SECONDS, COARSE_POINTS = 60, 180
LONGEST_SECONDS = COARSE_SECONDS * COARSE_POINTS


def window(seconds: float) -> tuple[int, int]:
    """Return (seconds per point, number of points) that cover the last ``seconds``.

    The points are the current one and whole ones before it.
    """
    fine = seconds <= FINE_SECONDS * (FINE_POINTS - 1)
    step, most = (FINE_SECONDS, FINE_POINTS) if fine else (COARSE_SECONDS, COARSE_POINTS)
    return step, min(int(-(-seconds // step)) + 1, most)


def covered_seconds(now: float, seconds: float) -> float:
    """Return the time that ``window`` really covers, in seconds."""
    step, points = window(seconds)
    return (points - 1) * step + now % step


class CounterRings:
    """Recent growth of one counter."""

    __slots__ = ("_coarse", "_fine", "_last_coarse", "_last_fine")

    def __init__(self) -> None:
        self._fine = array("d", bytes(8 * FINE_POINTS))
        self._coarse = array("d", bytes(8 * COARSE_POINTS))
        self._last_fine = self._last_coarse = 0

    def add(self, now: float, growth: float) -> None:
        """Add ``growth`` to the point of ``now`` (seconds; never goes back)."""
        self._last_fine = _advance(self._fine, self._last_fine, int(now // FINE_SECONDS), 0.0)
        self._fine[self._last_fine % FINE_POINTS] += growth
        self._last_coarse = _advance(self._coarse, self._last_coarse, int(now // COARSE_SECONDS), 0.0)
        self._coarse[self._last_coarse % COARSE_POINTS] += growth

    def points(self, now: float, seconds: float) -> tuple[float, ...]:
        """Return the growth of each point of the last ``seconds``, oldest first."""
        step, count = window(seconds)
        ring, last = (self._fine, self._last_fine) if step == FINE_SECONDS else (self._coarse, self._last_coarse)
        end = int(now // step)
        return tuple(
            ring[n % len(ring)] if last - len(ring) < n <= last else 0.0 for n in range(end - count + 1, end + 1)
        )

    def total(self, now: float, seconds: float) -> float:
        """Return the growth within the last ``seconds`` (see ``covered_seconds``)."""
        return sum(self.points(now, seconds))


class LatencyRings:
    """Recent values of one latency."""

    __slots__ = ("_coarse", "_fine", "_last_coarse", "_last_fine")

    def __init__(self) -> None:
        self._fine: list[bytes] = [b""] * FINE_POINTS
        self._coarse: list[bytes] = [b""] * COARSE_POINTS
        self._last_fine = self._last_coarse = 0

    def add(self, now: float, growth: Sketch) -> None:
        """Add ``growth`` to the point of ``now``."""
        self._last_fine = _advance(self._fine, self._last_fine, int(now // FINE_SECONDS), b"")
        self._last_coarse = _advance(self._coarse, self._last_coarse, int(now // COARSE_SECONDS), b"")
        for ring, last in ((self._fine, self._last_fine), (self._coarse, self._last_coarse)):
            index = last % len(ring)
            ring[index] = (Sketch.unpack(ring[index]) + growth).pack()

    def means(self, now: float, seconds: float) -> tuple[float, ...]:
        """Return the mean of each point of the last ``seconds``, oldest first; 0 without values."""
        step, count = window(seconds)
        ring, last = (self._fine, self._last_fine) if step == FINE_SECONDS else (self._coarse, self._last_coarse)
        end = int(now // step)
        return tuple(
            Sketch.unpack(ring[n % len(ring)]).mean if last - len(ring) < n <= last else 0.0
            for n in range(end - count + 1, end + 1)
        )

    def total(self, now: float, seconds: float) -> Sketch:
        """Return the values within the last ``seconds``."""
        step, points = window(seconds)
        ring, last = (self._fine, self._last_fine) if step == FINE_SECONDS else (self._coarse, self._last_coarse)
        end = int(now // step)
        bins: dict[int, float] = {}
        for n in range(end - points + 1, end + 1):
            if last - len(ring) < n <= last and ring[n % len(ring)]:
                for key, count in Sketch.unpack(ring[n % len(ring)]).bins.items():
                    bins[key] = bins.get(key, 0.0) + count
        return Sketch(bins)


def _advance(ring: MutableSequence[T], last: int, to: int, empty: T) -> int:
    """Clear the points between ``last`` and ``to``; returns the current point."""
    if to <= last:
        return last
    for n in range(max(last + 1, to - len(ring) + 1), to + 1):
        ring[n % len(ring)] = empty
    return to


@dataclass(frozen=True, slots=True)
class GaugePoint:
    """Summary of a span of time. Without values ``count`` is 0 and the others are NaN."""

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
        """Return the last value of each point, NaN where it is empty. ``end`` is the number of the last point."""
        oldest = self._newest - self._size
        return tuple(
            self._last[n % self._size] if oldest < n <= self._newest else nan for n in range(end - count + 1, end + 1)
        )

    def points(self, end: int, count: int) -> Iterator[GaugePoint]:
        """Yield each point, oldest first."""
        oldest = self._newest - self._size
        for n in range(end - count + 1, end + 1):
            at = n % self._size
            yield self._point(((at, at + 1),)) if oldest < n <= self._newest else EMPTY_POINT

    def together(self, end: int, count: int) -> GaugePoint:
        """Return all these points as one."""
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
    """Recent values of one gauge."""

    __slots__ = ("_coarse", "_fine")

    def __init__(self) -> None:
        self._fine = _Ring(FINE_POINTS)
        self._coarse = _Ring(COARSE_POINTS)

    def add(self, now: float, value: float) -> None:
        """Add a value at ``now`` (seconds). NaN is ignored.

        A time before the current point counts as the current point.
        """
        if value == value:
            self._fine.add(int(now // FINE_SECONDS), value)
            self._coarse.add(int(now // COARSE_SECONDS), value)

    def lasts(self, now: float, seconds: float) -> tuple[float, ...]:
        """Return the last value of each point of the last ``seconds``, oldest first; NaN without reports."""
        ring, end, count = self._chosen(now, seconds)
        return ring.lasts(end, count)

    def points(self, now: float, seconds: float) -> tuple[GaugePoint, ...]:
        """Return each point of the last ``seconds``, oldest first."""
        ring, end, count = self._chosen(now, seconds)
        return tuple(ring.points(end, count))

    def together(self, now: float, seconds: float) -> GaugePoint:
        """Return the last ``seconds`` as one point (see ``covered_seconds``)."""
        ring, end, count = self._chosen(now, seconds)
        return ring.together(end, count)

    def _chosen(self, now: float, seconds: float) -> tuple[_Ring, int, int]:
        step, count = window(seconds)
        return (self._fine if step == FINE_SECONDS else self._coarse), int(now // step), count
