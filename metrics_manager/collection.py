"""Totals of each process of a container over all its incarnations.

Every accepted report gives its process the next version number, so each sink asks for what is new to it. Old
incarnations are folded here and nowhere else, since every report passes here first
(``heron_runtime.telemetry.totals``).

Memory. User code chooses names, so the number of names is not bounded. What is kept of a process is at most four
reports (the fold and three incarnations), each of at most ``MAX_VALUES`` names and ``MAX_REPORT_BYTES``; of all 1 024
processes together ``MAX_BYTES``, by ``report_bytes``, which says what a report takes in memory. Beyond 1 024 processes
the one that has been silent for longest makes room. A report beyond another bound is refused and counted, and what was
known stays; where all is full, those that do not grow continue. While sinks are told, each has a copy in flight, so
the process holds at most

    MAX_BYTES x (1 + sinks)  beside its code
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from heron_runtime.model.settings import MiB
from heron_runtime.telemetry.totals import ProcessTotals
from heron_runtime.wire.errors import MalformedMessage
from heron_runtime.wire.metrics import ProcessMetrics
from heron_runtime.wire.sketch_codec import check_sketches

MAX_PROCESSES = 1024
MAX_VALUES = 16_384  # names in one report
MAX_REPORT_BYTES = 32 * MiB
MAX_BYTES = 256 * MiB  # of everything that is kept
_REPORT, _EXCEPTION, _NUMBER = 2048, 512, 24  # objects without what they refer to, generously


def report_bytes(report: ProcessMetrics) -> int:
    """Return the size of a report in memory, rounded up."""
    size = _REPORT
    for numbers in (report.counters, report.gauges):
        size += sys.getsizeof(numbers) + sum(map(sys.getsizeof, numbers)) + _NUMBER * len(numbers)
    sketches = report.sketches
    size += sys.getsizeof(sketches) + sum(map(sys.getsizeof, sketches)) + sum(map(sys.getsizeof, sketches.values()))
    for each in report.exceptions:
        size += _EXCEPTION + sum(map(sys.getsizeof, (each.component, each.instance, each.class_name, each.message)))
        size += sys.getsizeof(each.traceback)
    for event in report.happenings:
        size += _EXCEPTION + sum(map(sys.getsizeof, (event.kind, event.component, event.text, event.detail)))
    return size


@dataclass
class _Process:
    """Totals of one process and the version of its last change."""

    totals: ProcessTotals = field(default_factory=ProcessTotals)
    version: int = 0
    bytes: int = 0


class Collection:
    """Totals of the processes of one container, within ``max_bytes``."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.bytes = 0
        self._max_bytes = max_bytes
        self._processes: dict[tuple[str, str], _Process] = {}
        self.version = 0
        self.refused = 0
        self.received = 0

    def __len__(self) -> int:
        return len(self._processes)

    def take(self, report: ProcessMetrics) -> bool:
        """Add a report. Return False if it contains nothing new or exceeds a bound."""
        self.received += 1
        process = self._find(report)
        if process is None:
            return False
        before = process.totals.recent.get(report.incarnation)
        try:
            check_sketches(report.sketches, before.sketches if before is not None else {})
        except MalformedMessage:
            self.refused += 1
            return False
        if not process.totals.take_new(report):
            return False
        process.totals.fold()
        self._changed(process)
        return True

    def restore(self, entries: Iterable[ProcessMetrics]) -> None:
        """Add reports that an earlier metrics manager of this container saved, in any order. Idempotent."""
        for entry in entries:
            process = self._find(entry)
            if process is not None and process.totals.take(entry):
                self._changed(process)

    def entries(self, after: int = 0) -> tuple[ProcessMetrics, ...]:
        """Return the reports that another ``ProcessTotals`` needs about processes changed after ``version``."""
        return tuple(e for p in self._changed_after(after) for e in p.totals.entries())

    def newest(self, after: int = 0) -> tuple[ProcessMetrics, ...]:
        """Return the latest report of each process that changed after ``version``."""
        reports = (p.totals.newest for p in self._changed_after(after))
        return tuple(report for report in reports if report is not None)

    def all_time(self) -> list[tuple[ProcessMetrics, ProcessTotals]]:
        """Return (latest report, totals) of each process."""
        return [(newest, p.totals) for p in self._processes.values() if (newest := p.totals.newest) is not None]

    def check(self) -> None:
        """Assert every invariant."""
        assert len(self._processes) <= MAX_PROCESSES
        assert self.bytes == sum(p.bytes for p in self._processes.values()) <= self._max_bytes, "memory is bounded"
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
        if values > MAX_VALUES:
            self.refused += 1
            return None
        known = process is not None
        if process is None:
            process = _Process()
        if not self._has_room(process, report):
            self.refused += 1
            return None
        if not known and len(self._processes) >= MAX_PROCESSES:
            self._forget_one()
        return process

    def _forget_one(self) -> None:
        """Remove the process that has been silent for the longest time. It has ended, or will report again."""
        key = min(self._processes, key=lambda key: self._processes[key].version)
        self.bytes -= self._processes.pop(key).bytes

    def _has_room(self, process: _Process, report: ProcessMetrics) -> bool:
        """Return True if a report fits. One that does not grow replaces its predecessor and always fits."""
        size, before = report_bytes(report), process.totals.recent.get(report.incarnation)
        growth = size - (report_bytes(before) if before is not None else 0)
        return growth <= 0 or (size <= MAX_REPORT_BYTES and self.bytes + growth <= self._max_bytes)

    def _changed(self, process: _Process) -> None:
        entries = process.totals.entries()
        self._processes[entries[0].component, entries[0].instance] = process
        size = sum(map(report_bytes, entries))
        self.bytes += size - process.bytes
        process.bytes = size
        self.version += 1
        process.version = self.version
