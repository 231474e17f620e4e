"""What a bolt's input adds to its figures: counts, times and latencies, each by the stream it came from.

What a task counts, on its way to the process's telemetry.

What settled roots add to the figures of a spout: counts and latencies, each by the stream of the root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from heron_instance.core.pending import Settled
from heron_runtime.model.instance_metrics import (
    ACK_COUNT,
    DESERIALIZATION_TIME_NS,
    EXECUTE_COUNT,
    EXECUTE_LATENCY,
    EXECUTE_TIME_NS,
    FAIL_COUNT,
    FAIL_LATENCY,
    FAILED_BY_REASON,
    PROCESS_LATENCY,
    QUEUE_LATENCY,
)
from heron_runtime.model.metrics import keyed
from heron_runtime.model.reasons import FailKind
from heronry.api.metrics import Sink

Source = tuple[str, str]  # component and stream
MOST_RUNS = 64  # of equal ages, told one by one; more are thinned out


class TelemetrySink(Sink, Protocol):
    """The part of ``heron_runtime.telemetry.reporting.Telemetry`` that executors use."""

    def exception(self, class_name: str, message: str, traceback: str, now: float, n: int = 1) -> None:
        """Count an exception of user code, or ``n`` of a kind."""


class Counts:
    """Counters, added up here and handed over with each flush."""

    def __init__(self, telemetry: TelemetrySink) -> None:
        self._telemetry = telemetry
        self._counts: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def count(self, name: str, n: float) -> None:
        """Add to a counter."""
        self._counts[name] = self._counts.get(name, 0) + n

    def hand_over(self) -> None:
        """Add all of them to the telemetry's."""
        for name, n in self._counts.items():
            self._telemetry.count(name, n)
        self._counts.clear()


class _Names(NamedTuple):
    """What is counted of one input stream."""

    executed: str
    execute_latency: str
    execute_time_ns: str
    queue_latency: str
    acked: str
    process_latency: str
    deserialization_time_ns: str

    @staticmethod
    def of(source: Source) -> _Names:
        bases = (
            EXECUTE_COUNT, EXECUTE_LATENCY, EXECUTE_TIME_NS, QUEUE_LATENCY, ACK_COUNT, PROCESS_LATENCY,
            DESERIALIZATION_TIME_NS,
        )  # fmt: skip
        return _Names(*(keyed(base, *source) for base in bases))


class InputFigures:
    """Counts and times what is decoded, processed, acked and failed."""

    def __init__(self, count: Callable[[str, float], None], telemetry: TelemetrySink) -> None:
        self._count = count
        self._telemetry = telemetry
        self._names_by_source: dict[Source, _Names] = {}

    def decoded(self, source: Source, seconds: float) -> None:
        """A batch was decoded in that time."""
        self._count(self._names(source).deserialization_time_ns, 1e9 * seconds)

    def executed(self, source: Source, n: int, elapsed_ms: float, waited_ms: float) -> None:
        """So many tuples went through user code in that time, and had waited for it so long in the mean."""
        names = self._names(source)
        self._telemetry.latency(names.queue_latency, waited_ms, n)
        self._telemetry.latency(names.execute_latency, elapsed_ms / n, n)
        self._count(names.executed, n)
        self._count(names.execute_time_ns, elapsed_ms * 1e6)

    def acked(self, groups: list[tuple[Source, float, int]], now_ms: float) -> None:
        """Each group: its source, when its batch arrived, how many."""
        for source, arrived_ms, n in groups:
            names = self._names(source)
            self._count(names.acked, n)
            self._telemetry.latency(names.process_latency, now_ms - arrived_ms, n)

    def failed(self, groups: dict[tuple[str, str, float, FailKind], int], now_ms: float) -> None:
        """Component, stream, arrival and kind, to how many."""
        for (component, stream, arrived_ms, kind), n in groups.items():
            self._count(keyed(FAIL_COUNT, component, stream), n)
            self._count(keyed(FAILED_BY_REASON, kind), n)
            self._telemetry.latency(keyed(FAIL_LATENCY, component, stream), now_ms - arrived_ms, n)

    def _names(self, source: Source) -> _Names:
        found = self._names_by_source.get(source)
        if found is None:
            found = self._names_by_source[source] = _Names.of(source)
        return found


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
