"""Loop of the executor thread: inbox, one run of the executor, flushes to the gateway, wait.

It runs on the main thread of the process, so that signals and profilers see user code. It blocks in one place only,
where it waits for the inbox; user code may block as well.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from heron_instance.core.executor import Executor
from heron_instance.core.outbox import Flush
from heron_instance.core.task import ExecutorDriver
from heron_instance.core.task_metrics import TelemetrySink
from heron_instance.shell.gateway import Gateway
from heron_instance.shell.inbox import (
    CheckpointItem,
    CommandArrived,
    Inbox,
    InboxItem,
    LeaveRequested,
    Linked,
    PartFailed,
    PartWritten,
    PauseChanged,
    PlanArrived,
    Stop,
    StreamManagerLinked,
    Unlinked,
    WakeUp,
    WeightsChanged,
)
from heron_runtime.model.checkpoints import TaskReport
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.wire.data import Packet

T = TypeVar("T")
QUIET_SECONDS = 0.1  # without input: no more frames are on their way
MAX_DRAIN_SECONDS = 1.0


class TaskReplaced(BaseException):
    """Another process has replaced this one. A BaseException, since it must pass through user code."""


class GenerationChanged(BaseException):
    """All tasks return to a checkpoint named by ``plan``. A BaseException, since it must pass through user code."""

    def __init__(self, plan: PhysicalPlan) -> None:
        super().__init__(f"generation {plan.generation.number} begins")
        self.plan = plan


class SettingsChanged(BaseException):
    """The plan has other settings for this task, which has no checkpoints: a new process begins with them."""


class StopRequested(BaseException):
    """SIGTERM. A BaseException, since it must pass through user code."""


def now_ms() -> float:
    """Return monotonic milliseconds, the origin of every time in the instance."""
    return time.monotonic() * 1000


class ExecutorLoop:
    """Drives one executor until it is stopped.

    Args:
        make_executor: Makes the executor, for this loop as its driver.
        inbox: Items for the executor.
        gateway: Sends flushes.
        telemetry: Receives the times.
        report_each_ms: Interval at which the totals are updated.
    """

    def __init__(
        self,
        make_executor: Callable[[ExecutorDriver], Executor],
        inbox: Inbox,
        gateway: Gateway,
        telemetry: TelemetrySink,
        report_each_ms: float,
    ) -> None:
        executor = self.executor = make_executor(self)
        self._inbox = inbox
        self._gateway = gateway
        self._telemetry = telemetry
        self._report_each_ms = report_each_ms
        self._next_report_ms = 0.0
        self._sent_seen = 0
        self._items: deque[InboxItem] = deque()  # taken from the inbox and not yet handled
        self._busy_ms = self._idle_ms = self._blocked_ms = 0.0
        self._began_ms = now_ms()  # begin of the current work or wait
        self._ended: BaseException | None = None
        self._took_input = False
        self._checkpointer = executor.checkpointer
        self._reported: TaskReport | None = None
        self._settings = repr(executor.task.config)  # before user code can change what it is given
        gateway.flush_timer.attach(executor)

    def run(self) -> None:
        """Run until the end. On return of an exception, all flushes are with the gateway.

        Raises:
            StopRequested: The process is asked to stop.
            TaskReplaced: Another process has taken the task.
            UserCodeFailed: User code failed under the policy ``restart``.
        """
        executor, gateway = self.executor, self._gateway
        reporting = self._checkpointer or executor.output.draining
        self._reported = executor.output.draining.report  # without checkpoints only updates are reported
        wait_ms: float | None = 0.0
        self._began_ms = now_ms()
        while True:
            paused = executor.paused  # while it waits: what ends a pause comes at the end of the wait
            if wait_ms != 0.0 and not self._items:
                self._items += self._unlocked(self._inbox.take, None if wait_ms is None else wait_ms / 1000)
            self._take(0.0)
            now = now_ms()
            waited = now - self._began_ms
            if executor.full or paused:
                self._blocked_ms += waited
            else:
                self._idle_ms += waited
            self._began_ms = now
            result = executor.run(now)
            if result.flushes:
                gateway.post(result.flushes)
            gateway.record_taken(result.taken_weight)
            if result.credit_bytes is not None:
                gateway.offer_credit(result.credit_bytes, result.tuple_weight)
            if reporting.report is not self._reported:
                self._reported = reporting.report
                gateway.report_task(self._reported)
            if executor.failed is not None:
                raise executor.failed
            began = self._worked()
            wait_ms = result.wait_ms
            limit = self._next_report_ms - began
            wait_ms = limit if wait_ms is None or wait_ms > limit else wait_ms
            if executor.full:
                gateway.request_wake_for_room()
                if gateway.sent_weight != self._sent_seen:
                    wait_ms = 0.0
            elif result.at_rest:
                self._poll_idle(result.wait_ms or 0.0)
                wait_ms, self._began_ms = 0.0, now_ms()

    def expect(self, items: Iterable[InboxItem]) -> None:
        """Add items that came before everything in the inbox."""
        self._items += items

    def _unlocked(self, wait: Callable[[Any], T], seconds: float | None) -> T:
        """Wait for input with the lock free, so that threads of the component may emit and ack."""
        lock = self.executor.gate.lock
        lock.release()
        try:
            return wait(seconds)
        finally:
            lock.acquire()

    def _take(self, wait_ms: float | None) -> None:
        """Handle the items of the inbox, waiting for the first if there are none."""
        items = self._items  # handled one by one: user code may ask for the others in the middle of one
        items += self._inbox.take(None if wait_ms is None else wait_ms / 1000)
        while items:
            self.handle(items.popleft())
        sent = self._gateway.sent_weight
        if sent != self._sent_seen:
            self.executor.on_sent(now_ms(), sent - self._sent_seen)
            self._sent_seen = sent

    def _worked(self) -> float:
        """Count the time since the last call as busy. Return the time."""
        now = now_ms()
        self._busy_ms += now - self._began_ms
        self._began_ms = now
        if now >= self._next_report_ms:
            self._next_report_ms = now + self._report_each_ms
            self.collect()
        return now

    # For the gate, while user code runs (``ExecutorDriver``).

    def watch(self) -> None:
        """Take note that rows have begun to wait for a flush."""
        self._gateway.flush_timer.watch()

    def post(self, flushes: list[Flush]) -> None:
        """Send these flushes."""
        self._gateway.post(flushes)

    def serve(self, wait_ms: float) -> None:
        """Handle arrivals within a call of user code, waiting up to ``wait_ms`` for the first.

        Raises StopRequested or TaskReplaced, each time it is called after the end.
        """
        if self._ended is not None:
            raise self._ended
        self._worked()
        if self.executor.full:
            self._gateway.request_wake_for_room()
            if self._gateway.sent_weight != self._sent_seen:
                wait_ms = 0.0
        self._take(wait_ms)
        now = now_ms()
        self._blocked_ms += now - self._began_ms
        self._began_ms = now

    def _poll_idle(self, wait_ms: float) -> None:
        """Poll and sleep while a spout is at rest, and touch nothing else, until something arrives or is emitted."""
        inbox, gateway, poll = self._inbox, self._gateway, self.executor.poll_idle
        began = now_ms()
        while not self._unlocked(inbox.wait, wait_ms / 1000) and gateway.sent_weight == self._sent_seen:
            now = now_ms()
            self._idle_ms += now - began
            next_wait_ms = poll(now)
            began = now_ms()
            self._busy_ms += began - now
            if next_wait_ms is None:
                return
            wait_ms = next_wait_ms
            if began >= self._next_report_ms:
                self._next_report_ms = began + self._report_each_ms
                self.collect()
        self._idle_ms += now_ms() - began

    def handle(self, item: InboxItem) -> None:
        """Handle one item of the inbox. Raises StopRequested, TaskReplaced."""
        executor, now = self.executor, now_ms()
        match item:
            case Packet():
                if item.frames:
                    self._took_input = True
                    executor.on_frames(now, item.frames)
                if item.verdicts:
                    executor.on_verdicts(now, item.verdicts)
            case PauseChanged():
                executor.on_pause(now, item.paused)
            case WeightsChanged():
                executor.on_weights(now, item.weights)
            case PlanArrived():
                self._plan_arrived(now, item.plan)
            case StreamManagerLinked():
                executor.on_stream_manager(now, item.incarnation)
            case WakeUp():
                executor.on_wake(now)
            case CommandArrived() | Linked() | Unlinked() | PartWritten() | PartFailed():
                self._of_state(now, item)
            case LeaveRequested():
                self._ended = TaskReplaced(item.reason)
                raise self._ended
            case Stop():
                self._ended = StopRequested()
                raise self._ended

    def _plan_arrived(self, now: float, plan: PhysicalPlan) -> None:
        """Apply a plan. A later generation or other settings end this executor.

        Raises:
            GenerationChanged: The plan has a later generation.
            SettingsChanged: The plan has other settings for this task.
        """
        checkpointer, task = self._checkpointer, self.executor.task
        if checkpointer is None and repr(plan.topology.component_config(task.name)) != self._settings:
            self._ended = SettingsChanged()
            raise self._ended
        if checkpointer is not None and plan.generation.number > checkpointer.generation:
            self._ended = GenerationChanged(plan)
            raise self._ended
        self.executor.on_plan(now, plan)
        if checkpointer is not None:
            checkpointer.follow(plan)

    def _of_state(self, now: float, item: CheckpointItem) -> None:
        """Handle an item that concerns checkpoints. Items of another generation are ignored."""
        checkpointer = self._checkpointer
        if checkpointer is None:
            return
        match item:
            case CommandArrived():
                checkpointer.apply_command(item.command)
            case Linked(generation) if generation == checkpointer.generation:
                checkpointer.linked()
            case Unlinked(generation) if generation == checkpointer.generation:
                checkpointer.unlinked()
            case PartWritten(part) if part.generation == checkpointer.generation:
                checkpointer.on_part(part)
            case PartFailed(generation, checkpoint, why) if generation == checkpointer.generation:
                checkpointer.on_part_failed(checkpoint, why)
        self.executor.on_wake(now)

    def finish(self) -> None:
        """Close user code and send the rest. Input that came after the stop signal fails.

        Frames of the stream manager may still be on their way. No more credit is given, so they end soon.
        """
        executor = self.executor
        give_up_ms = now_ms() + MAX_DRAIN_SECONDS * 1000
        items = [*self._items, *self._inbox.take(QUIET_SECONDS if self._took_input else 0)]
        while items:
            for item in items:
                if isinstance(item, Packet) and item.frames:
                    executor.on_frames(now_ms(), item.frames)
            items = self._inbox.take(QUIET_SECONDS) if now_ms() < give_up_ms else []
        self._gateway.post(executor.stop(now_ms()))
        self.collect()

    def collect(self) -> None:
        """Update the totals for the next report."""
        telemetry = self._telemetry
        telemetry.count("__busy-time-ms", self._busy_ms)
        telemetry.count("__idle-time-ms", self._idle_ms)
        telemetry.count("__backpressured-time-ms", self._blocked_ms)
        self._busy_ms = self._idle_ms = self._blocked_ms = 0.0
        self.executor.collect_metrics()
