"""What a scheduler reports: itself, and how often each container was started anew."""

from __future__ import annotations

import time

from heron_control.schedulers.containers import SHOWN, Containers
from heron_runtime.model.ids import MASTER_CONTAINER, container_name
from heron_runtime.telemetry.recorder import Telemetry
from heron_runtime.wire.container import ProcessState
from heron_runtime.wire.metrics import ProcessMetrics


class SchedulerMetrics:
    """Reads the core for each report."""

    def __init__(self, core: Containers) -> None:
        self._core = core
        self._telemetry = Telemetry("__scheduler__", "heron_scheduler", MASTER_CONTAINER, 0, time.time_ns())
        self._counted: dict[int, int] = {}

    def report(self) -> ProcessMetrics:
        """Totals since the scheduler began."""
        for row in self._core.rows.values():
            name = container_name(row.number)
            self._telemetry.gauge(f"__process-up/{name}", float(SHOWN[row.stage] is ProcessState.RUNNING))
            restarts = row.restarts - self._counted.get(row.number, 0)
            if restarts > 0:
                self._counted[row.number] = row.restarts
                self._telemetry.count(f"__restarts/{name}", restarts)
        return self._telemetry.report(time.time())
