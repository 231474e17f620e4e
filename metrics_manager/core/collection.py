"""What the metrics manager knows: for each process of its container, totals over all incarnations.

Facts in (reports), answers out (what changed since a version). Every accepted report gives its process the next
version number, so that each sink asks for what is new to it and none can disturb another. Old incarnations are folded
here and nowhere else, because every report passes here first (``heron_runtime.telemetry.totals``).

Bounds: 1 024 processes, each with at most four reports (the fold and three incarnations).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from heron_runtime.telemetry.totals import ProcessTotals
from heron_runtime.wire.metrics import ProcessMetrics

MAX_PROCESSES = 1024
MAX_VALUES = 16_384  # names in one report


@dataclass
class _Process:
    """One process and the version of its last change."""

    totals: ProcessTotals = field(default_factory=ProcessTotals)
    version: int = 0


class Collection:
    """The processes of one container."""

    def __init__(self) -> None:
        self._processes: dict[tuple[str, str], _Process] = {}
        self.version = 0
        self.refused = 0
        self.received = 0

    def __len__(self) -> int:
        return len(self._processes)

    def take(self, report: ProcessMetrics) -> bool:
        """Learn a report that a process sent; False if it tells nothing new or is beyond a bound."""
        self.received += 1
        process = self._find(report)
        if process is None or not process.totals.take_new(report):
            return False
        process.totals.fold()
        self._changed(process)
        return True

    def restore(self, entries: Iterable[ProcessMetrics]) -> None:
        """Learn what an earlier metrics manager of this container had saved. Any order, any number of times."""
        for entry in entries:
            process = self._find(entry)
            if process is not None and process.totals.take(entry):
                self._changed(process)

    def entries(self, after: int = 0) -> tuple[ProcessMetrics, ...]:
        """Everything another ``ProcessTotals`` needs about the processes that changed after that version."""
        return tuple(e for p in self._changed_after(after) for e in p.totals.entries())

    def newest(self, after: int = 0) -> tuple[ProcessMetrics, ...]:
        """The latest report of each process that changed after that version."""
        found = (p.totals.newest for p in self._changed_after(after))
        return tuple(report for report in found if report is not None)

    def all_time(self) -> list[tuple[ProcessMetrics, ProcessTotals]]:
        """(latest report, totals) of each process."""
        return [(newest, p.totals) for p in self._processes.values() if (newest := p.totals.newest) is not None]

    def check(self) -> None:
        """Assert every invariant."""
        assert len(self._processes) <= MAX_PROCESSES
        versions = [p.version for p in self._processes.values()]
        assert len(versions) == len(set(versions))
        assert all(0 < v <= self.version for v in versions)
        for process in self._processes.values():
            process.totals.check()

    def _changed_after(self, version: int) -> list[_Process]:
        return sorted((p for p in self._processes.values() if p.version > version), key=lambda p: p.version)

    def _find(self, report: ProcessMetrics) -> _Process | None:
        key = (report.component, report.instance)
        process = self._processes.get(key)
        values = len(report.counters) + len(report.gauges) + len(report.sketches)
        if values > MAX_VALUES or (process is None and len(self._processes) >= MAX_PROCESSES):
            self.refused += 1
            return None
        if process is None:
            process = _Process()
        return process

    def _changed(self, process: _Process) -> None:
        entries = process.totals.entries()
        self._processes[entries[0].component, entries[0].instance] = process
        self.version += 1
        process.version = self.version
