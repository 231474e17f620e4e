"""What processes report to the metrics manager of their container.

Counters, sketches and exception counts are *totals since the process began* (its incarnation), never differences: a
report that is lost or repeated changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


def exception_kind(class_name: str, traceback: str) -> tuple[str, str]:
    """Return class and lines of code of an exception, without its text: messages hold values, of which each may differ.
    A traceback without lines of code tells itself apart."""
    lines = [line for line in traceback.splitlines() if line.startswith('  File "')]
    return class_name, "\n".join(lines) or traceback


@dataclass(frozen=True, slots=True)
class ExceptionReport:
    """One kind of exceptions of user code (``exception_kind``), with the newest message; times in seconds since 1970,
    UTC."""

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
        """What tells it from others of its process."""
        return exception_kind(self.class_name, self.traceback)


@dataclass(frozen=True, slots=True)
class TopologyEvent:
    """Something that happened to the topology, for its history (``heron_runtime.telemetry.recorder``). ``count``: so
    many are told as one, of which the last was at ``time``; ``detail`` is JSON."""

    time: float
    kind: str
    component: str
    count: int
    text: str
    detail: str


@dataclass(frozen=True, slots=True)
class ProcessMetrics:
    """One report of one process. Names are Heron's (``__emit-count/default``), see ``heron_runtime.model.metrics``.

    ``started`` is when the incarnation began (seconds since 1970, UTC). A metrics manager also sends reports of
    incarnation 0: the sum of all the process's earlier incarnations up to the one that began at ``started``.
    ``happenings`` are the last of the ``happened`` ones that there were, so whoever knows an earlier report knows which
    are new, and how many it has missed.
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
    """What one process sends to the metrics manager: its own report, and those that others gave it to hand on."""

    processes: tuple[ProcessMetrics, ...]


@dataclass(frozen=True, slots=True)
class MetricsAck:
    """The reports have arrived."""
