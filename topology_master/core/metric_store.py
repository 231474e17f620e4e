"""The topology master's metrics: all-time totals, recent growth, exceptions and gauges of the whole topology.

Theory of operation. Reports carry totals per incarnation. ``heron_runtime.telemetry.totals`` turns them into all-time
totals that never fall and never count twice. The growth between two reports goes into the rings of ``time_series`` at
the time when the report arrives, so clocks of other hosts do not matter. The rings leave out what an incarnation
counted before this master first heard of it and before this master began, since the time of that growth is unknown.
After a change of masters, all-time totals are therefore complete at once, while intervals fill up again. The first
master of a topology misses nothing, because no tuple flows without it.

The latency of an interval is the sum of the differences between sketches. Bins only grow, so a later sketch minus an
earlier one is the sketch of the time between them, and processes send totals only.

A gauge of a running incarnation goes into the rings at the time it was measured (arrival less the age its sender gives
it). Gauges of processes that ended before this master began are not recorded.

Gauges of the topology: the lag is known only where tuple trees are tracked. Reserved CPU and memory are what the
packing plan gives to the containers with tasks. Used CPU and memory are those of all processes in these containers:
instances, stream manager, metrics manager, heron_container and the children of its zygote. The masters' own containers
are in neither. Resident memory counts a shared page once in each process that shares it.

Bounds: ``MAX_PROCESSES`` processes, 256 kinds of exceptions, ``MAX_SERIES`` rings of counters and latencies,
``MAX_GAUGES`` of gauges. At a bound the master releases the rings of processes that have been silent for longer than a
ring covers, then refuses and counts further series. A gauge without a ring still has a last value. Bytes of history,
where b is the number of bins of a latency (about 60 from 1 ms to 1 s at a point)::

    2 400 x counters + (2 400 + 300 x (33 + 12 b)) x latencies + 13 200 x gauges
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from heron_runtime.model.ids import holds_master
from heron_runtime.model.metrics import SPOUT_LAG
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.sketch import EMPTY_SKETCH, Sketch
from heron_runtime.telemetry.totals import FOLDED_INCARNATION, ProcessTotals
from heron_runtime.wire.errors import MalformedMessage
from heron_runtime.wire.master import (
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
from heron_runtime.wire.metrics import ExceptionReport, ProcessMetrics
from heron_runtime.wire.sketch_codec import check_sketches, encode_sketch
from topology_master.core.time_series import (
    COARSE_SECONDS,
    EMPTY_POINT,
    LONGEST_SECONDS,
    CounterRings,
    GaugePoint,
    GaugeRings,
    LatencyRings,
    covered_seconds,
    window,
)

MAX_PROCESSES = 10_000
MAX_SERIES = 20_000
MAX_GAUGES = 8_000
MAX_EXCEPTIONS = 256
GAUGE_FRESH_SECONDS = 60.0
RELEASE_EACH_SECONDS = 60.0
ALL_TIME = -1.0  # instead of an interval; NaN means the same
# A process that began up to this long before the master counts as new: its first report is about now.
START_SLACK_SECONDS = 1.0


@dataclass
class _Process:
    """Totals of one process, and the part of them that is in the rings."""

    totals: ProcessTotals = field(default_factory=ProcessTotals)
    counted: dict[str, float] = field(default_factory=dict)
    counted_sketches: dict[str, Sketch] = field(default_factory=dict)
    rings: dict[str, CounterRings] = field(default_factory=dict)
    sketch_rings: dict[str, LatencyRings] = field(default_factory=dict)
    gauge_rings: dict[str, GaugeRings] = field(default_factory=dict)
    began: float = float("inf")
    heard: float = 0.0
    reported: float = 0.0


class MetricStore:
    """Stores published metrics and answers requests. Times are seconds since 1970, UTC."""

    def __init__(self, since: float, *, is_first: bool = False) -> None:
        """Create an empty store.

        Args:
            since: When this master began.
            is_first: Whether the topology had no master before.
        """
        self.since = since
        self._is_first = is_first
        self.refused = 0
        self._processes: dict[tuple[str, str], _Process] = {}
        self._series = 0
        self._gauges = 0
        self._next_release = float("-inf")
        self._exception_floor = float("-inf")

    @property
    def series(self) -> int:
        """Number of rings in use."""
        return self._series + self._gauges

    def publish(self, now: float, message: PublishMetrics) -> None:
        """Store the reports of a container's processes.

        A malformed report is refused and counted; the others are stored.
        """
        for report in message.processes:
            age = max(0.0, message.sent_time - report.time) if message.sent_time else 0.0
            try:
                self._take(now, now - age, report)
            except MalformedMessage:
                self.refused += 1

    def metrics(self, now: float, request: MetricsRequest) -> MetricsReply:
        """Return the metrics of an interval.

        Counters have growth and rate, gauges last value, range and mean, latencies the number of values (``total``) and
        a
        sketch.
        """
        seconds = min(request.interval_seconds, LONGEST_SECONDS) if request.interval_seconds >= 0 else ALL_TIME
        chosen = [(key, p) for key, p in sorted(self._processes.items()) if request.component in ("", key[0])]
        if seconds < 0:
            covered = max(0.0, now - min((p.began for _, p in chosen), default=now))
        else:
            covered = min(covered_seconds(now, seconds), max(0.0, now - self.since))
        values: list[MetricValue] = []
        for (component, instance), process in chosen:
            for name, kind, total, sketch in self._values(now, seconds, process, request.names):
                rate = total / covered if covered > 0 else 0.0
                values.append(MetricValue(component, instance, name, kind, total, rate, sketch))
            if now - process.heard <= GAUGE_FRESH_SECONDS:
                values += self._gauge_values(now, seconds, component, instance, process, request.names)
        return MetricsReply(covered, tuple(values))

    def exactly(self, now: float, seconds: float, names: Sequence[str]) -> Iterator[tuple[int, str, float]]:
        """Yield (container, name, value) of every process for metrics with exactly these names.

        The value is a counter's rate per second over the last ``seconds``, or a gauge's last value if it is fresh. For
        few
        names this is cheaper than ``metrics``.
        """
        covered = max(1.0, min(covered_seconds(now, seconds), now - self.since))
        for process in self._processes.values():
            newest = process.totals.newest
            if newest is None:
                continue
            fresh = now - process.heard <= GAUGE_FRESH_SECONDS
            for name in names:
                if fresh and name in newest.gauges:
                    yield newest.container, name, newest.gauges[name]
                elif name in process.rings:
                    yield newest.container, name, process.rings[name].total(now, seconds) / covered

    def timeline(self, now: float, request: TimelineRequest) -> TimelineReply:
        """Return the points of an interval: growth of counters, last values of gauges, means of latencies."""
        seconds = min(request.interval_seconds, LONGEST_SECONDS) if request.interval_seconds >= 0 else 0.0
        step, points = window(seconds)
        series: list[TimelineSeries] = []
        for (component, instance), process in sorted(self._processes.items()):
            if request.component not in ("", component):
                continue
            for name, rings in sorted(process.rings.items()):
                if _matches(name, request.names):
                    values = rings.points(now, seconds)
                    series.append(TimelineSeries(component, instance, name, "counter", values))
            for name, sketch_rings in sorted(process.sketch_rings.items()):
                if _matches(name, request.names):
                    values = sketch_rings.means(now, seconds)
                    series.append(TimelineSeries(component, instance, name, "latency", values))
            for name, gauge_rings in sorted(process.gauge_rings.items()):
                if _matches(name, request.names):
                    series.append(_gauge_series(component, instance, name, gauge_rings, now, seconds, request.ranges))
        return TimelineReply((now // step - points + 1) * step, step, tuple(series))

    def exceptions(self, request: ExceptionsRequest) -> ExceptionsReply:
        """Return the 256 most recent kinds of exceptions, the most recent last."""
        reports = [
            report
            for (component, _), process in self._processes.items()
            if request.component in ("", component)
            for report in process.totals.exceptions()
        ]
        reports.sort(key=_recency)
        return ExceptionsReply(tuple(reports[-MAX_EXCEPTIONS:]))

    def check(self) -> None:
        """Assert every invariant."""
        assert len(self._processes) <= MAX_PROCESSES
        assert self._series == sum(len(p.rings) + len(p.sketch_rings) for p in self._processes.values()) <= MAX_SERIES
        assert self._gauges == sum(len(p.gauge_rings) for p in self._processes.values()) <= MAX_GAUGES
        for process in self._processes.values():
            process.totals.check()
            counters = process.totals.counters()
            assert all(counters[name] >= value - 1e-6 for name, value in process.counted.items())

    def _take(self, now: float, made: float, report: ProcessMetrics) -> None:
        """Store one report. ``made`` is the time of the report by the clock of ``now``."""
        key = (report.component, report.instance)
        process = self._processes.get(key)
        if process is None:
            if len(self._processes) >= MAX_PROCESSES:
                self._release(now)
            if len(self._processes) >= MAX_PROCESSES:
                self.refused += 1
                return
            process = self._processes[key] = _Process()
        known = process.totals.entries()
        before = next((entry.sketches for entry in known if entry.incarnation == report.incarnation), {})
        check_sketches(report.sketches, before)  # before anything of it is taken
        process.reported = now
        if report.incarnation == FOLDED_INCARNATION:
            history = self._is_first or bool(known)
        else:
            first = all(entry.incarnation != report.incarnation for entry in known)
            history = self._is_first or not first or report.started >= self.since - START_SLACK_SECONDS
        if not process.totals.take(self._without_old_exceptions(report)):
            return
        process.began = min(process.began, report.started)
        self._count(now, process, history)
        newest = process.totals.newest
        if newest is not None and newest.incarnation == report.incarnation:
            process.heard = max(process.heard, made)
            self._keep_gauges(now, made, process, report)
        self._trim_exceptions()

    def _count(self, now: float, process: _Process, history: bool) -> None:
        """Add the growth of every total to the rings; without ``history`` only record the totals."""
        for name, total in process.totals.counters().items():
            growth = total - process.counted.setdefault(name, 0.0)  # what is 0 is shown as 0
            if growth > 0:
                process.counted[name] = total
                if history and self._room(now, name in process.rings):
                    process.rings.setdefault(name, CounterRings()).add(now, growth)
        for name, sketch in process.totals.sketches().items():
            rest = sketch - process.counted_sketches.get(name, EMPTY_SKETCH)
            if rest.bins:
                process.counted_sketches[name] = sketch
                if history and self._room(now, name in process.sketch_rings):
                    process.sketch_rings.setdefault(name, LatencyRings()).add(now, rest)

    def _keep_gauges(self, now: float, made: float, process: _Process, report: ProcessMetrics) -> None:
        for name, value in report.gauges.items():
            rings = process.gauge_rings.get(name)
            if rings is None:
                if self._gauges >= MAX_GAUGES:
                    self._release(now)
                if self._gauges >= MAX_GAUGES:
                    self.refused += 1
                    continue
                self._gauges += 1
                rings = process.gauge_rings[name] = GaugeRings()
            rings.add(made, value)

    def _room(self, now: float, known: bool) -> bool:
        if known:
            return True
        if self._series >= MAX_SERIES:
            self._release(now)
        if self._series >= MAX_SERIES:
            self.refused += 1
            return False
        self._series += 1
        return True

    def _release(self, now: float) -> None:
        """Free the rings of processes that have been silent for longer than a ring covers.

        This happens at most once a minute. Their totals stay unless there are too many processes.
        """
        if now < self._next_release:
            return
        self._next_release = now + RELEASE_EACH_SECONDS
        silent = [key for key, p in self._processes.items() if p.reported < now - LONGEST_SECONDS - COARSE_SECONDS]
        for key in silent:
            process = self._processes[key]
            self._series -= len(process.rings) + len(process.sketch_rings)
            self._gauges -= len(process.gauge_rings)
            for rings in (process.rings, process.sketch_rings, process.gauge_rings):
                rings.clear()
            if len(self._processes) >= MAX_PROCESSES:
                del self._processes[key]

    def _values(
        self, now: float, seconds: float, process: _Process, names: Sequence[str]
    ) -> list[tuple[str, str, float, bytes]]:
        values: list[tuple[str, str, float, bytes]] = []
        for name, total in process.counted.items():
            if _matches(name, names):
                if seconds >= 0:
                    rings = process.rings.get(name)
                    total = rings.total(now, seconds) if rings else 0.0
                values.append((name, "counter", total, b""))
        for name, sketch in process.counted_sketches.items():
            if _matches(name, names):
                if seconds >= 0:
                    history = process.sketch_rings.get(name)
                    sketch = history.total(now, seconds) if history else EMPTY_SKETCH
                values.append((name, "latency", sketch.count, encode_sketch(sketch)))
        return sorted(values)

    @staticmethod
    def _gauge_values(
        now: float, seconds: float, component: str, instance: str, process: _Process, names: Sequence[str]
    ) -> list[MetricValue]:
        newest = process.totals.newest
        span = LONGEST_SECONDS if seconds < 0 else seconds
        values = []
        for name, value in sorted(newest.gauges.items()) if newest is not None else ():
            if not _matches(name, names):
                continue
            rings = process.gauge_rings.get(name)
            point = rings.together(now, span) if rings is not None else EMPTY_POINT
            if not point.count:  # the interval is shorter than the time between two reports
                point = GaugePoint(value, value, value, value, 1)
            values.append(
                MetricValue(
                    component, instance, name, "gauge", value,
                    minimum=point.minimum, maximum=point.maximum, mean=point.mean,
                )
            )  # fmt: skip
        return values

    def _without_old_exceptions(self, report: ProcessMetrics) -> ProcessMetrics:
        if not report.exceptions:
            return report
        recent = tuple(e for e in report.exceptions if e.last_time >= self._exception_floor)
        return replace(report, exceptions=recent)

    def _trim_exceptions(self) -> None:
        """Keep the 256 most recent kinds of exceptions, so that tracebacks do not fill the memory."""
        entries = [(p, e) for p in self._processes.values() for e in p.totals.entries() if e.exceptions]
        everything = sorted((_recency(x) for _, e in entries for x in e.exceptions), reverse=True)
        if len(everything) <= 2 * MAX_EXCEPTIONS:
            return
        self._exception_floor = everything[MAX_EXCEPTIONS - 1][0]
        for process, entry in entries:
            trimmed = self._without_old_exceptions(entry)
            if entry.incarnation == FOLDED_INCARNATION:
                process.totals.earlier = trimmed
            else:
                process.totals.recent[entry.incarnation] = trimmed


def _gauge_series(
    component: str, instance: str, name: str, rings: GaugeRings, now: float, seconds: float, ranges: bool
) -> TimelineSeries:
    values = rings.lasts(now, seconds)
    if not ranges:
        return TimelineSeries(component, instance, name, "gauge", values)
    points = rings.points(now, seconds)
    minima, maxima = tuple(p.minimum for p in points), tuple(p.maximum for p in points)
    return TimelineSeries(component, instance, name, "gauge", values, minima, maxima, tuple(p.mean for p in points))


def _matches(name: str, names: Sequence[str]) -> bool:
    return not names or any(name == n or name.startswith(n + "/") for n in names)


def _recency(report: ExceptionReport) -> tuple[float, str, str, str]:
    return (report.last_time, report.component, report.instance, report.class_name)


USE_SECONDS = 60.0
# Name to (which sum, factor to its unit).
_CPU = {
    "__py-user-cpu-time-secs": 1.0,
    "__py-sys-cpu-time-secs": 1.0,
    "__process/__cpu_user_usec": 1e-6,
    "__process/__cpu_system_usec": 1e-6,
}
_MEMORY = ("__py-physical-memory-byte", "__process/__mem_used_bytes")


def topology_gauges(store: MetricStore, packing: PackingPlan | None, now: float) -> dict[str, float]:
    """Return the gauges of the whole topology by name.

    The lag is present only if a spout reports its own. ``now`` is in seconds since 1970.
    """
    cpu = memory = 0.0
    lags_ms: list[float] = []
    for container, name, value in store.exactly(now, USE_SECONDS, (*_CPU, *_MEMORY, SPOUT_LAG)):
        if name == SPOUT_LAG:
            lags_ms.append(value)
        elif holds_master(container):
            continue
        elif name in _CPU:
            cpu += value * _CPU[name]
        else:
            memory += value
    containers = packing.containers if packing is not None else ()
    lag = {"__topology-lag-ms": max(lags_ms)} if lags_ms else {}
    return lag | {
        "__used-cpu-cores": cpu,
        "__used-memory-bytes": memory,
        "__reserved-cpu-cores": sum(c.resources.cpu for c in containers),
        "__reserved-memory-bytes": float(sum(c.resources.ram_bytes for c in containers)),
    }
