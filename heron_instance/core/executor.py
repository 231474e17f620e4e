"""What drives a task: the protocol of spout and bolt executors, what they are made of, what one run leads to.

An executor is driven from outside: ``start``, then ``on_…`` for what arrived and ``run`` again and again. ``run`` does
a bounded piece of work and returns a ``RunResult``: what to send, and how long there is nothing to do. It reads no
clock but the injected one (seconds, the same origin as every ``now_ms`` / 1000), starts no thread and does no I/O; so
the simulator drives the very same code. User code runs inside ``start``, ``run`` and ``stop`` only, and the thread that
drives the executor gives its lock up for that long (``user_code.py``), so that another thread may call
``flush_inside``.

``SpoutExecutor`` and ``BoltExecutor`` share no base: both are put together from a ``Task`` (user code and what
surrounds it), a collector and an ``Output``, and add what is their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from heron_instance.core.emit_gate import EmitGate
from heron_instance.core.outbox import Flush
from heron_instance.core.output import Output
from heron_instance.core.state.checkpointer import Stateful
from heron_instance.core.task import Task
from heron_instance.core.user_code import UserCodeFailed
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.wire.data import Frame, Verdict


@dataclass
class RunResult:
    """What one ``run`` leads to. ``wait_ms`` None: until something arrives.

    ``credit_bytes``: the stream manager may now send frames of so much weight in all, and a tuple weighs
    ``tuple_weight`` at least; None if neither is news yet. ``taken_weight``: of frames it has taken in all.
    ``poll_idle``: a spout is at rest. After each wait in which nothing arrived it may be called in place of ``run``,
    with the time; it gives the next wait, or None when ``run`` is to be called at once.
    """

    flushes: list[Flush]
    wait_ms: float | None
    credit_bytes: int | None = None
    tuple_weight: int = 0
    taken_weight: int = 0
    poll_idle: Callable[[float], float | None] | None = None


class Executor(Protocol):
    """Of one task. Times are milliseconds."""

    paused: bool  # by backpressure
    gate: EmitGate
    task: Task
    stateful: Stateful | None  # where the state of tasks is kept
    output: Output

    @property
    def full(self) -> bool:
        """True while data-out takes nothing more."""

    @property
    def failed(self) -> UserCodeFailed | None:
        """Not None once user code has raised under the policy ``restart``: send what there is, then exit."""

    def start(self) -> None:
        """Attach the collector and initialize user code. Raises what user code raises."""

    def on_plan(self, now_ms: float, plan: PhysicalPlan) -> None:
        """A new plan; an older one than ours is refused."""

    def on_pause(self, now_ms: float, paused: bool) -> None:
        """Backpressure begins or ends."""

    def on_stream_manager(self, now_ms: float, incarnation: int) -> None:
        """A stream manager of this incarnation has said hello."""

    def on_frames(self, now_ms: float, frames: list[Frame]) -> None:
        """Input."""

    def on_verdicts(self, now_ms: float, verdicts: list[Verdict]) -> None:
        """The tracker's verdicts over roots of this task."""

    def on_weights(self, now_ms: float, weights: Mapping[int, int]) -> None:
        """What tuples weigh at least for these tasks, which this one sends to."""

    def on_wake(self, now_ms: float) -> None:
        """There is room in data-out, or the spout itself says that it has something to emit."""

    def on_sent(self, now_ms: float, sent_weight: int) -> None:
        """The gateway has sent frames of so much weight."""

    def run(self, now_ms: float) -> RunResult:
        """Do a bounded piece of work."""

    def flush_inside(self, now_ms: float) -> list[Flush]:
        """What has been emitted, acked and failed so far, for a thread that has taken the lock while user code runs."""

    def stop(self, now_ms: float) -> list[Flush]:
        """Close user code and give back what is left to send. Raises nothing."""

    def collect_metrics(self) -> None:
        """Hand gauges, counters and the user's metrics over; called before each report."""

    def check(self) -> None:
        """Assert every invariant there is."""


def soonest(now_ms: float, *deadlines_ms: float | None) -> float | None:
    """Milliseconds until the first of these moments; None if there is none."""
    found = [deadline for deadline in deadlines_ms if deadline is not None]
    return max(0.0, min(found) - now_ms) if found else None
