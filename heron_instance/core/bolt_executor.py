"""Executor of a bolt: frames to batches, batches through user code, emitted rows and acks to flushes.

Waiting frames of one stream become one batch. A batch is interrupted and resumed when time is up, so that a slow bolt
still flushes its acks, ticks and obeys control messages. While data-out is full no input is taken, so user code exceeds
the bound by the emits of one piece of work at most. Missed ticks are not made up for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from heron_instance.core.bolt_collector import BoltCollector
from heron_instance.core.collector import Admit, RowFilter
from heron_instance.core.executor import Executor, RunResult, ms_until_first
from heron_instance.core.flow_control import AdaptiveQueue, TupleWeightEstimator
from heron_instance.core.input_batch import FAILED, OPEN, InputBatch, batch_kind
from heron_instance.core.outbox import Flush
from heron_instance.core.processing import BatchCursor, BatchProcessor
from heron_instance.core.task import ExecutorSetup
from heron_instance.core.task_metrics import InputMetrics
from heron_instance.core.values_codec import ValuesError
from heron_runtime.model.dataflow import FailKind
from heron_runtime.model.settings import Keys, setting
from heron_runtime.wire.data import BARRIER, Frame
from heronry.api.tuples import tick_tuple

BATCH_TUPLES = 1024
PIECE_MS = 4.0  # target duration of a piece of work
MIN_TUPLE_MS = 0.002
CREDIT_STEP_BYTES = 16 * 1024  # a smaller step is not worth a message


class Ticks:
    """Tick schedule of one bolt task, by ``topology.tick.tuple.freq.secs`` or ``.ms``.

    The first tick is due one interval after the first call of ``due``.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        seconds = setting(config, Keys.TOPOLOGY_TICK_TUPLE_FREQ_SECS)
        milliseconds: float | None = setting(config, Keys.TOPOLOGY_TICK_TUPLE_FREQ_MS)
        if milliseconds is None and seconds is not None:
            milliseconds = 1000.0 * seconds
        self._each_ms = milliseconds
        self.next_ms: float | None = None
        self.count = 0

    def due(self, now_ms: float) -> bool:
        """Return True if a tick is due, and count it as given."""
        if self._each_ms is None:
            return False
        if self.next_ms is None:
            self.next_ms = now_ms + self._each_ms
            return False
        if now_ms < self.next_ms:
            return False
        self.next_ms = max(self.next_ms + self._each_ms, now_ms)
        self.count += 1
        return True


