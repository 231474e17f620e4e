"""Counters and small decisions of executors: calls, waits, failures, full queues."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from heron_instance.core.executor import ms_until_first
from heron_instance.core.input_batch import MAX_TEXTS, FailureBuffer
from heron_runtime.model.dataflow import FailKind
from heron_runtime.model.ids import root_base
from heron_runtime.model.topology import TopologyState
from heronry.api.component import Bolt
from heronry.api.metrics import CountMetric
from tests.support.harness.executors import SHUFFLE, ExecutorHarness, Part
from tests.support.harness.single_bolt import SingleBolt
from tests.support.harness.single_spout import Nothing, Source
from tests.support.harness.single_spout import SingleSpout as AloneSpout
from tests.unit.heron_instance.test_bolt_executor import Collect

MS_A_TUPLE = 0.25


def test_queue_latency_spans_receipt_to_execution() -> None:
    """The mean over all tuples does not depend on the pieces: tuple n waits for those before it."""
    clock: list[Any] = []

    class Slow(Bolt):
        def process(self, tup: Any) -> None:
            clock[0].now += MS_A_TUPLE / 1000
            self.ack(tup)

    alone = SingleBolt(Slow)
    clock.append(alone.world.clock)
    told: list[tuple[int, float]] = []
    executor = alone.executor
    executor._metrics.count_executed = lambda key, done, elapsed_ms, waited_ms: told.append((done, waited_ms))  # type: ignore[method-assign]
    alone.feed(alone.frame([(n,) for n in range(40)]))
    for _ in range(60):
        alone.step(0.0)
    assert sum(done for done, _ in told) == 40
    assert max(done for done, _ in told) > 2, "in pieces of several"
    waited = sum(done * each for done, each in told)
    assert waited == pytest.approx(MS_A_TUPLE * sum(range(40)), rel=0.02)


def test_each_check_of_a_full_queue_is_counted_once() -> None:
    alone = SingleBolt(Collect)
    counters, queue = alone.world.telemetry[2].counters, alone.executor.output.data_out
    for looks in range(1, 4):
        queue.add(queue.room())
        assert alone.executor.full
        alone.executor.run(alone.world.clock.ms)
        assert counters["__out-queue-full-count"] == looks


@pytest.mark.parametrize("streams", [1, 2, 3])
def test_burst_continues_for_emits_to_any_stream(streams: int) -> None:
    class Wide(Source):
        def next_tuple(self) -> None:
            self.calls += 1
            self.emit(["x"], stream=f"s{self.calls % streams}")

    names = [f"s{n}" for n in range(streams)]
    readers = [("s", name, SHUFFLE) for name in names]
    world = ExecutorHarness({"s": Part(Wide, 1, {n: ["x"] for n in names}), "r": Part(Nothing, 1, {}, readers)})
    spout: Any = world.components[1]
    world.executors[1].run(world.clock.ms)
    assert spout.calls > 50, "one call after the other until the time is up"


@pytest.mark.parametrize(("call_ms", "calls"), [(3.0, 1), (2.1, 1), (1.9, 2), (0.6, 4)])
def test_burst_of_a_slow_spout_ends_after_two_milliseconds(call_ms: float, calls: int) -> None:
    """This also holds for the first burst, when the duration of a call is still unknown."""

    def slowly(self: Any) -> None:
        self.context.clock.now += call_ms / 1000
        Source.next_tuple(self)

    alone = AloneSpout(next_tuple=slowly)
    alone.spout.context.clock = alone.world.clock
    for bursts in (1, 2, 3):
        alone.step()
        assert alone.spout.calls == bursts * calls


def test_burst_reports_call_count_and_mean_duration() -> None:
    def slowly(self: Any) -> None:
        self.context.clock.now += 0.05
        Source.next_tuple(self)

    alone = AloneSpout(next_tuple=slowly)
    alone.spout.context.clock = alone.world.clock
    told, telemetry = [], alone.world.telemetry[1]
    telemetry.latency = lambda name, ms, weight=1: told.append((name, ms, weight))  # type: ignore[method-assign]
    for calls in (1, 2):
        alone.step()
        assert told[-1] == ("__next-tuple-latency", pytest.approx(50, abs=0.02), 1)
        assert (len(told), alone.spout.calls) == (calls, calls)
    alone.executor.collect_metrics()
    assert telemetry.counters["__next-tuple-count"] == 2


@pytest.mark.parametrize("paused", [False, True])
def test_paused_gauge_covers_backpressure_and_deactivation(paused: bool) -> None:
    alone = AloneSpout()
    gauges, plan = alone.world.telemetry[1].gauges, alone.world.plan
    alone.executor.on_pause(alone.world.clock.ms, paused)
    alone.step()
    assert gauges["__paused"] == float(paused)
    alone.executor.on_plan(alone.world.clock.ms, replace(plan, state=TopologyState.PAUSED))
    alone.step()
    assert gauges["__paused"] == 1.0
    alone.executor.on_pause(alone.world.clock.ms, paused)
    assert gauges["__paused"] == 1.0
    alone.executor.on_plan(alone.world.clock.ms, plan)
    alone.step()
    assert gauges["__paused"] == float(paused)


def test_broken_metric_does_not_prevent_others(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def collect(self, name: str, telemetry: Any) -> None:
            raise OSError("no")

    alone = AloneSpout()
    metrics = alone.executor.task.context.metrics
    metrics["broken"] = Broken()  # type: ignore[assignment]
    metrics["seen"] = CountMetric()
    metrics["seen"].incr(3)
    alone.executor.collect_metrics()
    assert alone.world.telemetry[1].counters["seen"] == 3
    assert "metric broken: cannot be collected" in caplog.text


def test_overdue_deadline_needs_no_wait() -> None:
    assert ms_until_first(100.0) is None
    assert ms_until_first(100.0, None, 90.0) == 0.0
    assert ms_until_first(100.0, 130.5, None, 120.25) == 20.25


@pytest.mark.parametrize("kind", [FailKind.FAILED, FailKind.EXCEPTION])
def test_failure_texts_of_one_kind_leave_room_for_another(kind: FailKind) -> None:
    """User code may give a new text for each failure, so only the first texts of a kind are sent."""
    failures, other = FailureBuffer("b", 2), ({FailKind.FAILED, FailKind.EXCEPTION} - {kind}).pop()
    for n in range(MAX_TEXTS + 1):
        failures.add_roots([root_base(1, 5) + n], kind, f"no {n}")
    failures.add_roots([root_base(1, 5) + 99], other, "boom")
    told = [(fail.reason.kind, fail.reason.message) for fail in failures.take()]
    assert told == [*((kind, f"no {n}") for n in range(MAX_TEXTS)), (kind, ""), (other, "boom")]


def test_failures_without_roots_do_not_block_others() -> None:
    failures = FailureBuffer("b", 2)
    failures.add_roots([], FailKind.FAILED, "of untracked tuples")
    failures.add_roots([root_base(1, 5) + 7], FailKind.FAILED, "no")
    failures.add_roots([root_base(3, 5) + 1], FailKind.EXCEPTION, "boom")
    assert [(fail.task, fail.reason.message) for fail in failures.take()] == [(1, "no"), (3, "boom")]
    assert not failures.waiting()


@pytest.mark.parametrize("interval_ms", [5, 20])
def test_call_outlasts_the_flush_interval_after_its_interval(interval_ms: int) -> None:
    seen: list[bool] = []

    class Looks(Source):
        def next_tuple(self) -> None:
            world.clock.now += (interval_ms - 1) / 1000
            seen.append(world.executors[1].gate.outlasts_flush_interval())  # type: ignore[attr-defined]
            world.clock.now += 1.1 / 1000
            seen.append(world.executors[1].gate.outlasts_flush_interval())  # type: ignore[attr-defined]

    parts = {"s": Part(Looks, 1, {"default": ["x"]}), "r": Part(Nothing, 1, {}, [("s", "default", SHUFFLE)])}
    world = ExecutorHarness(parts, {"topology.flush.interval.ms": interval_ms})
    gate: Any = world.executors[1]
    assert not gate.gate.outlasts_flush_interval(), "there is none"
    world.executors[1].run(world.clock.ms)
    assert seen[:2] == [False, True]


def test_long_call_is_described_with_its_location() -> None:
    told: list[tuple[float, str]] = []

    class Sleeps(Source):
        def next_tuple(self) -> None:
            for seconds in (1.9, 0.2, 2.7, 0.3):
                world.clock.now += seconds
                told.append((gate.in_call_ms() // 100, gate.describe_call(lambda: "user.py, line 7")))

    world = ExecutorHarness(
        {"s": Part(Sleeps, 1, {"default": ["x"]}), "r": Part(Nothing, 1, {}, [("s", "default", SHUFFLE)])}
    )
    gate = world.executors[1].gate
    world.executors[1].run(world.clock.ms)
    told.append((gate.in_call_ms(), gate.describe_call(lambda: "nowhere")))
    assert told == [
        (0, ""),
        (21, "in next_tuple for 2 s"),
        (48, "in next_tuple for 5 s"),
        (51, "in next_tuple for 5 s (user.py, line 7)"),
        (0, ""),
    ]
