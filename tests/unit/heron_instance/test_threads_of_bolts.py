"""Bolt threads that emit, ack and fail while the executor waits for input."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from heron_instance.core.bolt_executor import BoltExecutor
from heron_instance.core.executor import Executor
from heron_instance.core.outbox import Flush
from heron_instance.core.task import ExecutorSetup
from heron_instance.shell.executor_loop import ExecutorLoop, StopRequested
from heron_instance.shell.inbox import Inbox, Stop, WakeUp
from heron_runtime.model.ids import root_base
from heron_runtime.wire.data import Frame, Packet
from heronry.api.component import Bolt
from tests.support.harness.executors import SHUFFLE, Counts, ExecutorHarness, Part
from tests.support.harness.single_bolt import Idle
from tests.support.harness.single_spout import Nothing
from tests.unit.heron_instance.test_instance_shutdown import Post

SPOUT, BOLT = 1, 2
TUPLES = 8
PATIENCE_SECONDS = 20.0


class Threaded(ExecutorHarness):
    """Harness with real locks and real time."""

    def __init__(self, bolt: type[Bolt], mode: str, enough: Callable[[list[Flush]], bool]) -> None:
        self.inbox = Inbox()
        self.sending = Sending(self.inbox, enough)
        self.loop: ExecutorLoop
        parts = {
            "s": Part(Idle, 1, {"default": ["n"]}),
            "b": Part(bolt, 1, {"default": ["n"]}, [("s", "default", SHUFFLE)]),
            "r": Part(Nothing, 1, {}, [("b", "default", SHUFFLE)]),
        }
        super().__init__(parts, {"topology.reliability.mode": mode})

    def setup_of(self, task: int, seed: int = 0) -> ExecutorSetup:
        lock = threading.RLock()
        lock.acquire()
        setup = super().setup_of(task, seed)
        return replace(setup, clock=time.monotonic, lock=lock, wake=lambda: self.inbox.put(WakeUp()))

    def make_executor(self, task: int, setup: ExecutorSetup) -> Executor:
        if task != BOLT:
            return super().make_executor(task, setup)
        gateway: Any = self.sending
        self.loop = ExecutorLoop(
            lambda driver: BoltExecutor(replace(setup, driver=driver)), self.inbox, gateway, Counts(), 1e9
        )  # no report wakes it
        return self.loop.executor


class Sending(Post):
    """Gateway stand-in that stops the runner once ``enough`` holds for the posted flushes."""

    def __init__(self, inbox: Inbox, enough: Callable[[list[Flush]], bool]) -> None:
        super().__init__()
        self._inbox, self._enough = inbox, enough

    def post(self, flushes: list[Flush]) -> None:
        super().post(flushes)
        if self._enough(self.flushes):
            self._inbox.put(Stop())


def settled(flushes: list[Flush]) -> int:
    acked = sum(len(ack.roots) // 8 for flush in flushes for ack in flush.acks)
    return acked + sum(len(fail.roots) // 8 for flush in flushes for fail in flush.fails)


def emitted(flushes: list[Flush]) -> int:
    return sum(frame.count for flush in flushes for frame in flush.frames)


class Later(Bolt):
    """Bolt whose own thread emits and settles the tuples that ``process`` has queued."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.waiting: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=self.settle, daemon=True).start()

    def process(self, tup: Any) -> None:
        self.waiting.put(tup)

    def settle(self) -> None:
        for n in range(TUPLES):
            tup = self.waiting.get()
            self.emit([tup["n"]], anchors=[tup])
            if n % 2:
                self.ack(tup)
            else:
                self.fail(tup, "odd")


def run_until(world: Threaded) -> list[Flush]:
    executor = world.executors[BOLT]
    assert isinstance(executor, BoltExecutor)
    codec, data = executor.task.codec.encode([(n,) for n in range(TUPLES)])
    frame = Frame(SPOUT, world.plan.stream_number["s", "default"], BOLT, TUPLES, 1, int(codec), data)
    if executor.task.tracked:
        frame.roots = (np.arange(TUPLES, dtype=np.uint64) + np.uint64(root_base(SPOUT, 5))).tobytes()
        frame.keys = np.random.default_rng(1).bytes(8 * TUPLES)
    world.inbox.put(Packet(1, frames=[frame]))
    limit = threading.Timer(PATIENCE_SECONDS, lambda: world.inbox.put(Stop()))
    limit.start()
    try:
        with pytest.raises(StopRequested):
            world.loop.run()
    finally:
        limit.cancel()
    return world.sending.flushes


def test_emits_and_acks_of_a_thread_leave_an_idle_task() -> None:
    flushes = run_until(Threaded(Later, "ATLEAST_ONCE", lambda sent: settled(sent) == TUPLES == emitted(sent)))
    assert (settled(flushes), emitted(flushes)) == (TUPLES, TUPLES)


def test_emits_of_a_thread_leave_an_idle_task_without_acks() -> None:
    flushes = run_until(Threaded(Later, "ATMOST_ONCE", lambda sent: emitted(sent) == TUPLES))
    assert emitted(flushes) == TUPLES
