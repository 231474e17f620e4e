"""What a bolt's input adds to its figures: counts, times and latencies, each by the stream it came from."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from heron_instance.core.telemetry import TelemetrySink
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

Source = tuple[str, str]  # component and stream


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
