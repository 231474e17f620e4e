"""Threads of a component emit, ack and fail: each row keeps its anchor or message id, and all leave an idle task."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from types import FrameType
from typing import Any

import numpy as np
import pytest

from heron_instance.core import bolt_collector, spout_collector
from heron_instance.core.bolt_executor import BoltExecutor
from heron_instance.core.executor import Executor
from heron_instance.core.outbox import Flush
from heron_instance.core.task import ExecutorSetup
from heron_instance.shell.executor_loop import ExecutorLoop, StopRequested
from heron_instance.shell.inbox import Inbox, Stop, WakeUp
from heron_runtime.model.ids import root_base
from heron_runtime.wire.data import Frame, Packet
from heronry.api.component import BasicBolt, Bolt, Spout
from tests.support.harness.executors import SHUFFLE, Counts, ExecutorHarness, Part, chain
from tests.support.harness.single_bolt import Idle
from tests.support.harness.single_spout import Nothing
from tests.unit.heron_instance.test_executor_loop import Post

EMITS = {bolt_collector.__file__, spout_collector.__file__}
TOTAL = 400  # more than twice the bytecodes of one emit


def interrupt(emit: Callable[[], object], at: int, meanwhile: Callable[[], object]) -> None:
    """Call ``emit``; another thread calls ``meanwhile`` before its bytecode number ``at``, or else afterwards."""
    seen = 0

    def elsewhere() -> None:
        thread = threading.Thread(target=meanwhile)
        thread.start()
        thread.join()

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal seen
        if frame.f_code.co_name != "emit" or frame.f_code.co_filename not in EMITS:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen += 1
            if seen == at:
                elsewhere()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        emit()
    finally:
        sys.settrace(before)
    if seen < at:
        elsewhere()


class Numbers(Spout):
    """Emits numbers with themselves as message ids; subclasses say how."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.n = 0
        self.acked: list[int] = []
        self.failed: list[int] = []

    def next_tuple(self) -> None:
        if self.n < TOTAL:
            self.two(self.n, self.n + 1)
            self.n += 2

    def two(self, first: int, second: int) -> None:
        self.emit([first], tup_id=first)
        self.emit([second], tup_id=second)

    def ack(self, tup_id: Any) -> None:
        self.acked.append(tup_id)

    def fail(self, tup_id: Any, reason: Any) -> None:
        self.failed.append(tup_id)


class InterruptedSpout(Numbers):
    def two(self, first: int, second: int) -> None:
        interrupt(lambda: self.emit([first], tup_id=first), 1 + first // 2, lambda: self.emit([second], tup_id=second))


class Passes(Bolt):
    def process(self, tup: Any) -> None:
        self.emit([tup["n"]], anchors=[tup])
        self.ack(tup)


class InterruptedBolt(Bolt):
    def process_batch(self, tuples: Any) -> None:
        pairs = list(tuples)
        for first, second in zip(pairs[::2], pairs[1::2], strict=True):
            interrupt(
                lambda first=first: self.emit([first["n"]], anchors=[first]),  # type: ignore[misc]
                1 + first["n"] // 2,
                lambda second=second: self.emit([second["n"]], anchors=[second]),  # type: ignore[misc]
            )
            self.ack(first)
            self.ack(second)


class FailsEven(BasicBolt):
    def process(self, tup: Any) -> None:
        if tup["n"] % 2 == 0:
            raise ValueError("even")


def failed_and_acked(spout: type[Spout], bolt: type[Bolt]) -> tuple[list[int], list[int]]:
    """Return the message ids that have failed and those that were acked, sorted."""
    world = chain(spout, bolt, FailsEven)
    world.run(20_000)
    assert not world.tracker
    (source,) = world.objects("s")
    return sorted(source.failed), sorted(source.acked)


EVEN, ODD = list(range(0, TOTAL, 2)), list(range(1, TOTAL, 2))


@pytest.mark.parametrize(("spout", "bolt"), [(Numbers, InterruptedBolt), (InterruptedSpout, Passes)])
def test_rows_keep_their_anchors_and_ids_when_another_thread_emits_meanwhile(
    spout: type[Spout], bolt: type[Bolt]
) -> None:
    assert failed_and_acked(spout, bolt) == (EVEN, ODD)


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


@pytest.mark.parametrize(("mode", "acks"), [("ATLEAST_ONCE", TUPLES), ("ATMOST_ONCE", 0)])
def test_emits_and_acks_of_a_thread_leave_an_idle_task(mode: str, acks: int) -> None:
    flushes = run_until(Threaded(Later, mode, lambda sent: (settled(sent), emitted(sent)) == (acks, TUPLES)))
    assert (settled(flushes), emitted(flushes)) == (acks, TUPLES)
