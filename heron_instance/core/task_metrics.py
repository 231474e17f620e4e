"""Metrics of a task: counters, the input of a bolt, and the settled roots of a spout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from heron_instance.core.pending import SettledRoots
from heron_runtime.model.dataflow import FailKind
from heron_runtime.model.metrics import (
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
    keyed,
)
from heronry.api.metrics import Sink

Source = tuple[str, str]  # component and stream
MAX_AGE_RUNS = 64  # runs of equal ages reported one by one; more are thinned out


class TelemetrySink(Sink, Protocol):
    """Part of ``heron_runtime.telemetry.reporting.Telemetry`` that executors use."""

    def exception(self, class_name: str, message: str, traceback: str, now: float, n: int = 1) -> None:
        """Count ``n`` exceptions of user code of one kind."""


class CounterBuffer:
    """Counters added up here and handed over with each flush."""

    def __init__(self, telemetry: TelemetrySink) -> None:
        self._telemetry = telemetry
        self._counts: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def count(self, name: str, n: float) -> None:
        """Add to a counter."""
        self._counts[name] = self._counts.get(name, 0) + n

    def hand_over(self) -> None:
        """Add all counters to the telemetry."""
        for name, n in self._counts.items():
            self._telemetry.count(name, n)
        self._counts.clear()


class _Names(NamedTuple):
    """Names of the metrics of one input stream."""

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


class InputMetrics:
    """Counts and times of decoded, processed, acked and failed input, by stream."""

    def __init__(self, count: Callable[[str, float], None], telemetry: TelemetrySink) -> None:
        self._count = count
        self._telemetry = telemetry
        self._names_by_source: dict[Source, _Names] = {}

    def count_decoded(self, source: Source, seconds: float) -> None:
        """Add the decoding time of a batch."""
        self._count(self._names(source).deserialization_time_ns, 1e9 * seconds)

    def count_executed(self, source: Source, n: int, elapsed_ms: float, waited_ms: float) -> None:
        """Add ``n`` tuples that user code processed in ``elapsed_ms``, after a mean wait of ``waited_ms``."""
        names = self._names(source)
        self._telemetry.latency(names.queue_latency, waited_ms, n)
        self._telemetry.latency(names.execute_latency, elapsed_ms / n, n)
        self._count(names.executed, n)
        self._count(names.execute_time_ns, elapsed_ms * 1e6)

    def count_acked(self, groups: list[tuple[Source, float, int]], now_ms: float) -> None:
        """Add acked tuples in groups of source, arrival time and number."""
        for source, arrived_ms, n in groups:
            names = self._names(source)
            self._count(names.acked, n)
            self._telemetry.latency(names.process_latency, now_ms - arrived_ms, n)

    def count_failed(self, groups: dict[tuple[str, str, float, FailKind], int], now_ms: float) -> None:
        """Add failed tuples by component, stream, arrival time and kind."""
        for (component, stream, arrived_ms, kind), n in groups.items():
            self._count(keyed(FAIL_COUNT, component, stream), n)
            self._count(keyed(FAILED_BY_REASON, kind), n)
            self._telemetry.latency(keyed(FAIL_LATENCY, component, stream), now_ms - arrived_ms, n)

    def _names(self, source: Source) -> _Names:
        names = self._names_by_source.get(source)
        if names is None:
            names = self._names_by_source[source] = _Names.of(source)
        return names


class RootMetrics:
    """Counts and latencies of settled roots, by stream. ``streams`` gives the name of each stream number."""

    def __init__(self, streams: dict[int, str], count: Callable[[str, float], None], telemetry: TelemetrySink) -> None:
        self._streams = streams
        self._count = count
        self._telemetry = telemetry

    def count_roots(self, base: str, settled: SettledRoots) -> None:
        """Add the roots to the counter ``base`` of their streams."""
        if len(self._streams) == 1:
            ((_, stream),) = self._streams.items()
            self._count(keyed(base, stream), len(settled.ids))
            return
        numbers, counts = np.unique(settled.streams, return_counts=True)
        for number, n in zip(numbers.tolist(), counts.tolist(), strict=True):
            self._count(keyed(base, self._streams[number]), n)

    def time_roots(self, base: str, settled: SettledRoots) -> None:
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
    """Yield runs of equal ages: roots of one burst were opened at one moment."""
    edges = np.flatnonzero(ages[1:] != ages[:-1]) + 1
    if len(edges) > MAX_AGE_RUNS:
        edges = edges[:: 2 * len(edges) // MAX_AGE_RUNS]
    starts = [0, *edges.tolist()]
    stops = [*edges.tolist(), len(ages)]
    for start, stop in zip(starts, stops, strict=True):
        yield float(ages[start]), stop - start
