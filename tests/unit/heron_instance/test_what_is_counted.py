"""What executors count while they work, and small things that they decide by: calls, waits, fails, a full queue."""

from __future__ import annotations

from typing import Any

import pytest
from bolt_alone import Alone
from instance_world import SHUFFLE, Part, World
from spout_alone import Nothing, Source
from test_bolt_executor import Collect

from heron_instance.core.executor import soonest
from heron_instance.core.failures import Failures
from heron_runtime.model.ids import root_base
from heron_runtime.model.reasons import FailKind
from heronry.api.component import Bolt

MS_A_TUPLE = 0.25


def test_a_tuple_waits_from_its_receipt_to_its_turn() -> None:
    """The mean over all, whatever pieces they are worked off in: tuple n waits for those before it."""
    clock: list[Any] = []

    class Slow(Bolt):
        def process(self, tup: Any) -> None:
            clock[0].now += MS_A_TUPLE / 1000
            self.ack(tup)

    alone = Alone(Slow)
    clock.append(alone.world.clock)
    told: list[tuple[int, float]] = []
    executor = alone.executor
    executor._figures.executed = lambda key, done, elapsed_ms, waited_ms: told.append((done, waited_ms))  # type: ignore[method-assign]
    alone.feed(alone.frame([(n,) for n in range(40)]))
    for _ in range(60):
        alone.step(0.0)
    assert sum(done for done, _ in told) == 40
    assert max(done for done, _ in told) > 2, "in pieces of several"
    waited = sum(done * each for done, each in told)
    assert waited == pytest.approx(MS_A_TUPLE * sum(range(40)), rel=0.02)


def test_each_look_at_a_full_queue_is_counted_once() -> None:
    alone = Alone(Collect)
    counters, queue = alone.world.telemetry[2].counters, alone.executor.output.data_out
    for looks in range(1, 4):
        queue.add(queue.room())
        assert alone.executor.full
        alone.executor.run(alone.world.clock.ms)
        assert counters["__out-queue-full-count"] == looks


@pytest.mark.parametrize("streams", [1, 2, 3])
def test_a_burst_goes_on_whatever_stream_a_call_emits_to(streams: int) -> None:
    class Wide(Source):
        def next_tuple(self) -> None:
            self.calls += 1
            self.emit(["x"], stream=f"s{self.calls % streams}")

    names = [f"s{n}" for n in range(streams)]
    readers = [("s", name, SHUFFLE) for name in names]
    world = World({"s": Part(Wide, 1, {n: ["x"] for n in names}), "r": Part(Nothing, 1, {}, readers)})
    spout: Any = world.components[1]
    world.executors[1].run(world.clock.ms)
    assert spout.calls > 50, "one call after the other until the time is up"


def test_what_is_overdue_is_not_waited_for() -> None:
    assert soonest(100.0) is None
    assert soonest(100.0, None, 90.0) == 0.0
    assert soonest(100.0, 130.5, None, 120.25) == 20.25


def test_fails_without_roots_hold_up_no_others() -> None:
    failures = Failures("b", 2)
    failures.add_roots([], FailKind.FAILED, "of untracked tuples")
    failures.add_roots([root_base(1, 5) + 7], FailKind.FAILED, "no")
    failures.add_roots([root_base(3, 5) + 1], FailKind.EXCEPTION, "boom")
    assert [(fail.task, fail.reason.message) for fail in failures.take()] == [(1, "no"), (3, "boom")]
    assert not failures.waiting()


@pytest.mark.parametrize("interval_ms", [5, 20])
def test_a_call_lasts_once_it_outlasts_the_flush_interval(interval_ms: int) -> None:
    seen: list[bool] = []

    class Looks(Source):
        def next_tuple(self) -> None:
            world.clock.now += (interval_ms - 1) / 1000
            seen.append(world.executors[1].gate.lasts())  # type: ignore[attr-defined]
            world.clock.now += 1.1 / 1000
            seen.append(world.executors[1].gate.lasts())  # type: ignore[attr-defined]

    parts = {"s": Part(Looks, 1, {"default": ["x"]}), "r": Part(Nothing, 1, {}, [("s", "default", SHUFFLE)])}
    world = World(parts, {"topology.flush.interval.ms": interval_ms})
    gate: Any = world.executors[1]
    assert not gate.gate.lasts(), "there is none"
    world.executors[1].run(world.clock.ms)
    assert seen[:2] == [False, True]
