"""All-time totals of a process that restarts, out of reports that may be lost, repeated or reordered.

Counters and sketches of a report are totals since its *incarnation* began, so within one incarnation the report with
the latest time tells everything, and over incarnations totals add. ``ProcessTotals`` therefore keeps one report per
incarnation, newest by time; taking a report is idempotent and commutative, and nothing is ever counted twice.

A process that crashes all day has thousands of incarnations, so old ones are *folded*: the metrics manager (which alone
hears every report first) adds all but the last few into one report of incarnation 0 whose ``started`` says up to which
incarnation it reaches. Who receives that report forgets the incarnations it contains, and takes no older fold. Should a
metrics manager lose its memory, its next fold would be too small: the receiver keeps the larger of the fold and of what
it knew itself, so totals never fall.

Pure: no I/O, no clock. Used by the metrics manager and by the topology master.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace

from heron_runtime.model.sketch import Sketch
from heron_runtime.wire.metrics import ExceptionReport, ProcessMetrics
from heron_runtime.wire.sketch_codec import decode_sketch, encode_sketch

FOLDED_INCARNATION = 0  # the incarnation that stands for all folded ones
KEEP_INCARNATIONS = 3
MAX_INCARNATIONS = 16  # a receiver folds by itself above this
REMEMBER_FOLDED = 64
MAX_NAMES = 8192
MAX_EXCEPTIONS = 256


def sum_counters(maps: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Name by name, the sum; at most 8 192 names (those that came first)."""
    total: dict[str, float] = {}
    for counters in maps:
        for name, value in counters.items():
            if name in total:
                total[name] += value
            elif len(total) < MAX_NAMES:
                total[name] = value
    return total


def sum_sketches(maps: Iterable[Mapping[str, bytes]]) -> dict[str, Sketch]:
    """Name by name, the sum of encoded sketches. Raises MalformedMessage."""
    total: dict[str, Sketch] = {}
    for sketches in maps:
        for name, data in sketches.items():
            if name in total:
                total[name] = total[name] + decode_sketch(data)
            elif len(total) < MAX_NAMES:
                total[name] = decode_sketch(data)
    return total


def sum_exceptions(groups: Iterable[Iterable[ExceptionReport]]) -> tuple[ExceptionReport, ...]:
    """Kind by kind (class and lines of code): counts add, times widen. The 256 most recent, latest last."""
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
    """One report of incarnation 0 that stands for all of them; None of none. Gauges have no sum and are left out."""
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
    """What is known of one process (component and instance) over all its incarnations."""

    def __init__(self) -> None:
        self.earlier: ProcessMetrics | None = None
        self.recent: dict[int, ProcessMetrics] = {}
        self._folded: deque[int] = deque(maxlen=REMEMBER_FOLDED)

    @property
    def until(self) -> float:
        """When the newest folded incarnation began."""
        return self.earlier.started if self.earlier is not None else float("-inf")

    @property
    def newest(self) -> ProcessMetrics | None:
        """The latest report of the incarnation that began last."""
        return max(self.recent.values(), key=lambda r: (r.started, r.incarnation), default=None)

    def take(self, report: ProcessMetrics) -> bool:
        """Learn a report; True if it told anything new. Raises MalformedMessage for a bad sketch in a fold."""
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
        """``take`` for whoever hears the process itself: a clock set back does not make a new incarnation look old."""
        known = report.incarnation in self.recent or report.incarnation in self._folded
        if not known and report.incarnation != FOLDED_INCARNATION:
            latest = max([self.until, *(r.started for r in self.recent.values())])
            if report.started <= latest:
                report = replace(report, started=latest + 1e-3)
        return self.take(report)

    def fold(self, keep: int = KEEP_INCARNATIONS) -> bool:
        """Add all but the ``keep`` newest incarnations into ``earlier``; True if there were any."""
        ordered = sorted(self.recent.values(), key=lambda r: (r.started, r.incarnation))
        finished = ordered[: max(0, len(ordered) - keep)]
        if not finished:
            return False
        self.earlier = add_reports(([self.earlier] if self.earlier else []) + finished)
        self._forget(finished)
        return True

    def entries(self) -> tuple[ProcessMetrics, ...]:
        """Reports that tell another ``ProcessTotals`` everything: the fold first, then incarnation by incarnation."""
        recent = sorted(self.recent.values(), key=lambda r: (r.started, r.incarnation))
        return ((self.earlier,) if self.earlier else ()) + tuple(recent)

    def counters(self) -> dict[str, float]:
        """Totals over all incarnations."""
        return sum_counters(r.counters for r in self.entries())

    def sketches(self) -> dict[str, Sketch]:
        """Sketches over all incarnations. Raises MalformedMessage."""
        return sum_sketches(r.sketches for r in self.entries())

    def exceptions(self) -> tuple[ExceptionReport, ...]:
        """Exceptions over all incarnations, latest last."""
        return sum_exceptions(r.exceptions for r in self.entries())

    def check(self) -> None:
        """Assert what must always hold."""
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
