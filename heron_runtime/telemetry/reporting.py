"""What a process counts about itself.

``Telemetry`` holds totals since the process began and nothing else: no window, no reset. A report is a snapshot, so one
that is lost, late or repeated changes nothing; whoever wants a rate subtracts. How reports travel: ``reporter`` and, of
instances, the control stream of their link.

Threads: every method may be called from any thread (one lock, held for a few hundred nanoseconds; count per batch, not
per tuple). ``report`` copies under that lock and encodes outside it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from heron_runtime.model.sketch import Sketch, bin_of
from heron_runtime.process_stats import ProcessStats
from heron_runtime.telemetry.happenings import Happenings
from heron_runtime.wire.metrics import ExceptionReport, Happening, ProcessMetrics, exception_kind

MAX_NAMES = 4096
MAX_NAME_CHARACTERS = 256
MAX_EXCEPTIONS = 256
MAX_MESSAGE_CHARACTERS = 1024
MAX_TRACEBACK_CHARACTERS = 16 * 1024


class Telemetry:
    """The totals of one process. At most 4 096 names and 256 kinds of exceptions; what is beyond is counted."""

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
        self._happenings = Happenings()
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
        """Count a duration, ``weight`` times (a batch of n tuples that took t each: ``latency(name, t, n)``)."""
        key = bin_of(milliseconds)
        with self._lock:
            bins = self._bins.get(name)
            if bins is None:
                if not self._room(name):
                    return
                bins = self._bins[name] = {}
            bins[key] = bins.get(key, 0.0) + weight

    def exception(self, class_name: str, message: str, traceback: str, now: float, n: int = 1) -> None:
        """Count ``n`` exceptions of user code; ``now`` in seconds since 1970. Kinds are told apart by class
        and lines of code."""
        traceback = traceback[-MAX_TRACEBACK_CHARACTERS:]
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
            if len(self._exceptions) > MAX_EXCEPTIONS:  # the kind that is silent longest goes
                del self._exceptions[next(iter(self._exceptions))]

    def happened(
        self, kind: str, text: str, now: float, detail: str = "", *, what: str = "", component: str = ""
    ) -> None:
        """Something for the topology's history; ``now`` in seconds since 1970. What has the same kind, component and
        ``what`` is told as one beyond ten a minute."""
        with self._lock:
            self._happenings.note(Happening(now, kind, component, 1, text, detail), what)

    def settle(self, now: float) -> None:
        """The process ends: what waits to be told as one goes with the next report."""
        with self._lock:
            self._happenings.settle(now, at_once=True)

    def report(self, now: float) -> ProcessMetrics:
        """Everything since the process began, with its own CPU, memory and so on; ``now`` in seconds since 1970."""
        counters, gauges = self._stats.read(max(0.0, now - self.started))
        with self._lock:
            counters |= self._counters
            gauges |= self._gauges
            sketches = {name: Sketch(dict(bins)) for name, bins in self._bins.items()}
            exceptions = tuple(self._exceptions.values())
            self._happenings.settle(now)
            happenings, happened = self._happenings.told(), self._happenings.count
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
        """True if a new name may be added. The lock is held."""
        if len(name) > MAX_NAME_CHARACTERS or len(self._counters) + len(self._gauges) + len(self._bins) >= MAX_NAMES:
            self._counters["__telemetry-refused"] = self._counters.get("__telemetry-refused", 0) + 1
            return False
        return True


def _encoded(sketches: Mapping[str, Sketch]) -> dict[str, bytes]:
    from heron_runtime.wire.sketch_codec import encode_sketch  # here, since half of all processes time nothing

    return {name: encode_sketch(sketch) for name, sketch in sketches.items()}
