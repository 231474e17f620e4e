"""Rows that a container adds to the history of its topology: reports in, growth out.

Reports are totals since a process began. ``Growing`` remembers the last report of each incarnation that it has taken
and keeps, for each series and bucket of ten seconds, what came since. ``take_rows`` hands all of it over to be written;
what could not be written is put back. The reports as they were at that moment (``baseline``) are saved beside the
files, so that a metrics manager that starts again continues at their end: whatever dies, the sum of all rows of a
counter is its total.

**Bounds.** There are as many series as the container's processes report (``metrics_manager.collection`` bounds
those). Where files cannot be written, rows wait; beyond ``max_rows`` buckets of a series are added up into the newest
one. So a full disk costs resolution in time, and never a sum. Events beyond ``MAX_EVENTS`` are dropped, oldest first,
and counted, as are events that were dropped before a report (``heron_runtime.telemetry.recorder``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from heron_runtime.model.history import EXCEPTION, RAW, HistoryEvent, Key, MetricRow, bucket, exact
from heron_runtime.model.metrics import MetricKind
from heron_runtime.model.sketch import Sketch
from heron_runtime.telemetry.recorder import new_events
from heron_runtime.telemetry.totals import FOLDED_INCARNATION
from heron_runtime.wire.errors import MalformedMessage
from heron_runtime.wire.metrics import ProcessMetrics
from heron_runtime.wire.sketch_codec import decode_sketch

MAX_ROWS = 100_000
MAX_EVENTS = 10_000
MAX_DETAIL = 4_000  # characters of a traceback, its end
FIRST_FILE_SECS = 10.0

Process = tuple[str, str]  # component, instance


class Growing:
    """Rows and events that wait to be written, and the reports that they were counted from."""

    def __init__(self, baseline: Iterable[ProcessMetrics] = (), max_rows: int = MAX_ROWS) -> None:
        self._max_rows = max_rows
        self._seen: dict[Process, dict[int, ProcessMetrics]] = {}
        self._rows: dict[Key, MetricRow] = {}
        self._events: list[HistoryEvent] = []
        self.events_dropped = 0
        for report in baseline:
            self._seen.setdefault((report.component, report.instance), {})[report.incarnation] = report

    def take(self, reports: Sequence[ProcessMetrics]) -> None:
        """Add reports of processes, each with all known incarnations."""
        known: dict[Process, dict[int, ProcessMetrics]] = {}
        for report in reports:
            if report.incarnation == FOLDED_INCARNATION:
                continue
            process = (report.component, report.instance)
            before = self._seen.get(process, {}).get(report.incarnation)
            fresh = before is None or report.time > before.time
            if fresh:
                for row in _growth(before, report):
                    self._add(row)
                self.note(_exceptions(before, report))
                self._note_happenings(before, report)
            known.setdefault(process, {})[report.incarnation] = report if fresh or before is None else before
        self._seen |= known
        if len(self._rows) > self._max_rows:
            self._coarsen()

    def note(self, events: Iterable[HistoryEvent]) -> None:
        """Add events."""
        self._events += events
        beyond = len(self._events) - MAX_EVENTS
        if beyond > 0:
            del self._events[:beyond]
            self.events_dropped += beyond

    def _note_happenings(self, before: ProcessMetrics | None, now: ProcessMetrics) -> None:
        events, missed = new_events(before, now)
        self.events_dropped += missed
        self.note(
            HistoryEvent(
                round(h.time * 1000), h.kind, now.container, h.component, now.instance, h.count, h.text, h.detail
            )
            for h in events
        )

    @property
    def waits(self) -> bool:
        """Return True if rows or events wait to be written."""
        return bool(self._rows or self._events)

    def baseline(self) -> tuple[ProcessMetrics, ...]:
        """Return the reports up to which everything was counted. Exceptions keep their counts."""
        return tuple(report for process in self._seen.values() for report in process.values())

    def take_rows(self) -> tuple[list[MetricRow], list[HistoryEvent]]:
        """Return the waiting rows in the order of a file."""
        rows = sorted(self._rows.values(), key=lambda r: (r.component, r.metric, r.instance, r.start_ms))
        events, self._rows, self._events = self._events, {}, []
        return rows, events

    def put_back(self, rows: Iterable[MetricRow], events: Sequence[HistoryEvent]) -> None:
        """Put rows back that could not be written."""
        for row in rows:
            self._add(row)
        newer, self._events = self._events, list(events)
        self.note(newer)
        if len(self._rows) > self._max_rows:
            self._coarsen()

    def check(self) -> None:
        """Assert every invariant."""
        assert len(self._events) <= MAX_EVENTS
        series = {key[1:] for key in self._rows}
        assert len(self._rows) <= max(self._max_rows, len(series)), "rows are bounded, or one of each series"
        assert all(key == row.key for key, row in self._rows.items())
        assert all(row.sum >= 0 for row in self._rows.values() if row.kind == MetricKind.COUNTER)

    def _add(self, row: MetricRow) -> None:
        there = self._rows.get(row.key)
        if there is None:
            self._rows[row.key] = row
        else:
            there.add(row)

    def _coarsen(self) -> None:
        newest = max(key[0] for key in self._rows)
        rows, self._rows = self._rows.values(), {}
        for row in rows:
            row.start_ms = newest
            self._add(row)


class Files:
    """Schedule of files: short intervals at first, so that short runs are recorded, then ``file_secs``."""

    def __init__(self, file_secs: float, now: float) -> None:
        self._most = file_secs
        self._wait = min(FIRST_FILE_SECS, file_secs)
        self._due = now + self._wait

    def due(self, now: float) -> bool:
        """Return True if a file is due. The next interval is twice as long."""
        if now < self._due:
            return False
        self._wait = min(2 * self._wait, self._most)
        self._due = now + self._wait
        return True


def beyond(files: Sequence[tuple[str, int, str]], max_bytes: int, oldest_date: str) -> list[str]:
    """Return the files to remove: those before ``oldest_date``, and the oldest ones beyond ``max_bytes``.

    Args:
        files: (name, bytes, date), oldest first. The newest file is never removed.
        max_bytes: Largest total size.
        oldest_date: Files of earlier days are removed.
    """
    total, gone = sum(size for _, size, _ in files), []
    for name, size, date in files[:-1]:
        if date < oldest_date or total > max_bytes:
            gone.append(name)
            total -= size
    return gone


def _growth(before: ProcessMetrics | None, now: ProcessMetrics) -> Iterator[MetricRow]:
    time_ms = round(now.time * 1000)
    start = bucket(time_ms, RAW)

    def row(metric: str, kind: MetricKind) -> MetricRow:
        return MetricRow(start, now.container, now.component, now.instance, metric, str(kind))

    counted = before.counters if before is not None else {}
    for name, total in now.counters.items():
        grown = exact(total) - exact(counted.get(name, 0.0))
        if grown > 0:
            metric_row = row(name, MetricKind.COUNTER)
            metric_row.count, metric_row.sum = 1.0, grown
            yield metric_row
    for name, value in now.gauges.items():
        if math.isfinite(value):
            metric_row = row(name, MetricKind.GAUGE)
            metric_row.count, metric_row.sum, metric_row.low, metric_row.high = 1.0, value, value, value
            metric_row.last, metric_row.last_ms = value, time_ms
            yield metric_row
    sketched = before.sketches if before is not None else {}
    for name, data in now.sketches.items():
        bins = _since(data, sketched.get(name, b""))
        if bins:
            metric_row = row(name, MetricKind.LATENCY)
            metric_row.bins, metric_row.count = bins, sum(bins.values())
            yield metric_row


def _since(data: bytes, before: bytes) -> dict[int, float]:
    if data == before:
        return {}
    try:
        now, earlier = decode_sketch(data), decode_sketch(before) if before else Sketch()
    except MalformedMessage:
        return {}  # a process that sends such a thing is told of by others
    grown = {key: exact(count) - exact(earlier.bins.get(key, 0.0)) for key, count in now.bins.items()}
    return {key: count for key, count in grown.items() if count > 0}


def _exceptions(before: ProcessMetrics | None, now: ProcessMetrics) -> Iterator[HistoryEvent]:
    counted = {e.kind: e.count for e in before.exceptions} if before is not None else {}
    for each in now.exceptions:
        grown = each.count - counted.get(each.kind, 0)
        if grown > 0:
            yield HistoryEvent(
                round(each.last_time * 1000), EXCEPTION, now.container, now.component, now.instance, grown,
                f"{each.class_name}: {each.message}", each.traceback[-MAX_DETAIL:],
            )  # fmt: skip
