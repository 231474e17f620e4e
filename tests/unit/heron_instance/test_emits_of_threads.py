"""Threads of a component emit at the same moment: each row keeps its own anchor or message id."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from heron_instance.core import bolt_collector, spout_collector
from heronry.api.component import BasicBolt, Bolt, Spout
from tests.support.harness.executors import SHUFFLE, ExecutorHarness, Part

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
        interrupt(
            lambda: self.emit([first], tup_id=first),
            1 + first // 2,
            lambda: self.emit([second], tup_id=second),
        )


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
    world = ExecutorHarness(
        {
            "s": Part(spout, 1, {"default": ["n"]}),
            "b": Part(bolt, 1, {"default": ["n"]}, [("s", "default", SHUFFLE)]),
            "r": Part(FailsEven, 1, {}, [("b", "default", SHUFFLE)]),
        }
    )
    world.run(20_000)
    assert not world.tracker
    (source,) = world.objects("s")
    return sorted(source.failed), sorted(source.acked)


EVEN, ODD = list(range(0, TOTAL, 2)), list(range(1, TOTAL, 2))


def test_rows_of_a_bolt_keep_their_anchors_when_another_thread_emits_meanwhile() -> None:
    assert failed_and_acked(Numbers, InterruptedBolt) == (EVEN, ODD)


def test_rows_of_a_spout_keep_their_message_ids_when_another_thread_emits_meanwhile() -> None:
    assert failed_and_acked(InterruptedSpout, Passes) == (EVEN, ODD)
