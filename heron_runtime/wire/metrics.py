"""Reports of processes to the metrics manager of their container.

Counters, sketches and exception counts are *totals since the process began* (its incarnation), never differences. A
lost or repeated report therefore changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


def exception_kind(class_name: str, traceback: str) -> tuple[str, str]:
    """Return the key of an exception: its class and the code lines of its traceback.

    The message is not part of the key, since it may contain values that differ each time. If the traceback does not
    contain code lines, the whole text is used.
    """
    lines = [line for line in traceback.splitlines() if line.startswith('  File "')]
    return class_name, "\n".join(lines) or traceback


@dataclass(frozen=True, slots=True)
class ExceptionReport:
    """Exceptions of user code of one kind (``exception_kind``), with the newest message.

    Times are in seconds since 1970, UTC.
    """

    component: str
    instance: str
    class_name: str
    message: str
    traceback: str
    count: int
    first_time: float
    last_time: float

    @property
    def kind(self) -> tuple[str, str]:
        """Key that identifies the kind within its process."""
        return exception_kind(self.class_name, self.traceback)


@dataclass(frozen=True, slots=True)
class TopologyEvent:
    """Event of the topology, for its history (``heron_runtime.telemetry.recorder``).

    ``count`` events are reported as one; ``time`` is that of the last. ``detail`` is JSON.
    """

    time: float
    kind: str
    component: str
    count: int
    text: str
    detail: str


@dataclass(frozen=True, slots=True)
class ProcessMetrics:
    """Report of one process. Metric names are Heron's (``__emit-count/default``), see ``heron_runtime.model.metrics``.

    ``started`` is the start time of the incarnation (seconds since 1970, UTC). A metrics manager also sends reports of
    incarnation 0, which are the sum of all earlier incarnations of the process up to the one that began at ``started``.
    ``happenings`` are the last of the ``happened`` events so far. A receiver that has an earlier report can tell which
    events are new, and how many it has missed.
    """

    component: str
    instance: str
    container: int
    task: int
    incarnation: int
    time: float
    counters: Mapping[str, float] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    sketches: Mapping[str, bytes] = field(default_factory=dict)
    exceptions: tuple[ExceptionReport, ...] = ()
    started: float = 0.0
    happenings: tuple[TopologyEvent, ...] = ()
    happened: int = 0


@dataclass(frozen=True, slots=True)
class Reports:
    """Message of one process to the metrics manager: its own report and those it relays."""

    processes: tuple[ProcessMetrics, ...]


@dataclass(frozen=True, slots=True)
class MetricsAck:
    """Acknowledgement of Reports."""
