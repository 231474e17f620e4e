"""What spout and bolt executors share: set-up, flushing, exceptions, metrics, the bounds of data-out.

An executor is driven from outside: ``start``, then ``on_…`` for what arrived and ``run`` again and again. ``run`` does
a bounded piece of work and returns a ``Step``: what to send, and how long there is nothing to do. It reads no clock but
the injected one (seconds, the same origin as every ``now_ms`` / 1000), starts no thread and does no I/O; so the
simulator drives the very same code. User code runs inside ``start``, ``run`` and ``stop`` only.
"""

from __future__ import annotations

import logging
import traceback as tracebacks
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from heron_instance.core.failures import Failures
from heron_instance.core.outbox import Flush, Outbox
from heron_instance.core.queues import AdaptiveQueue
from heron_instance.core.streams import Router
from heron_instance.core.values_codec import ValuesCodec
from heronry.api.context import TopologyContext
from heronry.model.ids import DEFAULT_STREAM
from heronry.model.metrics import EMIT_COUNT, SERIALIZATION_TIME_NS, keyed
from heronry.model.plan import PhysicalPlan
from heronry.model.reasons import FailKind
from heronry.model.settings import setting
from heronry.model.topology import TopologyState

FLUSH_ROWS = 4096  # reached only under load; at rest the flush interval comes first
QUANTUM_BYTES = 256 * 1024  # about how much user code may emit before data-out is looked at again

log = logging.getLogger(__name__)


class TelemetrySink(Protocol):
    """The part of ``heronry.telemetry.Telemetry`` that executors use."""

    def count(self, name: str, n: float = 1) -> None:
        """Add to a counter."""

    def gauge(self, name: str, value: float) -> None:
        """Set a gauge."""

    def latency(self, name: str, milliseconds: float, weight: float = 1) -> None:
        """Count a duration."""

    def exception(self, class_name: str, message: str, traceback: str, now: float) -> None:
        """Count an exception of user code."""


class UserCodeFailed(Exception):
    """User code raised and the policy is to restart the instance. What was to be sent must still be sent."""


@dataclass
class Setup:
    """Everything an executor is made of. ``wall`` gives seconds since 1970, ``clock`` monotonic seconds."""

    component: Any
    plan: PhysicalPlan
    task: int
    incarnation: int
    rng: np.random.Generator
    telemetry: TelemetrySink
    clock: Callable[[], float]
    wall: Callable[[], float]
    load: Callable[[str], Any] | None = None
    wake: Callable[[], None] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # heron.* keys


@dataclass
class Step:
    """What one ``run`` leads to. ``wait_ms`` None: until something arrives.

    ``ask``: a spout is at rest. After each wait in which nothing arrived it may be called in place of ``run``, with the
    time; it gives the next wait, or None when ``run`` is to be called at once.
    """

    flushes: list[Flush]
    wait_ms: float | None
    ask: Callable[[float], float | None] | None = None


