"""All-time totals of a process that restarts, from reports that may be lost, repeated or reordered.

Counters and sketches of a report are totals since its *incarnation* began. Within one incarnation, the latest report is
therefore complete, and totals add up over incarnations. ``ProcessTotals`` keeps the newest report of each incarnation.
Taking a report is idempotent and commutative, and nothing is ever counted twice.

A process that crashes all day has thousands of incarnations, so old ones are *folded*. The metrics manager, which is
the first to receive every report, adds all but the last few into one report of incarnation 0. The ``started`` of that
report is that of the newest incarnation it contains. A receiver of the report discards the incarnations that it
contains, and ignores older folds. If a metrics manager loses its memory, its next fold is too small. The receiver then
keeps the larger of the fold and its own totals, so that totals never decrease.

Pure: no I/O, no clock. Used by the metrics manager and by the topology master.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace

from heron_runtime.model.sketch import Sketch
from heron_runtime.wire.metrics import ExceptionReport, ProcessMetrics
from heron_runtime.wire.sketch_codec import decode_sketch, encode_sketch

FOLDED_INCARNATION = 0  # the incarnation of reports that contain all folded ones
KEEP_INCARNATIONS = 3
MAX_INCARNATIONS = 16  # above this number, a receiver folds incarnations itself
REMEMBER_FOLDED = 64
MAX_NAMES = 8192
MAX_EXCEPTIONS = 256


def sum_counters(maps: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum of each counter, for the first 8 192 names."""
    total: dict[str, float] = {}
    for counters in maps:
        for name, value in counters.items():
            if name in total:
                total[name] += value
            elif len(total) < MAX_NAMES:
                total[name] = value
    return total


def sum_sketches(maps: Iterable[Mapping[str, bytes]]) -> dict[str, Sketch]:
    """Return the sum of the encoded sketches of each name, for the first 8 192 names. Raises MalformedMessage."""
    total: dict[str, Sketch] = {}
    for sketches in maps:
        for name, data in sketches.items():
            if name in total:
                total[name] = total[name] + decode_sketch(data)
            elif len(total) < MAX_NAMES:
                total[name] = decode_sketch(data)
    return total


def sum_exceptions(groups: Iterable[Iterable[ExceptionReport]]) -> tuple[ExceptionReport, ...]:
    """Merge exception reports by kind (class and lines of code).

    Returns:
        One report per kind with the sum of the counts, the first and last time, and the newest message: the 256 most
        recent kinds, latest last.
    """
    kinds: dict[tuple[str, str], ExceptionReport] = {}
    for group in groups:
        for report in group:
            key = report.kind
            old = kinds.get(key)
            if old is not None:
                newest = max(old, report, key=lambda r: r.last_time)
                report = replace(
                    newest, count=old.count + report.count, first_time=min(old.first_time, report.first_time)
                )
            kinds[key] = report
    return tuple(sorted(kinds.values(), key=lambda r: (r.last_time, r.class_name, r.traceback))[-MAX_EXCEPTIONS:])


def add_reports(reports: Iterable[ProcessMetrics]) -> ProcessMetrics | None:
    """Fold reports into one of incarnation 0. Gauges cannot be added and are left out.

    Returns:
        The folded report, or None if `reports` is empty.
    """
    ordered = sorted(reports, key=lambda r: (r.started, r.incarnation))
    if not ordered:
        return None
    newest = ordered[-1]
    return replace(
        newest,
        incarnation=FOLDED_INCARNATION,
        time=max(r.time for r in ordered),
        counters=sum_counters(r.counters for r in ordered),
        gauges={},
        sketches={n: encode_sketch(s) for n, s in sum_sketches(r.sketches for r in ordered).items()},
        exceptions=sum_exceptions(r.exceptions for r in ordered),
        happenings=(),
        happened=0,
    )


