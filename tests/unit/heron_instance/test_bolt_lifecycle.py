"""Start and end of bolts and batches: pending tuples, close and interrupted calls."""

from __future__ import annotations

from typing import Any

import pytest

from heron_instance.core.bolt_executor import BoltExecutor
from heron_instance.core.user_code import NoLock
from heron_runtime.model.dataflow import UNKNOWN_WEIGHT
from heronry.api.component import BasicBolt, BatchBolt, Bolt
from heronry.api.hooks import TaskHook
from tests.support.harness.single_bolt import SingleBolt


def test_no_tuple_is_processed_after_a_fatal_error_with_hooks() -> None:
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


def test_close_skips_a_component_that_was_not_initialized() -> None:
    class Closes(BasicBolt):
        closed = 0

        def process(self, tup: Any) -> None:
            """Do nothing."""

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
def test_flush_before_the_first_call_of_a_batch_acks_nothing(emits: bool) -> None:
    """The timer thread may take the lock as soon as it is released, when no tuple is in progress."""
    seen: list[tuple[int, int]] = []

    class Notes(BasicBolt):
        def process(self, tup: Any) -> None:
            if emits:
                self.emit(tup.values)

    class Taken(NoLock):
        """Lock that another thread acquires on release."""

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


def test_weight_is_reported_only_after_emitted_rows_have_left() -> None:
    """The weight includes downstream work; an early, low weight would admit too much input."""

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
    """Stand-in for an exception that ends an executor during a call."""


class Singly(BasicBolt):
    def process(self, tup: Any) -> None:
        if tup["n"] == 1:
            raise Broken


class AtOnce(BatchBolt):
    def process_batch(self, tuples: Any) -> None:
        raise Broken


@pytest.mark.parametrize(("bolt", "done"), [(Singly, 1), (AtOnce, 0)])
def test_each_tuple_of_an_interrupted_batch_settles_once(bolt: type[Bolt], done: int) -> None:
    """Finished tuples are acked; the current tuple, or the whole batch of a batch bolt, fails with those after it."""
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
