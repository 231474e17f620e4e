"""Runs a bolt: frames to batches, batches through user code, what it emits and acks to flushes.

Frames of one stream that wait together become one batch. A plain ``process`` is mapped over the batch by C code; the
batch is left and taken up again when time is up, so that a slow bolt still flushes its acks, ticks and obeys. While
data-out is full no input is taken: what user code emits beyond the bound is at most what one piece of work emits.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any

from heron_instance.core.bolt_collector import UNANCHORED, BoltCollector
from heron_instance.core.executor import Executor, Flush, Setup, Step, soonest
from heron_instance.core.hooked import HookedBoltCollector
from heron_instance.core.input_batch import ACKED, FAILED, OPEN, InputBatch, kind_of
from heron_instance.core.input_figures import InputFigures
from heron_instance.core.queues import AdaptiveQueue
from heron_instance.core.ticks import Ticks
from heron_instance.core.values_codec import ValuesError
from heron_instance.core.work import Work
from heronry.api.hooks import BoltAckInfo, BoltExecuteInfo
from heronry.api.tuples import Tuple, TupleBatch, tick_tuple
from heronry.model.reasons import FailKind
from heronry.model.settings import setting
from heronry.wire.data import Frame

BATCH_TUPLES = 1024
PIECE_MS = 4.0  # a piece of work aims to last no longer


class BoltExecutor(Executor):
    """The executor of one bolt task."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        component = self.component
        self.data_in = AdaptiveQueue(setting(self.config, "topology.instance.data.in.capacity.bytes"))
        self.taken_bytes = 0
        self.collector = BoltCollector(
            self.router,
            self.outbox,
            self.failures,
            setup.rng,
            self.tracked,
            bool(getattr(component, "auto_anchor", False)),
        )
        self._batchwise = hasattr(component, "process_batch")
        self._auto_ack = bool(getattr(component, "auto_ack", False))
        self._frames: deque[tuple[Frame, float]] = deque()
        self._work: Work | None = None
        self._serial = 0
        self._tuple_ms = 0.05  # what one tuple takes, smoothed
        self._ticks = Ticks(self.config)
        self._gap_ms = self.flush_interval_ms / 5  # between flushes of an idle bolt: isolated messages are dear
        self._sources = _stream_fields(setup)
        self._figures = InputFigures(self.count, self.telemetry)

    # What arrives.

    def on_frames(self, now_ms: float, frames: list[Frame]) -> None:
        """Input."""
        for frame in frames:
            self._frames.append((frame, now_ms))
            self.data_in.add(frame.size_bytes())

    def on_pause(self, now_ms: float, paused: bool) -> None:
        """Only spouts pause."""

    def on_stream_manager(self, now_ms: float, incarnation: int) -> None:
        """A bolt has no roots of its own to lose."""

    def wake(self, now_ms: float) -> None:
        """Nothing waits for it."""

    def credit_limit(self) -> int:
        """How many bytes of frames the stream manager may have sent us in all."""
        return self.taken_bytes + self.data_in.capacity

    # Work.

    def attach(self) -> None:
        """Give the bolt its collector."""
        collector: Any = self.collector
        if self.context.hooks:
            collector = HookedBoltCollector(collector, self.task, self.call_hooks, self.setup.clock)
        self.component.attach(collector, self.name)

    def run(self, now_ms: float) -> Step:
        """Tick if it is time, then one piece of a batch."""
        self.data_out.adjust(now_ms)
        self.data_in.adjust(now_ms)
        if self.failed is None and not self.data_out.full:
            self._tick(now_ms)
            if self._work is None:
                self._take_batch()
            if self._work is not None:
                self._piece(self._work)
                now_ms = self.setup.clock() * 1000
        else:
            self.count("__out-queue-full-count", 1)
        idle = self._work is None and not self._frames
        flushes, self.ready = self.ready, []
        flushes += self.flush_if_due(now_ms, idle, self._gap_ms)
        return Step(flushes, self._wait_ms(now_ms, idle))

    def _wait_ms(self, now_ms: float, idle: bool) -> float | None:
        if self.failed is not None or (not idle and not self.data_out.full):
            return 0.0
        return soonest(
            now_ms,
            self.flush_deadline_ms(self._gap_ms),
            None if self.data_out.full else self._ticks.next_ms,
            self.data_out.deadline_ms(),
            self.data_in.deadline_ms(),
        )

    def _take_batch(self) -> None:
        """Join waiting frames of one stream into a batch, decoded."""
        frames: list[Frame] = []
        rows: list[tuple[Any, ...]] = []
        kind = None
        arrived_ms = seconds = 0.0
        clock = self.setup.clock
        while self._frames:
            frame, came_ms = self._frames[0]
            if frames and (kind is None or kind_of(frame) != kind or len(rows) + frame.count > BATCH_TUPLES):
                break
            self._frames.popleft()
            self.taken_bytes += frame.size_bytes()
            self.data_in.remove(frame.size_bytes())
            began = clock()
            try:
                decoded = self._decode(frame)
            except ValuesError as error:
                self.user_error(error, "input")
                self._fail_frame(frame, came_ms, FailKind.EXCEPTION, str(error))
                continue
            seconds += clock() - began
            if not frames:
                kind, arrived_ms, rows = kind_of(frame), came_ms, decoded
            else:
                rows += decoded
            frames.append(frame)
        if frames:
            batch = self._batch(frames, arrived_ms)
            self._work = Work(batch, rows)
            self._figures.decoded((batch.component, batch.stream), seconds)
            self.collector.batch = batch

    def _batch(self, frames: list[Frame], arrived_ms: float) -> InputBatch:
        batch = InputBatch(*self._sources[frames[0].stream], frames, self._serial, arrived_ms)
        self._serial += batch.count
        return batch

    def _decode(self, frame: Frame) -> list[tuple[Any, ...]]:
        rows = self.codec.decode(frame.codec, frame.values)
        if len(rows) != frame.count:
            raise ValuesError(f"a frame says {frame.count} tuples and holds {len(rows)}")
        return rows

    def _fail_frame(self, frame: Frame, arrived_ms: float, kind: FailKind, message: str) -> None:
        batch = self._batch([frame], arrived_ms)
        self.failures.add(batch, list(range(batch.count)), kind, message)

    def _piece(self, work: Work) -> None:
        """Process some tuples of the batch in hand; when none is left, its turn ends."""
        started = self.setup.clock()
        start = work.position()
        if self._batchwise:
            self._process_batch(work)
        else:
            limit = max(1, int(PIECE_MS / max(self._tuple_ms, 1e-4)))
            if self.router.streams:
                limit = min(limit, self.quantum())
            if self.context.hooks:
                self._process_hooked(work, limit)
            elif self.collector.auto_anchor and self.router.streams:
                self._process_anchored(work, limit)
            else:
                self._process_mapped(work, limit)
        stop = work.position()
        elapsed_ms = 1000 * (self.setup.clock() - started)
        done = stop - start
        if self._auto_ack:
            self._ack_rest(work.batch, start, stop)
        self.collector.book()
        if stop == work.count:
            self._end_turn(work)
        if done:
            each = elapsed_ms / done
            self._tuple_ms = each if each > self._tuple_ms else 0.8 * self._tuple_ms + 0.2 * each
            self._figures.executed((work.batch.component, work.batch.stream), done, elapsed_ms)
            self._count_settled()

    def _process_mapped(self, work: Work, limit: int) -> None:
        """``process`` over the next tuples, without a line of Python between two calls."""
        try:
            deque(map(self.component.process, islice(work.tuples, limit)), 0)
        except Exception as error:
            self._tuple_raised(work, error)

    def _process_anchored(self, work: Work, limit: int) -> None:
        """The same for a BasicBolt that emits: the collector must know which tuple is in hand."""
        process, collector = self.component.process, self.collector
        try:
            # The loop variable is the collector's own: one store instead of two.
            for collector.index, tup in enumerate(islice(work.tuples, limit), work.position()):
                process(tup)
        except Exception as error:
            self._tuple_raised(work, error)
        finally:
            collector.index = UNANCHORED

    def _process_hooked(self, work: Work, limit: int) -> None:
        """One by one, with the hooks."""
        clock, process = self.setup.clock, self.component.process
        for tup in islice(work.tuples, limit):
            self.collector.index = tup.index if self.collector.auto_anchor else UNANCHORED
            began = clock()
            try:
                process(tup)
            except Exception as error:
                self._tuple_raised(work, error)
            self.collector.index = UNANCHORED
            self.call_hooks("bolt_execute", BoltExecuteInfo(tup, self.task, 1000 * (clock() - began)))
            if self.failed is not None:
                return

    def _tuple_raised(self, work: Work, error: Exception) -> None:
        index = work.position() - 1
        text = self.user_error(error, "process")
        self.collector.fail_indices(work.batch, [index], error, text)

    def _process_batch(self, work: Work) -> None:
        work.skip_all()
        tuples = TupleBatch(work.batch, work.rows)
        try:
            self.component.process_batch(tuples)
        except Exception as error:
            text = self.user_error(error, "process_batch")
            self.collector.fail_indices(work.batch, list(range(work.count)), error, text)

    def _ack_rest(self, batch: InputBatch, start: int, stop: int) -> None:
        """Ack what user code has neither acked nor failed: for a whole batch, one assignment."""
        acked = batch.settle_rest(start, stop, ACKED)
        if self.context.hooks:
            now_ms = self.setup.clock() * 1000
            for index in acked or range(start, stop):
                info = BoltAckInfo(Tuple((), index, batch), self.task, now_ms - batch.arrived_ms)
                self.call_hooks("bolt_ack", info)

    def _end_turn(self, work: Work) -> None:
        work.batch.closed = True
        self.collector.batch = None
        self._work = None

    def stop(self, now_ms: float) -> list[Flush]:
        """Close. Input that was taken and not processed fails at once, sooner than by its timeout."""
        text = f"{self.name} task {self.task} stopped before it processed the tuple"
        if self._work is not None:
            work = self._work
            still = [i for i in range(work.position(), work.count) if work.batch.state[i] == OPEN]
            for i in still:
                work.batch.state[i] = FAILED
            self.failures.add(work.batch, still, FailKind.FAILED, text)
            self._end_turn(work)
        while self._frames:
            frame, came_ms = self._frames.popleft()
            self.data_in.remove(frame.size_bytes())
            self._fail_frame(frame, came_ms, FailKind.FAILED, text)
        return super().stop(now_ms)

    # Ticks.

    def _tick(self, now_ms: float) -> None:
        if not self._ticks.due(now_ms):
            return
        try:
            self.component.process_tick(tick_tuple(self._ticks.count))
        except Exception as error:
            self.user_error(error, "process_tick")
        self.collector.book()

    # Metrics.

    def _count_settled(self) -> None:
        """Each ack and fail once, with the batch it belongs to, however late it came."""
        acked, failed = self.collector.newly_acked, self.failures.newly_failed
        if not acked and not failed:
            return
        now_ms = self.setup.clock() * 1000
        self._figures.acked(acked, now_ms)
        acked.clear()
        self._figures.failed(failed, now_ms)
        failed.clear()

    def report_counts(self) -> None:
        """Acks and fails by source."""
        self._count_settled()
        if self.collector.ignored_settles:
            self.count("__ignored-settle-count", self.collector.ignored_settles)
            self.collector.ignored_settles = 0
        super().report_counts()

    def collect_metrics(self) -> None:
        """The input queue, too."""
        super().collect_metrics()
        self.telemetry.gauge("__gateway-in-stream-queue-size", self.data_in.size)
        self.telemetry.gauge("__gateway-in-stream-queue-expected-capacity", self.data_in.capacity)

    # Flushing.

    def book(self) -> None:
        """Draw the edges of what was emitted, gather acks."""
        self.collector.book()

    def unsent(self) -> bool:
        """True if rows, acks or fails wait."""
        return bool(self.outbox.rows or self.collector.has_acks() or self.failures.waiting())

    def fill(self, flush: Flush) -> None:
        """The acks gathered so far."""
        flush.acks = self.collector.take_acks()

    def check(self) -> None:
        """The queues are sound, and a batch in hand is the collector's."""
        super().check()
        self.data_in.check()
        assert self.data_in.size == sum(frame.size_bytes() for frame, _ in self._frames), "data-in is miscounted"
        assert (self._work is None) == (self.collector.batch is None), "the batch in hand is not the collector's"


def _stream_fields(setup: Setup) -> list[tuple[str, str, tuple[str, ...]]]:
    topology = setup.plan.topology
    found = []
    for component, stream in setup.plan.streams:
        schema = topology.component(component).output(stream)
        found.append((component, stream, schema.fields if schema else ()))
    return found
