"""A spout whose ``next_tuple`` never returns, with a stub of the process around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heron_instance.core.outbox import Flush
from heronry.api.component import Spout
from tests.support.harness.executors import SHUFFLE, ExecutorHarness, Part
from tests.support.harness.single_spout import Nothing

SPOUT, BOLT = 1, 2


class Shell:
    """Stub of runner, gateway and flush timer of one task. ``meanwhile`` runs while it waits."""

    def __init__(self, world: ExecutorHarness, task: int) -> None:
        self.world = world
        self.task = task
        self.watched = self.served = 0
        self.waits: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.executor: Any = world.drive(task, self)

    def watch(self) -> None:
        self.watched += 1

    def post(self, flushes: list[Flush]) -> None:
        for flush in flushes:
            self.world.send(self.task, flush)

    def serve(self, wait_ms: float) -> None:
        self.served += 1
        if wait_ms:
            self.waits.append(wait_ms)
            assert len(self.waits) < 10_000, "it waits for ever"
            self.world.clock.now += wait_ms / 1000
            self.meanwhile()

    def tick(self) -> None:
        """Flush when due, like the timer."""
        due_ms = self.executor.gate.due_ms()
        if due_ms is not None and self.world.clock.ms >= due_ms:
            self.flush()

    def flush(self) -> None:
        """Flush like the loop's thread during a long call."""
        lock = self.executor.gate.lock
        assert lock.acquire(blocking=False)
        try:
            self.post(self.executor.flush_within_call(self.world.clock.ms))
        finally:
            lock.release()


class Looping(Spout):
    """Spout that does not return before it has emitted ``total`` tuples."""

    total = 5000
    each_ms = 1.0
    polls = False

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.acked: list[Any] = []
        self.failed: list[Any] = []
        self.n = 0
        self.look: Callable[[], None] = lambda: None

    def next_tuple(self) -> None:
        while self.n < self.total:
            self.world.clock.now += self.each_ms / 1000
            self.n += 1
            self.emit([f"word{self.n}"], tup_id=self.n)
            self.shell.tick()
            self.look()
            if self.polls:
                self.poll()

    def ack(self, tup_id: Any) -> None:
        self.acked.append(tup_id)

    def fail(self, tup_id: Any) -> None:
        self.failed.append(tup_id)


def looping(config: dict[str, Any] | None = None, **attributes: Any) -> tuple[ExecutorHarness, Shell, Any]:
    """Return a harness with a looping spout whose only reader takes frames on request only."""
    spout = type("Spout", (Looping,), attributes)
    parts = {"s": Part(spout, 1, {"default": ["x"]}), "r": Part(Nothing, 1, {}, [("s", "default", SHUFFLE)])}
    world = ExecutorHarness(parts, config)
    made: Any = world.components[SPOUT]
    made.world, made.shell = world, Shell(world, SPOUT)
    return world, made.shell, made


def complete_all(world: ExecutorHarness) -> None:
    """Complete all tuple trees."""
    roots = list(world.tracker)
    world.tracker.clear()
    if roots:
        world.verdict(SPOUT, roots, None)
