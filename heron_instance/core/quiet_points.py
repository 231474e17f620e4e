"""Quiet points of an executor: which frames it may take, and its work at a checkpoint.

The executor of a stateful task asks here before it takes a frame, and calls ``run_due_work`` between two calls of user
code. A quiet point is taken while no input is in progress: all emitted rows are routed and flushed, user code has its
last word, the snapshot is taken, and the barriers follow all frames. An exception of user code here returns all tasks
to the last checkpoint (``UserErrors.strict``).
"""

from __future__ import annotations

from heron_instance.core.collector import TaskCollector
from heron_instance.core.emit_gate import EmitThreadGuard
from heron_instance.core.output import TaskOutput
from heron_instance.core.state.barriers import InvalidBarrier, SnapshotRequest
from heron_instance.core.state.checkpointer import TaskCheckpointer
from heron_instance.core.task import TaskRuntime
from heron_runtime.wire.data import BARRIER, Frame


class QuietPoints:
    """Checkpoint duties of one executor."""

    def __init__(
        self,
        task: TaskRuntime,
        checkpointer: TaskCheckpointer,
        output: TaskOutput,
        collector: TaskCollector,
        guard: EmitThreadGuard | None,
    ) -> None:
        self.checkpointer = checkpointer
        self._task = task
        self._output = output
        self._collector = collector
        self._guard = guard

    def can_take(self, frame: Frame, batch_begun: bool) -> bool:
        """Return True if the next frame may be taken now. No batch spans a barrier."""
        if frame.codec == BARRIER:
            return not batch_begun
        return self.checkpointer.may_take(frame.source_task)

    def barrier(self, frame: Frame) -> None:
        """Handle a barrier taken from data-in while no input is in progress."""
        try:
            align = self.checkpointer.barrier(frame)
        except InvalidBarrier as error:
            self._task.errors.record_exception(error, "input")
            return
        if align is not None:
            self.align(align)

    def run_due_work(self, now_ms: float) -> None:
        """Do the work due between two calls of user code: timeouts, commits, and the begin of a checkpoint."""
        self.checkpointer.tick(now_ms)
        if self.checkpointer.written_bytes:
            self._task.telemetry.count("__snapshot-bytes", self.checkpointer.written_bytes)
            self.checkpointer.written_bytes = 0
        if self._guard is not None:
            self._guard.between_calls()
            if self._guard.violation is not None:
                self._task.errors.record_exception(self._guard.violation, "emit")
        if self._task.errors.failed is not None:
            return
        if self.checkpointer.has_completed:
            try:
                self.checkpointer.complete()
            except Exception as error:
                self._task.errors.record_exception(error, "on_checkpoint_complete")
            self._collector.route_pending()
        align = self.checkpointer.due()
        if align is not None:
            self.align(align)

    def align(self, align: SnapshotRequest) -> None:
        """Take a quiet point."""
        task, output, clock = self._task, self._output, self._task.clock
        try:
            self.checkpointer.prepare(align)
            self._collector.route_all()
            output.flush_early(clock() * 1000)
            barriers = self.checkpointer.take(align, output.plan.routing_version, clock() * 1000, clock)
        except Exception as error:
            task.errors.record_exception(error, "pre_save")
            return
        output.append(barriers)
        task.telemetry.latency("__snapshot-time-ms", self.checkpointer.snapshot_ms)
