"""Base class of spout and bolt executors, and the result of one run.

An executor is driven from outside: ``start``, then an ``on_…`` method for each event and ``run`` repeatedly. ``run``
does a bounded piece of work and returns a ``RunResult``: the flushes to send, and how long there is nothing to do. It
reads only the injected clock (seconds, the same origin as every ``now_ms`` / 1000), starts no thread and does no I/O,
so the simulator drives the same code. User code runs only inside ``start``, ``run`` and ``stop``. The driving thread
releases its lock meanwhile (``user_code.py``), so that another thread may call ``flush_within_call``.

An executor is built from a ``TaskRuntime`` (user code and its surroundings), an emit gate, a collector and a
``TaskOutput``.

The executor of a stateful task asks its ``TaskCheckpointer`` before it takes a frame, and calls ``run_due_work``
between two calls of user code. An exception of user code there returns all tasks to the last checkpoint
(``UserErrors.strict``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from heron_instance.core.collector import Admit, RowFilter, TaskCollector
from heron_instance.core.emit_gate import EmitGate, EmitThreadGuard
from heron_instance.core.flow_control import TupleWeightEstimator
from heron_instance.core.outbox import Flush
from heron_instance.core.output import TaskOutput
from heron_instance.core.state.checkpointer import TaskCheckpointer
from heron_instance.core.task import ExecutorSetup, TaskRuntime
from heron_instance.core.user_code import UserCodeFailed
from heron_instance.core.values_codec import make_values_codec
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.wire.data import Frame, Verdict
from heronry.api.component import bind_collector


@dataclass
class RunResult:
    """Result of one ``run``.

    Attributes:
        flushes: Flushes to send, in order.
        wait_ms: Time until there is work again; None: until something arrives.
        credit_bytes: Total weight of frames that the stream manager may have sent; None without a change.
        tuple_weight: Minimum weight of an input tuple; goes with ``credit_bytes``.
        taken_weight: Total weight of the frames taken so far.
        at_rest: A spout is at rest: ``poll_idle`` may be called in place of ``run`` after each wait in which nothing
            arrived.
    """

    flushes: list[Flush]
    wait_ms: float | None
    credit_bytes: int | None = None
    tuple_weight: int = 0
    taken_weight: int = 0
    at_rest: bool = False


class Executor(ABC):
    """Base class of the executors of one task. Times are in milliseconds.

    It builds the collaborators in one order: task, emit gate, collector, output, checkpointer.

    Args:
        setup: Component, plan and surroundings.
        weight_estimator: Estimates the weight of input tuples by the flushes of a bolt.
    """

    def __init__(self, setup: ExecutorSetup, weight_estimator: TupleWeightEstimator | None = None) -> None:
        self.paused = False  # by backpressure
        self._is_attached = False
        task = self.task = TaskRuntime(setup, self._hooks_changed)
        self.gate = EmitGate(self, task, setup.driver)
        admit: Admit = self.gate.admit
        guard: EmitThreadGuard | None = None
        if setup.state is not None and setup.threads is not None:
            guard = EmitThreadGuard(task.name, setup.threads, admit, setup.wake)
            admit = guard.admit
        self.collector: TaskCollector = self._make_collector(setup, admit)
        self.output = TaskOutput(task, self.collector, setup.plan, weight_estimator)
        self.checkpointer: TaskCheckpointer | None = None
        if setup.state is not None:
            codec = make_values_codec(task.config, setup.load)
            self.checkpointer = TaskCheckpointer(task, setup.state, codec, self.collector, self.output, guard)

    @abstractmethod
    def _make_collector(self, setup: ExecutorSetup, admit: Admit) -> TaskCollector:
        """Make the collector of the task."""

    @abstractmethod
    def _row_filters(self) -> list[RowFilter]:
        """Return the filters of emitted rows, in order."""

    def _attach(self) -> None:
        """Give the component its collector, with the current filters."""
        self._is_attached = True
        self.collector.filters = tuple(self._row_filters())
        bind_collector(self.task.component, self.collector, self.task.name)

    def _hooks_changed(self) -> None:
        """Apply the filters of a new hook. Hooks that are added before ``start`` wait for it."""
        if self._is_attached:
            self._attach()

    @property
    def full(self) -> bool:
        """True while data-out is full."""
        return self.output.data_out.full

    @property
    def failed(self) -> UserCodeFailed | None:
        """Set once user code has raised under the policy ``restart``: the caller sends what is left, then exits."""
        return self.task.errors.failed

    def start(self) -> None:
        """Attach the collector and initialize user code. Raises the exceptions of user code."""
        self._attach()
        task, checkpointer = self.task, self.checkpointer
        task.state.pass_time()
        if checkpointer is not None:
            checkpointer.load_state()
        task.initialize()
        if checkpointer is not None:
            checkpointer.commit_restored()

    def on_plan(self, now_ms: float, plan: PhysicalPlan) -> None:
        """Apply a new plan. An older plan is ignored."""
        self.output.follow(now_ms, plan)

    def on_weights(self, now_ms: float, weights: Mapping[int, int]) -> None:
        """Set the minimum weights of tuples for these downstream tasks."""
        self.task.outbox.weigh(weights)

    def on_sent(self, now_ms: float, sent_weight: int) -> None:
        """Take the weight of sent frames out of data-out."""
        self.output.data_out.remove(sent_weight)

    # Events that concern one kind of task only.

    def on_pause(self, now_ms: float, paused: bool) -> None:  # noqa: B027  # bolts do not pause
        """Begin or end a pause by backpressure."""

    def on_stream_manager(self, now_ms: float, incarnation: int) -> None:  # noqa: B027  # bolts have no roots
        """Take note that a stream manager of this incarnation has sent its hello."""

    def on_frames(self, now_ms: float, frames: list[Frame]) -> None:  # noqa: B027  # spouts have no input
        """Queue input frames."""

    def on_verdicts(self, now_ms: float, verdicts: list[Verdict]) -> None:  # noqa: B027  # bolts have no roots
        """Queue verdicts of the tracker over roots of this task."""

    def on_wake(self, now_ms: float) -> None:  # noqa: B027  # the next run of a bolt handles everything
        """Run soon: there is room in data-out, or user code has something to emit."""

    @abstractmethod
    def run(self, now_ms: float) -> RunResult:
        """Do a bounded piece of work."""

    def poll_idle(self, now_ms: float) -> float | None:
        """Poll a spout at rest. Return the wait until the next poll, or None if ``run`` must be called at once."""
        return None

    # Within a call of user code (``GatedExecutor``).

    @abstractmethod
    def serve_within_call(self, now_ms: float) -> None:
        """Handle arrivals as far as possible without user code."""

    @abstractmethod
    def must_wait(self, now_ms: float) -> bool:
        """Return True while a long call must not emit."""

    @abstractmethod
    def room(self) -> int:
        """Return the number of rows that may be emitted now."""

    @abstractmethod
    def next_opening_ms(self) -> float | None:
        """Return the time at which emits may be possible although nothing arrives, or None."""

    @abstractmethod
    def flush_within_call(self, now_ms: float) -> list[Flush]:
        """Flush the rows, acks and fails so far, for a thread that has taken the lock while user code runs."""

    @abstractmethod
    def stop(self, now_ms: float) -> list[Flush]:
        """Close user code and return the remaining flushes. Raises nothing."""

    def collect_metrics(self) -> None:
        """Report gauges, counters and the user's metrics. Called before each report."""
        self.output.collect_metrics()
        self.task.collect_metrics()

    def check(self) -> None:
        """Assert every invariant."""
        self.output.check()


def ms_until_first(now_ms: float, *deadlines_ms: float | None) -> float | None:
    """Return the milliseconds until the first of these moments, or None if there is none."""
    times = [deadline for deadline in deadlines_ms if deadline is not None]
    return max(0.0, min(times) - now_ms) if times else None
