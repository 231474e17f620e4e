"""Growth over time in rings of fixed size: 5 s points for 10 minutes, 1 minute points for 3 hours.

A counter's growth is added to the current point of both rings. A sum over whole minutes is the same from either ring,
because both were given the same numbers. Sketches are kept packed (12 bytes per bin that is not empty).
"""

from __future__ import annotations

from array import array
from collections.abc import MutableSequence
from typing import TypeVar

from heron_runtime.model.sketch import Sketch

T = TypeVar("T")

FINE_SECONDS, FINE_POINTS = 5, 120
COARSE_SECONDS, COARSE_POINTS = 60, 180
LONGEST_SECONDS = COARSE_SECONDS * COARSE_POINTS


def window(seconds: float) -> tuple[int, int]:
    """(seconds per point, number of points) that cover the last ``seconds``: the current point and whole ones."""
    fine = seconds <= FINE_SECONDS * (FINE_POINTS - 1)
    step, most = (FINE_SECONDS, FINE_POINTS) if fine else (COARSE_SECONDS, COARSE_POINTS)
    return step, min(int(-(-seconds // step)) + 1, most)


def covered_seconds(now: float, seconds: float) -> float:
    """How much time ``window`` really covers."""
    step, points = window(seconds)
    return (points - 1) * step + now % step


class Rings:
    """The recent growth of one counter."""

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
        """The growth of each point of the last ``seconds``, oldest first."""
        step, count = window(seconds)
        ring, last = (self._fine, self._last_fine) if step == FINE_SECONDS else (self._coarse, self._last_coarse)
        end = int(now // step)
        return tuple(
            ring[n % len(ring)] if last - len(ring) < n <= last else 0.0 for n in range(end - count + 1, end + 1)
        )

    def total(self, now: float, seconds: float) -> float:
        """The growth within the last ``seconds`` (see ``covered_seconds``)."""
        return sum(self.points(now, seconds))


class SketchRings:
    """The recent values of one latency."""

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
        """The mean of each point of the last ``seconds``, oldest first; 0 where there was no value."""
        step, count = window(seconds)
        ring, last = (self._fine, self._last_fine) if step == FINE_SECONDS else (self._coarse, self._last_coarse)
        end = int(now // step)
        return tuple(
            Sketch.unpack(ring[n % len(ring)]).mean if last - len(ring) < n <= last else 0.0
            for n in range(end - count + 1, end + 1)
        )

    def total(self, now: float, seconds: float) -> Sketch:
        """The values within the last ``seconds``."""
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