class BoltExecutor(Executor):
    """Executor of one bolt task."""

    collector: BoltCollector

    def __init__(self, setup: ExecutorSetup) -> None:
        self.weight_estimator = TupleWeightEstimator(hasattr(setup.component, "process_batch"))
        super().__init__(setup, self.weight_estimator)
        task = self.task
        self.data_in = AdaptiveQueue(setting(task.config, Keys.TOPOLOGY_INSTANCE_DATA_IN_CAPACITY_BYTES))
        self.taken_weight = 0
        self._processing = BatchProcessor(task, self.collector)
        self._frames: deque[tuple[Frame, float]] = deque()
        self._work: BatchCursor | None = None
        self._serial = 0
        self._tuple_ms: float | None = None  # time of one tuple, smoothed
        self._ticks = Ticks(task.config)
        self._gap_ms = self.output.interval_ms / 5  # between flushes of an idle bolt: isolated messages are expensive
        self._sources = _input_streams(setup)
        self._metrics = InputMetrics(task.counts.count, task.telemetry)
        self._busy_since_ms: float | None = None  # with current input, or blocked; None: idle
        self._done = 0  # tuples in this run
        self._credit_bytes = 0  # as reported last
        self._reported_weight = -1

    def _make_collector(self, setup: ExecutorSetup, admit: Admit) -> BoltCollector:
        return BoltCollector(self.task, admit, setup.rng)

    def _row_filters(self) -> list[RowFilter]:
        return [self.task.hooks.bolt_emits] if self.task.hooks else []

    def on_frames(self, now_ms: float, frames: list[Frame]) -> None:
        """Queue input frames."""
        for frame in frames:
            self._frames.append((frame, now_ms))
            self.data_in.add(frame.weight())

    # Work.

    def run(self, now_ms: float) -> RunResult:
        """Tick if it is time, then process one piece of a batch."""
        output = self.output
        began_ms = now_ms if self._busy_since_ms is None else self._busy_since_ms
        output.data_out.adjust(now_ms)
        self.data_in.adjust(now_ms)
        self.task.state.pass_time()
        checkpointer = self.checkpointer
        if checkpointer is not None:
            checkpointer.run_due_work(now_ms)
        output.draining.tick(now_ms)
        if self.failed is None and not output.data_out.full:
            if not self._is_quiet():
                self._tick(now_ms)
            if self._work is None:
                self._take_batch()
                if self._work is None and output.draining.due:  # all that came before the barriers is processed
                    output.send_drain_barriers()
            if self._work is not None:
                self._process_piece(self._work)
                now_ms = self.task.clock() * 1000
            else:
                self.collector.route_pending()  # emits and acks of other threads of the component
        else:
            self.task.counts.count("__out-queue-full-count", 1)
        idle = self._work is None and (
            not self._frames or (self.checkpointer is not None and self.checkpointer.is_halted)
        )
        self._count_settled()
        flushes = output.take_due(now_ms, idle, self._gap_ms)
        self._weigh(now_ms, now_ms - began_ms)
        self._busy_since_ms = None if idle else now_ms
        return RunResult(
            flushes, self._wait_ms(now_ms, idle), self._new_credit(), self._reported_weight, self.taken_weight
        )

    def _is_quiet(self) -> bool:
        """Return True while a drain or a checkpoint halts the ticks."""
        return self.output.draining.quiet or (self.checkpointer is not None and self.checkpointer.is_halted)

    def _weigh(self, now_ms: float, elapsed_ms: float) -> None:
        """Update the weight of input tuples by the time they take and the output they cause."""
        estimator = self.weight_estimator
        estimator.add_work(self._done, elapsed_ms)
        self._done = 0
        # Rows that are not flushed yet are not weighed, and a first estimate that is too light would admit a flood.
        if estimator.is_known or not self.output.unsent():
            estimator.update(now_ms, self.task.outbox.weights)

    # Within a call of user code that lasts.

    def serve_within_call(self, now_ms: float) -> None:
        """Adapt the bound of data-out."""
        self.output.data_out.adjust(now_ms)

    def must_wait(self, now_ms: float) -> bool:
        """Return True while emits of a long call must wait."""
        return self.output.data_out.full

    def room(self) -> int:
        """Return the number of rows that may be emitted now."""
        return self.output.quantum()

    def next_opening_ms(self) -> float | None:
        """Return when emits may be possible by time alone."""
        return self.output.data_out.deadline_ms()

    def flush_within_call(self, now_ms: float) -> list[Flush]:
        """Flush rows, acks and fails so far. The caller has taken the lock while user code runs."""
        if self._work is not None:
            self._processing.settle_done(self._work)
        self.collector.route_pending()
        return self.output.take_all(now_ms)

    def _wait_ms(self, now_ms: float, idle: bool) -> float | None:
        data_out = self.output.data_out
        if self.failed is not None or (not idle and not data_out.full):
            return 0.0
        return ms_until_first(
            now_ms,
            self.output.deadline_ms(self._gap_ms),
            None if data_out.full or self._is_quiet() else self._ticks.next_ms,
            data_out.deadline_ms(),
            self.data_in.deadline_ms(),
            self.checkpointer.deadline_ms() if self.checkpointer is not None else None,
        )

    def _new_credit(self) -> int | None:
        """Return the total weight of frames that the stream manager may have sent, when it is time to report it."""
        weight = self.weight_estimator.tuple_weight
        limit = self.taken_weight + max(self.data_in.capacity, weight)  # one tuple, however heavy
        # By halves, so that reports are rare, and in steps worth a message.
        few = limit - self._credit_bytes < max(CREDIT_STEP_BYTES, self.data_in.capacity // 2)
        if few and weight == self._reported_weight:
            return None
        self._credit_bytes, self._reported_weight = max(limit, self._credit_bytes), weight
        return self._credit_bytes

    def _take_batch(self) -> None:
        """Decode waiting frames of one stream and join them into a batch."""
        frames: list[Frame] = []
        rows: list[tuple[Any, ...]] = []
        kind = None
        arrived_ms = seconds = 0.0
        clock, checkpointer = self.task.clock, self.checkpointer
        while self._frames:
            frame, came_ms = self._frames[0]
            if frames and (kind is None or batch_kind(frame) != kind or len(rows) + frame.count > BATCH_TUPLES):
                break
            begun = bool(frames)  # no batch spans a barrier
            if (
                not checkpointer.can_take(frame, begun)
                if checkpointer is not None
                else begun and frame.codec == BARRIER
            ):
                break
            self._frames.popleft()
            self.taken_weight += frame.weight()
            self.data_in.remove(frame.weight())
            if frame.codec == BARRIER:
                if checkpointer is not None:
                    checkpointer.barrier(frame)
                else:
                    self.output.draining.barrier(frame)
                continue
            began = clock()
            try:
                decoded = self._decode(frame)
            except ValuesError as error:
                self.task.errors.record_exception(error, "input")
                self._fail_frame(frame, came_ms, FailKind.EXCEPTION, str(error))
                continue
            seconds += clock() - began
            if not frames:
                kind, arrived_ms, rows = batch_kind(frame), came_ms, decoded
            else:
                rows += decoded
            frames.append(frame)
        if frames:
            batch = self._batch(frames, arrived_ms)
            self._work = BatchCursor(batch, rows)
            self._metrics.count_decoded((batch.component, batch.stream), seconds)
            self.collector.begin_turn(batch)

    def _batch(self, frames: list[Frame], arrived_ms: float) -> InputBatch:
        batch = InputBatch(*self._sources[frames[0].stream], frames, self._serial, arrived_ms)
        self._serial += batch.count
        return batch

    def _decode(self, frame: Frame) -> list[tuple[Any, ...]]:
        rows = self.task.codec.decode(frame.codec, frame.values)
        if len(rows) != frame.count:
            raise ValuesError(f"frame of {frame.count} tuples has {len(rows)} rows")
        return rows

    def _fail_frame(self, frame: Frame, arrived_ms: float, kind: FailKind, message: str) -> None:
        batch = self._batch([frame], arrived_ms)
        self.task.failures.add(batch, list(range(batch.count)), kind, message)

    def _process_piece(self, work: BatchCursor) -> None:
        """Process some tuples of the current batch. Its turn ends when none is left."""
        clock = self.task.clock
        started = clock()
        start = work.position()
        limit = 1 if self._tuple_ms is None else max(1, int(PIECE_MS / max(self._tuple_ms, MIN_TUPLE_MS)))
        if self.collector.streams:
            limit = min(limit, self.output.quantum())
        self._processing.process(work, limit)
        stop = work.position()
        elapsed_ms = 1000 * (clock() - started)
        done = stop - start
        self._processing.settle(work, stop)
        if stop == work.count:
            self._end_turn(work)
        else:
            self.collector.route_pending()
        if done:
            each, known = elapsed_ms / done, self._tuple_ms
            self._tuple_ms = each if known is None or each > known else 0.8 * known + 0.2 * each
            self._done += done
            waited_ms = 1000 * started - work.batch.arrived_ms
            if not self._processing.batchwise:  # one after the other: a tuple waits for half of them on average
                waited_ms += (elapsed_ms - each) / 2
            self._metrics.count_executed((work.batch.component, work.batch.stream), done, elapsed_ms, waited_ms)

    def _end_turn(self, work: BatchCursor) -> None:
        self.collector.end_turn(work.batch)
        self._work = None

    def stop(self, now_ms: float) -> list[Flush]:
        """Close user code. Input that was taken and not processed fails at once instead of by timeout."""
        self.gate.closing = True
        text = f"{self.task.name} task {self.task.id} stopped before it processed the tuple"
        if self._work is not None:
            work = self._work
            first_open = self._processing.first_open(work)
            self._processing.settle(work, first_open)
            open_indices = [i for i in range(first_open, work.count) if work.batch.state[i] == OPEN]
            for i in open_indices:
                work.batch.state[i] = FAILED
            self.task.failures.add(work.batch, open_indices, FailKind.FAILED, text)
            self._end_turn(work)
        while self._frames:
            frame, came_ms = self._frames.popleft()
            self.data_in.remove(frame.weight())
            self._fail_frame(frame, came_ms, FailKind.FAILED, text)
        self.task.close()
        self.collector.route_pending()
        self._count_settled()
        return self.output.take_all(now_ms)

    # Ticks.

    def _tick(self, now_ms: float) -> None:
        if not self._ticks.due(now_ms):
            return
        try:
            with self.task.user_code("process_tick"):
                self.task.component.process_tick(tick_tuple(self._ticks.count))
        except Exception as error:
            self.task.errors.record_exception(error, "process_tick")
        self.collector.route_pending()

    # Metrics.

    def _count_settled(self) -> None:
        """Count each ack and fail once, with its batch, however late it came."""
        collector = self.collector
        if collector.ignored_settles:
            self.task.counts.count("__ignored-settle-count", collector.ignored_settles)
            collector.ignored_settles = 0
        acked, failed = collector.newly_acked, self.task.failures.newly_failed
        if not acked and not failed:
            return
        if failed and self.checkpointer is not None:  # only a restore sends the record again
            self.task.errors.record_failed(f"{self.task.name} has failed a tuple")
        now_ms = self.task.clock() * 1000
        self._metrics.count_acked(acked, now_ms)
        acked.clear()
        self._metrics.count_failed(failed, now_ms)
        failed.clear()

    def collect_metrics(self) -> None:
        """Report counters and gauges, including the input queue."""
        self._count_settled()
        super().collect_metrics()
        self.task.telemetry.gauge("__gateway-in-stream-queue-size", self.data_in.size)
        self.task.telemetry.gauge("__gateway-in-stream-queue-expected-capacity", self.data_in.capacity)

    def check(self) -> None:
        """Assert the invariants of the queues, and that collector and executor agree on the current batch."""
        super().check()
        self.data_in.check()
        assert self.data_in.size == sum(frame.weight() for frame, _ in self._frames), "data-in is miscounted"
        assert (self._work is None) == (self.collector.batch is None), "executor and collector disagree on the batch"


def _input_streams(setup: ExecutorSetup) -> list[tuple[str, str, tuple[str, ...]]]:
    topology = setup.plan.topology
    streams = []
    for component, stream in setup.plan.streams:
        schema = topology.component(component).output(stream)
        streams.append((component, stream, schema.fields if schema else ()))
    return streams