class Executor:
    """The base of ``SpoutExecutor`` and ``BoltExecutor``."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.plan = setup.plan
        self.task = setup.task
        self.component = setup.component
        self.name = setup.plan.component_of(setup.task)
        self.config = setup.plan.topology.component_config(self.name)
        self.context = TopologyContext(setup.plan, setup.task, self.config, setup.wake)
        self.telemetry = setup.telemetry
        self.tracked = setting(self.config, "topology.reliability.mode") != "ATMOST_ONCE"
        self.policy = setting(self.config, "topology.on.exception") or getattr(
            self.component, "exception_policy", "restart"
        )
        self.codec = ValuesCodec(
            setting(self.config, "topology.serializer"), setting(self.config, "topology.tuple.max.bytes"), setup.load
        )
        self.router = Router(setup.plan, setup.task, setup.rng, setup.load, self.context)
        self.outbox = Outbox(setup.task, self.codec, setup.clock)
        self.failures = Failures(self.name, setup.task)
        self.data_out = AdaptiveQueue(setting(self.config, "topology.instance.data.out.capacity.bytes"))
        self.flush_interval_ms = float(setting(self.config, "topology.flush.interval.ms"))
        self._counts: dict[str, float] = {"__exception-count": 0}
        self._waiting_since_ms: float | None = None  # since when something waits for a flush
        self._last_flush_ms = float("-inf")
        self._last_pickled = 0
        self.started = False
        self.paused = False  # by backpressure: spouts only
        self._restart: UserCodeFailed | None = None
        self.ready: list[Flush] = []  # made before their time, for the next step
        self.context.on_hooks_changed(self.attach)

    # For the shell.

    def start(self, now_ms: float) -> None:
        """Attach the collector and initialize user code. Raises what user code raises."""
        self.attach()
        self.component.initialize(dict(self.config), self.context)
        self.started = True

    def attach(self) -> None:
        """Give the component its collector."""
        raise NotImplementedError

    def on_plan(self, now_ms: float, plan: PhysicalPlan) -> None:
        """A new plan; an older one than ours is refused. What was emitted under the old routing is booked under it."""
        if plan.version < self.plan.version:
            return
        changed = plan.routing_version != self.plan.routing_version
        if changed:
            self.book()
            self.ready += self.flush(now_ms)
        self.plan = plan
        self.context.follow(plan)
        if changed:
            self.router.route(plan)

    def on_sent(self, now_ms: float, sent_bytes: int) -> None:
        """The gateway has sent frames of so many bytes."""
        self.data_out.remove(sent_bytes)

    def run(self, now_ms: float) -> Step:
        """Do a bounded piece of work."""
        raise NotImplementedError

    def stop(self, now_ms: float) -> list[Flush]:
        """Close user code and give back what is left to send. Raises nothing."""
        for call in (self.component.close, *(hook.clean_up for hook in self.context.hooks)):
            try:
                if self.started:
                    call()
            except Exception:
                log.exception("%s.close raised", self.name)
        self.book()
        ready, self.ready = self.ready, []
        return ready + self.flush(now_ms)

    def is_active(self) -> bool:
        """True if the topology's owner wants it to run."""
        return self.plan.state is TopologyState.RUNNING

    # Flushing.

    def book(self) -> None:
        """Book what the collector holds."""
        raise NotImplementedError

    def unsent(self) -> bool:
        """True if a flush would carry something."""
        raise NotImplementedError

    def fill(self, flush: Flush) -> None:
        """Add inits and acks to a flush."""
        raise NotImplementedError

    def flush(self, now_ms: float) -> list[Flush]:
        """Everything booked, as a flush; an empty list when there is nothing."""
        frames, refused = self.outbox.take_frames(self.plan.routing_version)
        flush = Flush(frames=frames)
        for stream, roots, reason in refused:
            component, name = self.plan.streams[stream]
            log.error("%s: a tuple of stream %s cannot be sent: %s", component, name, reason)
            self.count("__refused-tuple-count", 1)
            self.failures.add_roots(roots, FailKind.EXCEPTION, reason)
        self.fill(flush)
        flush.fails = self.failures.take()
        self.data_out.add(flush.frame_bytes())
        self._last_flush_ms = now_ms
        self._waiting_since_ms = None
        self.report_counts()
        return [flush] if flush else []

    def flush_if_due(self, now_ms: float, idle: bool, gap_ms: float) -> list[Flush]:
        """Flush when a batch is full, when the oldest waits too long, or, if ``idle``, when the last flush is
        ``gap_ms`` past."""
        if self._waiting_since_ms is None:
            if not self.unsent():
                if self._counts:
                    self.report_counts()
                return []
            self._waiting_since_ms = now_ms
        outbox = self.outbox
        if (
            outbox.rows >= FLUSH_ROWS
            or outbox.rows * outbox.mean_row_bytes >= QUANTUM_BYTES
            or now_ms - self._waiting_since_ms >= self.flush_interval_ms
            or (idle and now_ms - self._last_flush_ms >= gap_ms)
        ):
            return self.flush(now_ms)
        return []

    def flush_deadline_ms(self, gap_ms: float) -> float | None:
        """When ``flush_if_due`` will flush at the latest, if nothing else happens."""
        if self._waiting_since_ms is None:
            return None
        return min(self._waiting_since_ms + self.flush_interval_ms, self._last_flush_ms + gap_ms)

    # Metrics and exceptions.

    def count(self, name: str, n: float) -> None:
        """Add to a counter; it reaches the telemetry with the next flush."""
        self._counts[name] = self._counts.get(name, 0) + n

    def report_counts(self) -> None:
        """Hand the counters over."""
        for stream in self.router.streams.values():
            if stream.emitted:
                self.telemetry.count(keyed(EMIT_COUNT, stream.name), stream.emitted)
                stream.emitted = 0
        for number, seconds in self.outbox.take_encode_seconds().items():
            _, name = self.plan.streams[number]
            self.telemetry.count(keyed(SERIALIZATION_TIME_NS, name), 1e9 * seconds)
        if self.codec.pickled_batches != self._last_pickled:
            self.telemetry.count("__pickled-batch-count", self.codec.pickled_batches - self._last_pickled)
            self._last_pickled = self.codec.pickled_batches
        for name, n in self._counts.items():
            self.telemetry.count(name, n)
        self._counts.clear()

    def collect_metrics(self) -> None:
        """Hand the user's metrics and the gauges over; the shell calls it before each report."""
        self.report_counts()
        self.telemetry.gauge("__gateway-out-stream-queue-size", self.data_out.size)
        self.telemetry.gauge("__gateway-out-stream-queue-expected-capacity", self.data_out.capacity)
        for name, metric in self.context.metrics.items():
            try:
                metric.collect(name, self.telemetry)
            except Exception:  # a metric of the user's own class
                log.exception("metric %s cannot be collected", name)

    def user_error(self, error: BaseException, where: str) -> str:
        """User code raised: log, count, and restart if that is the policy. Returns the traceback."""
        text = "".join(tracebacks.format_exception(error))
        log.error("%s.%s raised %s: %s", self.name, where, type(error).__name__, error, exc_info=error)
        self.count("__exception-count", 1)
        self.telemetry.exception(type(error).__name__, str(error), text, self.setup.wall())
        if self.policy == "restart" and self._restart is None:
            self._restart = UserCodeFailed(f"{self.name}.{where} raised {type(error).__name__}: {error}")
        return text

    @property
    def failed(self) -> UserCodeFailed | None:
        """Not None once user code has raised under the policy ``restart``: send what there is, then exit."""
        return self._restart

    def call_hooks(self, method: str, info: Any) -> None:
        """Call one method of each hook; what it raises is logged and counted."""
        for hook in self.context.hooks:
            try:
                getattr(hook, method)(info)
            except Exception:
                log.exception("task hook %s.%s raised", type(hook).__name__, method)
                self.count("__hook-exception-count", 1)

    def quantum(self) -> int:
        """How many rows may be emitted before data-out is looked at again."""
        room = min(self.data_out.room(), QUANTUM_BYTES * 4)
        return max(1, min(FLUSH_ROWS, int(room / self.outbox.mean_row_bytes)))

    def check(self) -> None:
        """Assert every invariant there is."""
        self.data_out.check()


def soonest(now_ms: float, *deadlines_ms: float | None) -> float | None:
    """Milliseconds until the first of these moments; None if there is none."""
    found = [deadline for deadline in deadlines_ms if deadline is not None]
    return max(0.0, min(found) - now_ms) if found else None


__all__ = ["DEFAULT_STREAM", "Executor", "Flush", "Setup", "Step", "UserCodeFailed", "soonest"]
