"""What a metrics sink is: the interface that plug-ins implement (entry point group ``heronry.metrics_sinks``).

A sink is a class whose instances are made without arguments and then opened with a ``SinkContext``. ``flush`` is called
each ``heron.metrics.interval.secs``, by a task of the sink's own: a sink that is slow misses beats and one that raises
is called again at the next, and neither holds up another sink. A sink asks the ``MetricsView`` for what is new to it,
so nothing is lost by a missed beat, and nothing is queued.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from heron_runtime.launch import Launch
from heron_runtime.telemetry.reporting import Telemetry
from heron_runtime.telemetry.totals import ProcessTotals
from heron_runtime.wire.metrics import ProcessMetrics


class MetricsView(Protocol):
    """What a sink may read; every call is quick and must be made on the loop."""

    @property
    def version(self) -> int:
        """Grows with each report that is taken."""

    def newest(self, after: int = 0) -> tuple[ProcessMetrics, ...]:
        """The latest report of each process that changed after that version."""

    def entries(self, after: int = 0) -> tuple[ProcessMetrics, ...]:
        """The same with all earlier incarnations: what makes all-time totals (``heron_runtime.telemetry.totals``)."""

    def all_time(self) -> list[tuple[ProcessMetrics, ProcessTotals]]:
        """(latest report, totals over all incarnations) of each process."""


@dataclass(frozen=True)
class SinkContext:
    """Where the sink is. ``telemetry`` is the metrics manager's own.

    Up to version ``restored`` the metrics are what an earlier metrics manager had saved, not news.
    """

    launch: Launch
    container: int
    metrics: MetricsView
    telemetry: Telemetry
    restored: int = 0


class Sink(Protocol):
    """One way for metrics to leave the container."""

    async def open(self, context: SinkContext) -> None:
        """Begin. May raise; it is then tried again at the next beat."""

    async def flush(self) -> None:
        """Bring out what is new. May raise; it is then tried again at the next beat."""

    async def close(self) -> None:
        """End, after a last ``flush``."""