class ProcessTotals:
    """Totals of one process (component and instance) over all its incarnations."""

    def __init__(self) -> None:
        self.earlier: ProcessMetrics | None = None
        self.recent: dict[int, ProcessMetrics] = {}
        self._folded: deque[int] = deque(maxlen=REMEMBER_FOLDED)

    @property
    def until(self) -> float:
        """Start time of the newest folded incarnation, in seconds since 1970, or minus infinity."""
        return self.earlier.started if self.earlier is not None else float("-inf")

    @property
    def newest(self) -> ProcessMetrics | None:
        """Latest report of the incarnation that began last, or None."""
        return max(self.recent.values(), key=lambda r: (r.started, r.incarnation), default=None)

    def take(self, report: ProcessMetrics) -> bool:
        """Take a report. Return True if it is new. Raises MalformedMessage for an invalid sketch in a fold."""
        if report.incarnation == FOLDED_INCARNATION:
            return self._take_fold(report)
        known = self.recent.get(report.incarnation)
        if known is not None:
            if report.time <= known.time:
                return False
            report = replace(report, started=known.started)
        elif report.started <= self.until or report.incarnation in self._folded:
            return False
        self.recent[report.incarnation] = report
        if len(self.recent) > MAX_INCARNATIONS:
            self.fold(MAX_INCARNATIONS)
        return True

    def take_new(self, report: ProcessMetrics) -> bool:
        """Take a report of the process itself. A new incarnation is accepted even if the clock was set back."""
        known = report.incarnation in self.recent or report.incarnation in self._folded
        if not known and report.incarnation != FOLDED_INCARNATION:
            latest = max([self.until, *(r.started for r in self.recent.values())])
            if report.started <= latest:
                report = replace(report, started=latest + 1e-3)
        return self.take(report)

    def fold(self, keep: int = KEEP_INCARNATIONS) -> bool:
        """Fold all but the ``keep`` newest incarnations into ``earlier``. Return True if any were folded."""
        ordered = sorted(self.recent.values(), key=lambda r: (r.started, r.incarnation))
        finished = ordered[: max(0, len(ordered) - keep)]
        if not finished:
            return False
        self.earlier = add_reports(([self.earlier] if self.earlier else []) + finished)
        self._forget(finished)
        return True

    def entries(self) -> tuple[ProcessMetrics, ...]:
        """Return the reports from which another ``ProcessTotals`` can be restored: the fold, then each incarnation."""
        recent = sorted(self.recent.values(), key=lambda r: (r.started, r.incarnation))
        return ((self.earlier,) if self.earlier else ()) + tuple(recent)

    def counters(self) -> dict[str, float]:
        """Return the counters summed over all incarnations."""
        return sum_counters(r.counters for r in self.entries())

    def sketches(self) -> dict[str, Sketch]:
        """Return the sketches summed over all incarnations. Raises MalformedMessage."""
        return sum_sketches(r.sketches for r in self.entries())

    def exceptions(self) -> tuple[ExceptionReport, ...]:
        """Return the exceptions of all incarnations, latest last."""
        return sum_exceptions(r.exceptions for r in self.entries())

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self.recent) <= MAX_INCARNATIONS
        assert all(r.started > self.until for r in self.recent.values())
        assert FOLDED_INCARNATION not in self.recent

    def _take_fold(self, fold: ProcessMetrics) -> bool:
        if self.earlier is not None and (fold.started, fold.time) <= (self.earlier.started, self.earlier.time):
            return False
        inside = [r for r in self.recent.values() if r.started <= fold.started]
        ours = add_reports(([self.earlier] if self.earlier else []) + inside)
        self.earlier = fold if ours is None else _larger(fold, ours)
        self._forget(inside)
        return True

    def _forget(self, reports: Iterable[ProcessMetrics]) -> None:
        for report in reports:
            del self.recent[report.incarnation]
            self._folded.append(report.incarnation)


def _larger(fold: ProcessMetrics, ours: ProcessMetrics) -> ProcessMetrics:
    names = {**fold.counters, **ours.counters}
    counters = {name: max(fold.counters.get(name, 0.0), ours.counters.get(name, 0.0)) for name in names}
    sketches = {}
    for name in {**fold.sketches, **ours.sketches}:
        a, b = decode_sketch(fold.sketches.get(name, b"")), decode_sketch(ours.sketches.get(name, b""))
        sketches[name] = encode_sketch(a.join(b))
    kinds = {e.kind: e for e in ours.exceptions}
    for report in fold.exceptions:
        old = kinds.get(report.kind)
        if old is None or report.count >= old.count:
            kinds[report.kind] = report
    return replace(fold, counters=counters, sketches=sketches, exceptions=sum_exceptions([kinds.values()]))
