"""How a bolt and its batches begin and end: what is not processed yet or any more, and who is closed."""

from __future__ import annotations

from typing import Any

import pytest

from heron_instance.core.bolt_executor import BoltExecutor
from heron_instance.core.user_code import NoLock
from heron_runtime.model.dataflow import UNKNOWN_WEIGHT
from heronry.api.component import BasicBolt, BatchBolt, Bolt
from heronry.api.hooks import TaskHook
from tests.support.harness.single_bolt import SingleBolt


def test_with_hooks_nothing_is_processed_behind_what_ends_the_task() -> None:
    class Fatal(BasicBolt):
        def initialize(self, config: dict[str, Any], context: Any) -> None:
            context.add_task_hook(TaskHook())
            self.seen: list[int] = []

        def process(self, tup: Any) -> None:
            self.seen.append(tup["n"])
            if tup["n"] == 2:
                raise RuntimeError("no more")

    alone = SingleBolt(Fatal, {"topology.on.exception": "restart"})
    alone.feed(alone.frame([(1,), (2,), (3,)]))
    for _ in range(5):
        alone.step()
    assert alone.executor.failed is not None
    assert alone.bolt.seen == [1, 2]


def test_what_has_not_begun_is_not_closed() -> None:
    class Closes(BasicBolt):
        closed = 0

        def process(self, tup: Any) -> None:
            """Nothing."""

        def close(self) -> None:
            self.closed += 1

    alone = SingleBolt(Closes)
    alone.executor.task.close()
    assert alone.bolt.closed == 1
    setup = alone.world.setup_of(2)
    unborn = BoltExecutor(setup)
    unborn.task.close()
    assert setup.component.closed == 0


@pytest.mark.parametrize("emits", [False, True])
def test_a_flush_before_the_first_call_of_a_batch_acks_nothing_of_it(emits: bool) -> None:
    """The timer's thread may have the lock as soon as it is given up, and no tuple is in hand then."""
    seen: list[tuple[int, int]] = []

    class Notes(BasicBolt):
        def process(self, tup: Any) -> None:
            if emits:
                self.emit(tup.values)

    class Taken(NoLock):
        """Another thread has waited for it."""

        def release(self) -> None:
            work = alone.executor._work
            if work is not None:
                acks = [ack for flush in alone.executor.flush_within_call(alone.world.clock.ms) for ack in flush.acks]
                seen.append((work.position(), sum(len(ack.roots) // 8 for ack in acks)))

    alone = SingleBolt(Notes)
    alone.executor.task.user_code.lock = Taken()
    alone.feed(alone.frame([(1,), (2,)]))
    alone.step()
    assert seen == [(0, 0)]


def test_the_first_word_on_a_weight_waits_until_what_was_emitted_has_left() -> None:
    """What it makes for others is a part of it, and too light a word would open the gates."""

    class Emits(BasicBolt):
        def process(self, tup: Any) -> None:
            alone.world.clock.now += 0.002
            self.emit(tup.values)

    alone = SingleBolt(Emits)
    alone.executor._gap_ms = 100.0
    for n in range(2):
        alone.feed(alone.frame([(n,)]))
    flushed, told = False, set()
    for _ in range(100):
        step = alone.step()
        flushed = flushed or bool(step.flushes)
        told.add((flushed, step.tuple_weight != UNKNOWN_WEIGHT))
    assert told == {(False, False), (True, True)}


class Broken(BaseException):
    """As what ends an executor in the middle of a call."""


class Singly(BasicBolt):
    def process(self, tup: Any) -> None:
        if tup["n"] == 1:
            raise Broken


class AtOnce(BatchBolt):
    def process_batch(self, tuples: Any) -> None:
        raise Broken


@pytest.mark.parametrize(("bolt", "done"), [(Singly, 1), (AtOnce, 0)])
def test_each_tuple_of_a_batch_whose_call_is_broken_off_is_settled_once(bolt: type[Bolt], done: int) -> None:
    """What is done is acked; the tuple in hand, or all of a batch that was, fails with those behind it."""
    alone = SingleBolt(bolt)
    frame = alone.frame([(n,) for n in range(4)])
    alone.feed(frame)
    for _ in range(done):
        alone.step()
    with pytest.raises(Broken):
        alone.step()
    alone.executor.stop(alone.world.clock.ms)
    alone.executor.collect_metrics()
    counters = alone.world.telemetry[2].counters
    assert counters["__fail-count/s/default"] == 4 - done
    assert counters.get("__ack-count/s/default", 0) == done
