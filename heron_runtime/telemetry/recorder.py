"""Recorder of the metrics, exceptions and topology events of one process.

`Telemetry` holds totals since the process began, without windows or resets. A report is a snapshot, so a lost, late or
repeated report changes nothing, and consumers subtract to get rates. Every method may be called from any thread: one
lock is held for a few hundred nanoseconds, so callers count per batch, not per tuple. `report` copies under the lock
and encodes outside it.

Events follow the same rule. Every report carries the last events and their total number, so that a receiver can tell
which events are new and how many it has missed. Up to `MAX_SINGLE` events of one *series* (kind, component, what) are
reported individually within `WINDOW_SECONDS` of the first. Those beyond are reported as one when the window ends: the
last of them, with their number as `count`. A process thus reports at most `MAX_SINGLE` + 1 events of a series in a
minute, for at most `MAX_SERIES` series (those beyond form one series of their kind), and a report holds at most
`MAX_EVENTS`. Texts are truncated.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from heron_runtime.failures import encodable
from heron_runtime.model.sketch import Sketch, bin_of
from heron_runtime.process_stats import ProcessStats
from heron_runtime.wire.metrics import ExceptionReport, ProcessMetrics, TopologyEvent, exception_kind

WINDOW_SECONDS = 60.0
MAX_SINGLE = 10
MAX_SERIES = 64
MAX_EVENTS = 128
MAX_TEXT = 1000  # characters
MAX_DETAIL = 4000

Series = tuple[str, str, str]  # kind, component, what


@dataclass(slots=True)
class _Window:
    began: float
    single: int = 0
    waits: TopologyEvent | None = None


class EventBuffer:
    """Bounded buffer of recent topology events of one process. Times are seconds since 1970."""

    def __init__(self) -> None:
        self.count = 0  # events reported so far
        self._events: deque[TopologyEvent] = deque(maxlen=MAX_EVENTS)
        self._windows: dict[Series, _Window] = {}

    def note(self, event: TopologyEvent, what: str = "") -> None:
        """Record an event at its own time."""
        self.settle(event.time)
        series = (event.kind, event.component, what)
        if series not in self._windows and len(self._windows) >= MAX_SERIES:
            series = (event.kind, "", "")
        window = self._windows.setdefault(series, _Window(event.time))
        event = replace(event, text=event.text[:MAX_TEXT], detail=_cut(event.detail))
        if window.single < MAX_SINGLE:
            window.single += 1
            self._tell(event)
        else:
            before = window.waits.count if window.waits is not None else 0
            window.waits = replace(event, count=before + event.count)

    def settle(self, now: float, *, at_once: bool = False) -> None:
        """Report the folded events of windows that are over (`at_once`: of all). A clock set back also ends windows."""
        for series, window in list(self._windows.items()):
            if at_once or not 0 <= now - window.began < WINDOW_SECONDS:
                del self._windows[series]
                if window.waits is not None:
                    self._tell(window.waits)

    def list_events(self) -> tuple[TopologyEvent, ...]:
        """Return the last events in order."""
        return tuple(self._events)

    def check(self) -> None:
        """Assert every invariant."""
        assert len(self._windows) <= MAX_SERIES + len({series[0] for series in self._windows})
        assert all(window.single <= MAX_SINGLE for window in self._windows.values())
        assert len(self._events) <= min(self.count, MAX_EVENTS)

    def _tell(self, event: TopologyEvent) -> None:
        self._events.append(event)
        self.count += 1


def new_events(before: ProcessMetrics | None, now: ProcessMetrics) -> tuple[tuple[TopologyEvent, ...], int]:
    """Return the events of a process between two reports, and the number of events that neither report holds.

    `before` is None for the first report.
    """
    fresh = now.happened - (before.happened if before is not None else 0)
    events = now.happenings[max(0, len(now.happenings) - fresh) :] if fresh > 0 else ()
    return events, max(0, fresh - len(events))


def _cut(detail: str) -> str:
    """Return `detail`, or "" if it is too long, since truncated JSON is invalid."""
    return detail if len(detail) <= MAX_DETAIL else ""


MAX_NAMES = 4096
MAX_NAME_CHARACTERS = 256
MAX_EXCEPTIONS = 256
MAX_MESSAGE_CHARACTERS = 1024
MAX_TRACEBACK_CHARACTERS = 16 * 1024


class Telemetry:
    """Totals of one process: at most 4 096 metric names and 256 kinds of exceptions.

    Metrics with further names are counted in ``__telemetry-refused``. A further kind of exception replaces the one that
    occurred longest ago.
    """

    def __init__(self, component: str, instance: str, container: int, task: int, incarnation: int) -> None:
        self.component = component
        self.instance = instance
        self.container = container
        self.task = task
        self.incarnation = incarnation
        self.started = time.time()
        self._lock = threading.Lock()
        self._counters: dict[str, float] = {}
        self._gauges: dict[str, float] = {}
        self._bins: dict[str, dict[int, float]] = {}
        self._exceptions: dict[tuple[str, str], ExceptionReport] = {}
        self._happenings = EventBuffer()
        self._stats = ProcessStats(instance=not component.startswith("__"))

    def count(self, name: str, n: float = 1) -> None:
        """Add ``n`` to a counter (never negative)."""
        with self._lock:
            if name in self._counters:
                self._counters[name] += n
            elif self._room(name):
                self._counters[name] = n

    def gauge(self, name: str, value: float) -> None:
        """Set a gauge."""
        with self._lock:
            if name in self._gauges or self._room(name):
                self._gauges[name] = value

    def latency(self, name: str, milliseconds: float, weight: float = 1) -> None:
        """Count a duration ``weight`` times. For a batch of n tuples that took t each, call ``latency(name, t, n)``."""
        key = bin_of(milliseconds)
        with self._lock:
            bins = self._bins.get(name)
            if bins is None:
                if not self._room(name):
                    return
                bins = self._bins[name] = {}
            bins[key] = bins.get(key, 0.0) + weight

    def exception(self, class_name: str, message: str, traceback: str, now: float, n: int = 1) -> None:
        """Count ``n`` exceptions of user code, grouped by class and lines of code. ``now`` is in seconds since 1970."""
        message, traceback = encodable(message), encodable(traceback)[-MAX_TRACEBACK_CHARACTERS:]
        key = exception_kind(class_name, traceback)
        with self._lock:
            old = self._exceptions.pop(key, None)
            self._exceptions[key] = ExceptionReport(
                self.component,
                self.instance,
                class_name,
                message[:MAX_MESSAGE_CHARACTERS],
                traceback,
                n + (old.count if old else 0),
                old.first_time if old else now,
                now,
            )
            if len(self._exceptions) > MAX_EXCEPTIONS:  # drop the kind that occurred longest ago
                del self._exceptions[next(iter(self._exceptions))]

    def happened(
        self, kind: str, text: str, now: float, detail: str = "", *, what: str = "", component: str = ""
    ) -> None:
        """Record an event for the topology's history.

        Events with the same kind, component and ``what`` are reported as one beyond ten a minute.

        Args:
            kind: Kind of the event, one of ``heron_runtime.model.history.KINDS``.
            text: Description for users.
            now: Time of the event, in seconds since 1970.
            detail: JSON.
            what: Further key of the series.
            component: Component that the event concerns, or "".
        """
        with self._lock:
            self._happenings.note(TopologyEvent(now, kind, component, 1, text, detail), what)

    def settle(self, now: float) -> None:
        """Add all folded events to the next report. Call this when the process ends."""
        with self._lock:
            self._happenings.settle(now, at_once=True)

    def report(self, now: float) -> ProcessMetrics:
        """Return the totals since the process began, including its CPU and memory. ``now`` is in seconds since 1970."""
        counters, gauges = self._stats.read(max(0.0, now - self.started))
        with self._lock:
            counters |= self._counters
            gauges |= self._gauges
            sketches = {name: Sketch(dict(bins)) for name, bins in self._bins.items()}
            exceptions = tuple(self._exceptions.values())
            self._happenings.settle(now)
            happenings, happened = self._happenings.list_events(), self._happenings.count
        return ProcessMetrics(
            self.component,
            self.instance,
            self.container,
            self.task,
            self.incarnation,
            now,
            counters,
            gauges,
            _encoded(sketches) if sketches else {},
            exceptions,
            self.started,
            happenings,
            happened,
        )

    def _room(self, name: str) -> bool:
        """Return True if a new name may be added. The caller holds the lock."""
        if len(name) > MAX_NAME_CHARACTERS or len(self._counters) + len(self._gauges) + len(self._bins) >= MAX_NAMES:
            self._counters["__telemetry-refused"] = self._counters.get("__telemetry-refused", 0) + 1
            return False
        return True


def _encoded(sketches: Mapping[str, Sketch]) -> dict[str, bytes]:
    from heron_runtime.wire.sketch_codec import encode_sketch  # here, since half of all processes time nothing

    return {name: encode_sketch(sketch) for name, sketch in sketches.items()}
