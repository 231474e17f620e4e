"""The master's memory of metrics: all-time totals, recent growth, exceptions.

Theory of operation. Reports carry totals per incarnation; ``heronry.totals`` turns them into all-time totals that never
fall and never count twice. The growth of that all-time total between two reports is what happened meanwhile, and goes
into the rings of ``history`` at the time the report *arrives* (one clock, the master's, so clocks of other hosts do not
matter). One thing is left out of the rings: what an incarnation counted before this master first heard of it and before
this master began, since nobody knows when that was. So after a change of masters "since the start" is whole at once,
while intervals fill up again.

For an interval, a latency is the sum of the sketches' differences: bins only grow, so a later sketch minus an earlier
one is the sketch of what came between; processes need not send anything but totals.

Bounds: ``MAX_PROCESSES`` processes, ``MAX_SERIES`` rings (2.4 kB each for a counter), 256 kinds of exceptions. What is
beyond a bound is refused and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from heronry.model.sketch import EMPTY_SKETCH, Sketch
from heronry.sketches import encode_sketch
from heronry.totals import EARLIER, ProcessTotals
from heronry.wire.errors import MalformedMessage
from heronry.wire.master import (
    ExceptionsReply,
    ExceptionsRequest,
    MetricsReply,
    MetricsRequest,
    MetricValue,
    PublishMetrics,
    TimelineReply,
    TimelineRequest,
    TimelineSeries,
)
from heronry.wire.metrics import ExceptionReport, ProcessMetrics
from topology_master.core.history import LONGEST_SECONDS, Rings, SketchRings, covered_seconds, window

MAX_PROCESSES = 10_000
MAX_SERIES = 20_000
MAX_EXCEPTIONS = 256
GAUGE_FRESH_SECONDS = 60.0
# A process that began up to this long before the master counts as new: its first report is about now.
START_SLACK_SECONDS = 1.0


@dataclass
class _Process:
    """One process: its totals, and up to where they went into the rings."""

    totals: ProcessTotals = field(default_factory=ProcessTotals)
    counted: dict[str, float] = field(default_factory=dict)
    counted_sketches: dict[str, Sketch] = field(default_factory=dict)
    rings: dict[str, Rings] = field(default_factory=dict)
    sketch_rings: dict[str, SketchRings] = field(default_factory=dict)
    began: float = float("inf")
    heard: float = 0.0


class MetricStore:
    """Takes what metrics managers publish, answers what the tracker asks. Times are seconds since 1970, UTC."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.refused = 0
        self._processes: dict[tuple[str, str], _Process] = {}
        self._series = 0
        self._exception_floor = float("-inf")

    @property
    def series(self) -> int:
        """Rings in use."""
        return self._series

    def publish(self, now: float, message: PublishMetrics) -> None:
        """Learn from the processes of a container. A malformed report is refused and counted, the others stand."""
        for report in message.processes:
            try:
                self._take(now, report)
            except MalformedMessage:
                self.refused += 1

    def metrics(self, now: float, request: MetricsRequest) -> MetricsReply:
        """Counters (growth and rate), gauges (last value) and latencies (``total`` values, a sketch) of an interval."""
        seconds = min(request.interval_seconds, LONGEST_SECONDS)
        chosen = [(key, p) for key, p in sorted(self._processes.items()) if request.component in ("", key[0])]
        if seconds < 0:
            covered = max(0.0, now - min((p.began for _, p in chosen), default=now))
        else:
            covered = min(covered_seconds(now, seconds), max(0.0, now - self.since))
        values: list[MetricValue] = []
        for (component, instance), process in chosen:
            for name, kind, total, sketch in self._values(now, seconds, process, request.names):
                rate = total / covered if covered > 0 and kind != "gauge" else 0.0
                values.append(MetricValue(component, instance, name, kind, total, rate, sketch))
        return MetricsReply(covered, tuple(values))

    def timeline(self, now: float, request: TimelineRequest) -> TimelineReply:
        """The points of an interval: growth of counters, means of latencies."""
        seconds = min(max(request.interval_seconds, 0.0), LONGEST_SECONDS)
        step, points = window(now, seconds)
        series: list[TimelineSeries] = []
        for (component, instance), process in sorted(self._processes.items()):
            if request.component not in ("", component):
                continue
            for name, rings in sorted(process.rings.items()):
                if _asked(name, request.names):
                    values = rings.points(now, seconds)
                    series.append(TimelineSeries(component, instance, name, "counter", values))
            for name, sketch_rings in sorted(process.sketch_rings.items()):
                if _asked(name, request.names):
                    values = sketch_rings.means(now, seconds)
                    series.append(TimelineSeries(component, instance, name, "latency", values))
        return TimelineReply((now // step - points + 1) * step, step, tuple(series))

    def exceptions(self, request: ExceptionsRequest) -> ExceptionsReply:
        """The 256 most recent kinds, the most recent last."""
        found = [
            report
            for (component, _), process in self._processes.items()
            if request.component in ("", component)
            for report in process.totals.exceptions()
        ]
        found.sort(key=_recency)
        return ExceptionsReply(tuple(found[-MAX_EXCEPTIONS:]))

    def check(self) -> None:
        """Assert every invariant."""
        assert len(self._processes) <= MAX_PROCESSES
        assert self._series == sum(len(p.rings) + len(p.sketch_rings) for p in self._processes.values()) <= MAX_SERIES
        for process in self._processes.values():
            process.totals.check()
            counters = process.totals.counters()
            assert all(counters[name] >= value - 1e-6 for name, value in process.counted.items())

    def _take(self, now: float, report: ProcessMetrics) -> None:
        key = (report.component, report.instance)
        process = self._processes.get(key)
        if process is None:
            if len(self._processes) >= MAX_PROCESSES:
                self.refused += 1
                return
            process = self._processes[key] = _Process()
        known = process.totals.entries()
        if report.incarnation == EARLIER:
            history = bool(known)
        else:
            first = all(entry.incarnation != report.incarnation for entry in known)
            history = not first or report.started >= self.since - START_SLACK_SECONDS
        if not process.totals.take(self._without_old_exceptions(report)):
            return
        process.heard = now
        process.began = min(process.began, report.started)
        self._count(now, process, history)
        self._trim_exceptions()

    def _count(self, now: float, process: _Process, history: bool) -> None:
        """Put the growth of every total into the rings; without ``history`` only remember the totals."""
        for name, total in process.totals.counters().items():
            growth = total - process.counted.get(name, 0.0)
            if growth > 0:
                process.counted[name] = total
                if history and self._room(name in process.rings):
                    process.rings.setdefault(name, Rings()).add(now, growth)
        for name, sketch in process.totals.sketches().items():
            rest = sketch - process.counted_sketches.get(name, EMPTY_SKETCH)
            if rest.bins:
                process.counted_sketches[name] = sketch
                if history and self._room(name in process.sketch_rings):
                    process.sketch_rings.setdefault(name, SketchRings()).add(now, rest)

    def _room(self, known: bool) -> bool:
        if known:
            return True
        if self._series >= MAX_SERIES:
            self.refused += 1
            return False
        self._series += 1
        return True

    def _values(
        self, now: float, seconds: float, process: _Process, names: Sequence[str]
    ) -> list[tuple[str, str, float, bytes]]:
        found: list[tuple[str, str, float, bytes]] = []
        for name, total in process.counted.items():
            if _asked(name, names):
                if seconds >= 0:
                    rings = process.rings.get(name)
                    total = rings.total(now, seconds) if rings else 0.0
                found.append((name, "counter", total, b""))
        newest = process.totals.newest
        if newest is not None and now - process.heard <= GAUGE_FRESH_SECONDS:
            found.extend((n, "gauge", value, b"") for n, value in newest.gauges.items() if _asked(n, names))
        for name, sketch in process.counted_sketches.items():
            if _asked(name, names):
                if seconds >= 0:
                    history = process.sketch_rings.get(name)
                    sketch = history.total(now, seconds) if history else EMPTY_SKETCH
                found.append((name, "latency", sketch.count, encode_sketch(sketch)))
        return sorted(found)

    def _without_old_exceptions(self, report: ProcessMetrics) -> ProcessMetrics:
        if not report.exceptions:
            return report
        kept = tuple(e for e in report.exceptions if e.last_time >= self._exception_floor)
        return replace(report, exceptions=kept)

    def _trim_exceptions(self) -> None:
        """Keep the 256 most recent kinds of the topology, so that tracebacks do not fill the master."""
        entries = [(p, e) for p in self._processes.values() for e in p.totals.entries() if e.exceptions]
        everything = sorted((_recency(x) for _, e in entries for x in e.exceptions), reverse=True)
        if len(everything) <= 2 * MAX_EXCEPTIONS:
            return
        self._exception_floor = everything[MAX_EXCEPTIONS - 1][0]
        for process, entry in entries:
            trimmed = self._without_old_exceptions(entry)
            if entry.incarnation == EARLIER:
                process.totals.earlier = trimmed
            else:
                process.totals.recent[entry.incarnation] = trimmed


def _asked(name: str, names: Sequence[str]) -> bool:
    return not names or any(name == n or name.startswith(n + "/") for n in names)


def _recency(report: ExceptionReport) -> tuple[float, str, str, str]:
    return (report.last_time, report.component, report.instance, report.class_name)
