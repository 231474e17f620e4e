"""Where checkpoints meet an executor: what may be taken from data-in, and what is done at a quiet point.

The executor of a task whose state is kept asks here before it takes a frame; between two calls of user code it has this
part look at what the master has said, and for threads that may emit (``attend``). A quiet point is taken when nothing
is in hand: all that was emitted is routed and flushed, user code has its last word, the snapshot is taken, and the
barriers leave behind everything. What user code raises here has all tasks go back to the last checkpoint, as everywhere
(``UserErrors.strict``).
"""

from __future__ import annotations

from heron_instance.core.collector import TaskCollector
from heron_instance.core.emit_gate import OwnThread
from heron_instance.core.output import Output
from heron_instance.core.state.barriers import Align, NoBarrier
from heron_instance.core.state.checkpointer import Stateful
from heron_instance.core.task import Task
from heron_runtime.wire.data import BARRIER, Frame


class Gates:
    """Of one executor."""

    def __init__(self, task: Task, stateful: Stateful, output: Output, collector: TaskCollector) -> None:
        self.stateful = stateful
        self._task = task
        self._output = output
        self._collector = collector
        if output.on_flush is None:
            output.on_flush = stateful.flushed
        self._own_thread: OwnThread | None = None
        if task.threads is not None:
            self._own_thread = OwnThread(task.name, task.threads, collector.look, task.wake)
            collector.look = self._own_thread.look

    @classmethod
    def of(cls, task: Task, output: Output, collector: TaskCollector) -> Gates | None:
        """None where state is not kept."""
        return None if task.stateful is None else cls(task, task.stateful, output, collector)

    def lets_in(self, frame: Frame, batch_begun: bool) -> bool:
        """Whether the next frame may be taken now. No batch spans a barrier."""
        if frame.codec == BARRIER:
            return not batch_begun
        return self.stateful.may_take(frame.source_task)

    def barrier(self, frame: Frame) -> None:
        """A barrier was taken from data-in, and nothing is in hand."""
        try:
            align = self.stateful.barrier(frame)
        except NoBarrier as error:
            self._task.errors.raised(error, "input")
            return
        if align is not None:
            self.align(align)

    def attend(self, now_ms: float) -> None:
        """Between two calls of user code: time passes, what is complete is committed, a spout begins what it is to."""
        self.stateful.tick(now_ms)
        if self.stateful.written_bytes:
            self._task.telemetry.count("__snapshot-bytes", self.stateful.written_bytes)
            self.stateful.written_bytes = 0
        if self._own_thread is not None:
            self._own_thread.between_calls()
            if self._own_thread.trespass is not None:
                self._task.errors.raised(self._own_thread.trespass, "emit")
        if self._task.errors.failed is not None:
            return
        if self.stateful.has_completed:
            try:
                self.stateful.complete()
            except Exception as error:
                self._task.errors.raised(error, "on_checkpoint_complete")
            self._collector.route_pending()
        align = self.stateful.due()
        if align is not None:
            self.align(align)

    def align(self, align: Align) -> None:
        """Take a quiet point."""
        task, output, clock = self._task, self._output, self._task.clock
        try:
            self.stateful.prepare(align)
            self._collector.route_all()
            output.flush_early(clock() * 1000)
            barriers = self.stateful.take(align, output.plan.routing_version, clock() * 1000, clock)
        except Exception as error:
            task.errors.raised(error, "pre_save")
            return
        output.append(barriers)
        task.telemetry.latency("__snapshot-time-ms", self.stateful.snapshot_ms)
