"""Output of a task: flush schedule, bound of data-out, and plan changes."""

from __future__ import annotations

from collections import Counter

from heron_instance.core.collector import TaskCollector
from heron_instance.core.flow_control import AdaptiveQueue, TupleWeightEstimator
from heron_instance.core.outbox import Flush, RefusedTuple
from heron_instance.core.state.barriers import UpdateDrain
from heron_instance.core.task import TaskRuntime
from heron_runtime.model.dataflow import FailKind
from heron_runtime.model.metrics import EMIT_COUNT, SERIALIZATION_TIME_NS, keyed
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.model.settings import Keys, setting
from heron_runtime.wire.data import Frame

FLUSH_ROWS = 4096  # reached only under load; at rest the flush interval comes first
QUANTUM_BYTES = 256 * 1024  # approximate emits of user code between two checks of data-out
QUANTUM_WEIGHT = 4 * QUANTUM_BYTES


class TaskOutput:
    """Buffer and flush schedule for the routed rows of one task."""

    def __init__(
        self,
        task: TaskRuntime,
        collector: TaskCollector,
        plan: PhysicalPlan,
        weight_estimator: TupleWeightEstimator | None = None,
    ) -> None:
        self.plan = plan
        self.data_out = AdaptiveQueue(setting(task.config, Keys.TOPOLOGY_INSTANCE_DATA_OUT_CAPACITY_BYTES))
        self.interval_ms = float(setting(task.config, Keys.TOPOLOGY_FLUSH_INTERVAL_MS))
        self.waiting_since_ms: float | None = None  # since when rows wait for a flush; also set by the first emit
        self.draining = UpdateDrain(plan, task.id, task.clock() * 1000)
        self._task = task
        self._collector = collector
        self._weight_estimator = weight_estimator
        self._outbox = task.outbox
        self._last_flush_ms = float("-inf")
        self._last_pickled = 0
        self._ready: list[Flush] = []  # made before their time
        self.sent_frames: Counter[int] = Counter()  # data frames by task, where barriers name them

    def follow(self, now_ms: float, plan: PhysicalPlan) -> None:
        """Apply a new plan; an older one is ignored. Rows emitted under the old routing are routed by it."""
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
        """Return True if a flush would carry something."""
        return bool(self._outbox.rows or self._collector.unsent() or self._task.failures.waiting())

    def flush_early(self, now_ms: float) -> None:
        """Route and flush everything, for the next ``take_due``. Later emits start a new waiting time."""
        self.waiting_since_ms = None
        self._collector.route_pending()
        self._ready += self._flush(now_ms)

    def append(self, frames: list[Frame]) -> None:
        """Send these frames after the flushes made early."""
        if frames:
            flush = Flush(frames=frames)
            self.data_out.add(flush.weight())
            self._ready.append(flush)

    def send_drain_barriers(self) -> None:
        """Send the barriers of an update after all emitted rows."""
        self.flush_early(self._task.clock() * 1000)
        self.append(self.draining.barriers())

    def take_due(self, now_ms: float, idle: bool, gap_ms: float) -> list[Flush]:
        """Return the flushes made early, and one more if it is due.

        A flush is due when a batch is full, when the oldest row has waited too long, or, if ``idle``, when the last
        flush is ``gap_ms`` ago.
        """
        ready, self._ready = self._ready, []
        if self._is_due(now_ms, idle, gap_ms):
            self.waiting_since_ms = None
            ready += self._flush(now_ms)
        return ready

    def take_all(self, now_ms: float) -> list[Flush]:
        """Flush and return everything."""
        self.flush_early(now_ms)
        ready, self._ready = self._ready, []
        return ready

    def deadline_ms(self, gap_ms: float) -> float | None:
        """Return when ``take_due`` flushes at the latest, or when a drain times out."""
        if self.waiting_since_ms is None:
            return self.draining.deadline_ms()
        return min(self.waiting_since_ms + self.interval_ms, self.next_flush_ms(gap_ms))

    def next_flush_ms(self, gap_ms: float) -> float:
        """Return the earliest time of the next flush of an idle task."""
        return self._last_flush_ms + gap_ms

    def quantum(self) -> int:
        """Return the number of rows that may be emitted before data-out is checked again."""
        room = min(self.data_out.room(), QUANTUM_WEIGHT)
        return max(1, min(FLUSH_ROWS, int(room / self._outbox.mean_row_weight)))

    def collect_metrics(self) -> None:
        """Report counters and gauges."""
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
        """Flush all routed rows. Return an empty list if there is nothing."""
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
        if task.keeps_state:
            for frame in frames:
                self.sent_frames[frame.destination_task] += 1
        if self._weight_estimator is not None and self._outbox.weights:
            self._weight_estimator.add_flush(flush)
        return [flush] if flush else []

    def _refuse(self, refused: list[RefusedTuple]) -> None:
        """Record tuples that cannot be encoded as exceptions of user code, and fail their roots."""
        task = self._task
        for (stream, reason), n in Counter((r.stream, r.reason) for r in refused).items():
            task.errors.record_refused(self.plan.streams[stream][1], reason, n)
        for each in refused:
            task.failures.add_roots(each.roots, FailKind.EXCEPTION, each.reason)
        self._collector.refused(len({root for each in refused for root in each.roots}))

    def _report(self) -> None:
        """Report the counters."""
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
