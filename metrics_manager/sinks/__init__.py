"""Interface of metrics sinks, which plug-ins implement (entry point group ``heronry.metrics_sinks``).

A sink is a class without constructor arguments. It is opened with a ``SinkContext``, and its task calls ``flush`` every
``heron.metrics.interval.secs``. A slow sink misses intervals, and a sink that raises is called again at the next one;
neither delays other sinks. A sink asks the ``MetricsView`` for what is new to it, so a missed interval loses no data
and no data is queued.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from heron_runtime.launch import Launch
from heron_runtime.telemetry.recorder import Telemetry
from heron_runtime.telemetry.totals import ProcessTotals
from heron_runtime.wire.metrics import ProcessMetrics


class MetricsView(Protocol):
    """Metrics that a sink may read. Calls are quick and must be made on the event loop."""

    @property
    def version(self) -> int:
        """Version, which increases with each accepted report."""

    def newest(self, after: int = 0) -> tuple[ProcessMetrics, ...]:
        """Return the latest report of each process that changed after ``version``."""

    def entries(self, after: int = 0) -> tuple[ProcessMetrics, ...]:
        """Return the same with all earlier incarnations, which make all-time totals."""

    def all_time(self) -> list[tuple[ProcessMetrics, ProcessTotals]]:
        """Return (latest report, totals over all incarnations) of each process."""


@dataclass(frozen=True)
class SinkContext:
    """Environment of a sink.

    Attributes:
        launch: Launch file of the topology.
        container: Number of the container.
        metrics: Metrics of the container.
        telemetry: Telemetry of the metrics manager itself.
        restored: Up to this version the metrics were saved by an earlier metrics manager and are not new.
    """

    launch: Launch
    container: int
    metrics: MetricsView
    telemetry: Telemetry
    restored: int = 0


class Sink(Protocol):
    """Destination of the metrics of a container."""

    async def open(self, context: SinkContext) -> None:
        """Open the sink. If it raises, it is called again at the next interval."""

    async def flush(self) -> None:
        """Write what is new. If it raises, it is called again at the next interval."""

    async def close(self) -> None:
        """Close the sink, after a last ``flush``."""
