"""What leaves a task: routed rows in flushes, when one is due, within the bound of data-out, under the newest plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from heron_instance.core.collector import TaskCollector
from heron_instance.core.outbox import Flush, Refused
from heron_instance.core.queues import AdaptiveQueue
from heron_instance.core.standstill import DrainingTask
from heron_instance.core.task import Task
from heron_runtime.model.dataflow import FailKind
from heron_runtime.model.metrics import EMIT_COUNT, SERIALIZATION_TIME_NS, keyed
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.model.settings import Keys, setting
from heron_runtime.wire.data import Frame

FLUSH_ROWS = 4096  # reached only under load; at rest the flush interval comes first
QUANTUM_BYTES = 256 * 1024  # about how much user code may emit before data-out is looked at again
QUANTUM_WEIGHT = 4 * QUANTUM_BYTES


class Output:
    """Of one task."""

    def __init__(self, task: Task, collector: TaskCollector, plan: PhysicalPlan) -> None:
        self.plan = plan
        self.data_out = AdaptiveQueue(setting(task.config, Keys.TOPOLOGY_INSTANCE_DATA_OUT_CAPACITY_BYTES))
        self.interval_ms = float(setting(task.config, Keys.TOPOLOGY_FLUSH_INTERVAL_MS))
        self.waiting_since_ms: float | None = None  # since when something waits for a flush; set by the first emit, too
        self.draining = DrainingTask(plan, task.id, task.clock() * 1000)
        self._task = task
        self._collector = collector
        self._outbox = task.outbox
        self._last_flush_ms = float("-inf")
        self._last_pickled = 0
        self.on_flush: Callable[[Flush], None] | None = None
        self._ready: list[Flush] = []  # made before their time

    def follow(self, now_ms: float, plan: PhysicalPlan) -> None:
        """A new plan; an older one than ours is refused. What was emitted under the old routing is routed by it."""
        if plan.version < self.plan.version:
            return
        changed = plan.routing_version != self.plan.routing_version
        if changed:
            self.flush_early(now_ms)
        self.plan = plan
        self.draining.follow(plan, now_ms)
        self._task.context.follow(plan)
        if changed:
            self._task.router.route(plan)

    def unsent(self) -> bool:
        """True if a flush would carry something."""
        return bool(self._outbox.rows or self._collector.unsent() or self._task.failures.waiting())

    def flush_early(self, now_ms: float) -> None:
        """Route and flush all there is, for the next ``take_due``; what is emitted meanwhile begins to wait anew."""
        self.waiting_since_ms = None
        self._collector.route_pending()
        self._ready += self._flush(now_ms)

    def append(self, frames: list[Frame]) -> None:
        """Send these behind what was flushed early."""
        if frames:
            flush = Flush(frames=frames)
            self.data_out.add(flush.weight())
            self._ready.append(flush)

    def fall_silent(self) -> None:
        """For an update: barriers, behind all that has been emitted."""
        self.flush_early(self._task.clock() * 1000)
        self.append(self.draining.barriers())

    def take_due(self, now_ms: float, idle: bool, gap_ms: float) -> list[Flush]:
        """What was flushed early, and one more flush when a batch is full, when the oldest waits too long, or, if
        ``idle``, when the last flush is ``gap_ms`` past."""
        ready, self._ready = self._ready, []
        if self._is_due(now_ms, idle, gap_ms):
            self.waiting_since_ms = None
            ready += self._flush(now_ms)
        return ready

    def take_all(self, now_ms: float) -> list[Flush]:
        """Everything."""
        self.flush_early(now_ms)
        ready, self._ready = self._ready, []
        return ready

    def deadline_ms(self, gap_ms: float) -> float | None:
        """When ``take_due`` will flush at the latest, if nothing else happens, or a standstill has lasted too long."""
        if self.waiting_since_ms is None:
            return self.draining.deadline_ms()
        return min(self.waiting_since_ms + self.interval_ms, self.next_flush_ms(gap_ms))

    def next_flush_ms(self, gap_ms: float) -> float:
        """No flush of an idle task comes before this moment."""
        return self._last_flush_ms + gap_ms

    def quantum(self) -> int:
        """How many rows may be emitted before data-out is looked at again."""
        room = min(self.data_out.room(), QUANTUM_WEIGHT)
        return max(1, min(FLUSH_ROWS, int(room / self._outbox.mean_row_weight)))

    def collect_metrics(self) -> None:
        """Hand counters and gauges over."""
        self._report()
        self._task.telemetry.gauge("__gateway-out-stream-queue-size", self.data_out.size)
        self._task.telemetry.gauge("__gateway-out-stream-queue-expected-capacity", self.data_out.capacity)

    def check(self) -> None:
        """Assert every invariant."""
        self.data_out.check()
        self.draining.check()

    def _is_due(self, now_ms: float, idle: bool, gap_ms: float) -> bool:
        if not self.unsent():
            self.waiting_since_ms = None
            if self._task.counts:
                self._report()
            return False
        if self.waiting_since_ms is None:
            self.waiting_since_ms = now_ms
        outbox = self._outbox
        return (
            outbox.rows >= FLUSH_ROWS
            or outbox.rows * outbox.mean_row_bytes >= QUANTUM_BYTES
            or outbox.rows * outbox.mean_row_weight >= QUANTUM_WEIGHT
            or now_ms - self.waiting_since_ms >= self.interval_ms
            or (idle and now_ms - self._last_flush_ms >= gap_ms)
        )

    def _flush(self, now_ms: float) -> list[Flush]:
        """Everything routed, as a flush; an empty list when there is nothing."""
        task = self._task
        frames, refused = self._outbox.take_frames(self.plan.routing_version)
        flush = Flush(frames=frames)
        if refused:
            self._refuse(refused)
        self._collector.fill(flush)
        flush.fails = task.failures.take()
        self.data_out.add(flush.weight())
        self._last_flush_ms = now_ms
        self._report()
        if self.on_flush is not None:
            self.on_flush(flush)
        return [flush] if flush else []

    def _refuse(self, refused: list[Refused]) -> None:
        """What cannot be encoded is an exception of user code, and fails what it hangs on."""
        task = self._task
        for (stream, reason), n in Counter((r.stream, r.reason) for r in refused).items():
            task.errors.refused(self.plan.streams[stream][1], reason, n)
        for each in refused:
            task.failures.add_roots(each.roots, FailKind.EXCEPTION, each.reason)
        self._collector.refused(len({root for each in refused for root in each.roots}))

    def _report(self) -> None:
        """Hand the counters over."""
        task = self._task
        for stream in task.router.streams.values():
            if stream.emitted:
                task.telemetry.count(keyed(EMIT_COUNT, stream.name), stream.emitted)
                stream.emitted = 0
        for number, seconds in self._outbox.take_encode_seconds().items():
            _, name = self.plan.streams[number]
            task.telemetry.count(keyed(SERIALIZATION_TIME_NS, name), 1e9 * seconds)
        if task.codec.pickled_batches != self._last_pickled:
            task.telemetry.count("__pickled-batch-count", task.codec.pickled_batches - self._last_pickled)
            self._last_pickled = task.codec.pickled_batches
        task.counts.hand_over()
