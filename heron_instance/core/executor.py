"""Protocol of spout and bolt executors, and the result of one run.

An executor is driven from outside: ``start``, then an ``on_…`` method for each event and ``run`` repeatedly. ``run``
does a bounded piece of work and returns a ``RunResult``: the flushes to send, and how long there is nothing to do. It
reads only the injected clock (seconds, the same origin as every ``now_ms`` / 1000), starts no thread and does no I/O,
so the simulator drives the same code. User code runs only inside ``start``, ``run`` and ``stop``. The driving thread
releases its lock meanwhile (``user_code.py``), so that another thread may call ``flush_within_call``.

``SpoutExecutor`` and ``BoltExecutor`` are both built from a ``TaskRuntime`` (user code and its surroundings), a
collector and a ``TaskOutput``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from heron_instance.core.emit_gate import EmitGate
from heron_instance.core.outbox import Flush
from heron_instance.core.output import TaskOutput
from heron_instance.core.state.checkpointer import TaskCheckpointer
from heron_instance.core.task import TaskRuntime
from heron_instance.core.user_code import UserCodeFailed
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.wire.data import Frame, Verdict


@dataclass
class RunResult:
    """Result of one ``run``.

    Attributes:
        flushes: Flushes to send, in order.
        wait_ms: Time until there is work again; None: until something arrives.
        credit_bytes: Total weight of frames that the stream manager may have sent; None without a change.
        tuple_weight: Minimum weight of an input tuple; goes with ``credit_bytes``.
        taken_weight: Total weight of the frames taken so far.
        poll_idle: Set while a spout is at rest. It may be called in place of ``run`` after each wait in which nothing
            arrived. It takes the time and returns the next wait, or None when ``run`` must be called at once.
    """

    flushes: list[Flush]
    wait_ms: float | None
    credit_bytes: int | None = None
    tuple_weight: int = 0
    taken_weight: int = 0
    poll_idle: Callable[[float], float | None] | None = None


class Executor(Protocol):
    """Executor of one task. Times are in milliseconds."""

    paused: bool  # by backpressure
    gate: EmitGate
    task: TaskRuntime
    stateful: TaskCheckpointer | None  # None without checkpoints
    output: TaskOutput

    @property
    def full(self) -> bool:
        """True while data-out is full."""

    @property
    def failed(self) -> UserCodeFailed | None:
        """Set once user code has raised under the policy ``restart``: the caller sends what is left, then exits."""

    def start(self) -> None:
        """Attach the collector and initialize user code. Raises the exceptions of user code."""

    def on_plan(self, now_ms: float, plan: PhysicalPlan) -> None:
        """Apply a new plan. An older plan is ignored."""

    def on_pause(self, now_ms: float, paused: bool) -> None:
        """Begin or end a pause by backpressure."""

    def on_stream_manager(self, now_ms: float, incarnation: int) -> None:
        """Take note that a stream manager of this incarnation has sent its hello."""

    def on_frames(self, now_ms: float, frames: list[Frame]) -> None:
        """Queue input frames."""

    def on_verdicts(self, now_ms: float, verdicts: list[Verdict]) -> None:
        """Queue verdicts of the tracker over roots of this task."""

    def on_weights(self, now_ms: float, weights: Mapping[int, int]) -> None:
        """Set the minimum weights of tuples for these downstream tasks."""

    def on_wake(self, now_ms: float) -> None:
        """Run soon: there is room in data-out, or user code has something to emit."""

    def on_sent(self, now_ms: float, sent_weight: int) -> None:
        """Take the weight of sent frames out of data-out."""

    def run(self, now_ms: float) -> RunResult:
        """Do a bounded piece of work."""

    def flush_within_call(self, now_ms: float) -> list[Flush]:
        """Flush the rows, acks and fails so far, for a thread that has taken the lock while user code runs."""

    def stop(self, now_ms: float) -> list[Flush]:
        """Close user code and return the remaining flushes. Raises nothing."""

    def collect_metrics(self) -> None:
        """Report gauges, counters and the user's metrics. Called before each report."""

    def check(self) -> None:
        """Assert every invariant."""


def ms_until_first(now_ms: float, *deadlines_ms: float | None) -> float | None:
    """Return the milliseconds until the first of these moments, or None if there is none."""
    found = [deadline for deadline in deadlines_ms if deadline is not None]
    return max(0.0, min(found) - now_ms) if found else None
