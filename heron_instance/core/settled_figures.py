"""What settled roots add to the figures of a spout: counts and latencies, each by the stream of the root."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from heron_instance.core.pending import Settled
from heron_instance.core.telemetry import TelemetrySink
from heron_runtime.model.metrics import keyed

MOST_RUNS = 64  # of equal ages, told one by one; more are thinned out


class SettledFigures:
    """Counts and times settled roots. ``streams`` gives the name of each stream number."""

    def __init__(self, streams: dict[int, str], count: Callable[[str, float], None], telemetry: TelemetrySink) -> None:
        self._streams = streams
        self._count = count
        self._telemetry = telemetry

    def counted(self, base: str, settled: Settled) -> None:
        """Add the roots to the counter ``base`` of their streams."""
        if len(self._streams) == 1:
            ((_, stream),) = self._streams.items()
            self._count(keyed(base, stream), len(settled.ids))
            return
        numbers, counts = np.unique(settled.streams, return_counts=True)
        for number, n in zip(numbers.tolist(), counts.tolist(), strict=True):
            self._count(keyed(base, self._streams[number]), n)

    def timed(self, base: str, settled: Settled) -> None:
        """Add the ages of the roots to the latency ``base`` of their streams."""
        if len(self._streams) == 1:
            ((_, stream),) = self._streams.items()
            self._latencies(keyed(base, stream), settled.ages_ms)
            return
        for number in np.unique(settled.streams).tolist():
            self._latencies(keyed(base, self._streams[number]), settled.ages_ms[settled.streams == number])

    def _latencies(self, name: str, ages: npt.NDArray[np.float64]) -> None:
        for age, n in _runs(ages):
            self._telemetry.latency(name, age, n)


def _runs(ages: npt.NDArray[np.float64]) -> Iterator[tuple[float, int]]:
    """Runs of equal ages: roots of one burst were opened at one moment."""
    edges = np.flatnonzero(ages[1:] != ages[:-1]) + 1
    if len(edges) > MOST_RUNS:
        edges = edges[:: 2 * len(edges) // MOST_RUNS]
    starts = [0, *edges.tolist()]
    stops = [*edges.tolist(), len(ages)]
    for start, stop in zip(starts, stops, strict=True):
        yield float(ages[start]), stop - start
