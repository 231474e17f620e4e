"""Metrics of tasks: counts and times of input, calls and settled roots, by stream."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.pending import SettledRoots
from heron_instance.core.task_metrics import MAX_AGE_RUNS, InputMetrics, RootMetrics
from heron_runtime.model.dataflow import FailKind
from heron_runtime.model.metrics import keyed
from heron_runtime.model.topology import TopologyState
from heronry.api.component import Bolt
from heronry.api.metrics import CountMetric
from tests.support.harness.executors import ALL, ExecutorHarness, Part
from tests.support.harness.single_bolt import SingleBolt
from tests.support.harness.single_spout import SingleSpout, Source
from tests.unit.heron_instance.test_instance_flow import NumberSpout, Sink

STREAMS = {0: "default", 1: "odd", 2: "never"}
MS_A_TUPLE = 0.25
SERIALIZE_SECONDS, DESERIALIZE_SECONDS = 0.25, 0.5


def told(roots: list[tuple[int, int]], streams: dict[int, str]) -> tuple[Counter[str], dict[str, Counter[float]]]:
    """Return the counts and ages reported for these ``roots``, pairs of (stream, age in ms)."""
    counts: Counter[str] = Counter()
    ages: dict[str, Counter[float]] = {}
    telemetry: Any = SimpleNamespace(latency=lambda name, ms, n: ages.setdefault(name, Counter()).update({ms: n}))
    columns = np.array(roots, np.float64).reshape(-1, 2)
    settled = SettledRoots(list(range(len(roots))), columns[:, 0].astype(np.uint16), columns[:, 1])
    metrics = RootMetrics(streams, lambda name, n: counts.update({name: int(n)}), telemetry)
    metrics.count_roots("ack", settled)
    metrics.time_roots("age", settled)
    return counts, ages


@given(
    st.sampled_from([{0: "default"}, STREAMS]),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3)), min_size=1, max_size=MAX_AGE_RUNS),
)
def test_each_stream_has_its_own_counts_and_ages(streams: dict[int, str], drawn: list[tuple[int, int]]) -> None:
    roots = [(min(number, len(streams) - 1), age) for number, age in drawn]
    counts, ages = told(roots, streams)
    assert counts == Counter(keyed("ack", streams[number]) for number, _ in roots)
    wanted: dict[str, Counter[float]] = {}
    for number, age in roots:
        wanted.setdefault(keyed("age", streams[number]), Counter())[float(age)] += 1
    assert ages == wanted


def test_many_ages_are_merged_and_each_root_counts() -> None:
    _, by_name = told([(0, age) for age in range(10_000)], {0: "default"})
    (ages,) = by_name.values()
    assert ages.total() == 10_000
    assert MAX_AGE_RUNS // 2 <= len(ages) <= MAX_AGE_RUNS + 1


@given(st.integers(1, 1000), st.integers(0, 60_000), st.integers(0, 60_000))
def test_times_are_counted_in_nanoseconds_and_means_are_weighted(n: int, elapsed_ms: int, waited_ms: int) -> None:
    counted: Counter[str] = Counter()
    means: dict[str, tuple[float, float]] = {}
    telemetry: Any = SimpleNamespace(latency=lambda name, ms, weight: means.update({name: (ms, weight)}))
    metrics = InputMetrics(lambda name, by: counted.update({name: by}), telemetry)
    metrics.count_executed(("s", "default"), n, elapsed_ms, waited_ms)
    metrics.count_decoded(("s", "default"), n)
    metrics.count_failed({("s", "default", 1_000.0, FailKind.FAILED): 3}, 1_000.0 + waited_ms)
    assert counted == {
        "__execute-count/s/default": n, "__execute-time-ns/s/default": elapsed_ms * 1_000_000,
        "__tuple-deserialization-time-ns/s/default": n * 1_000_000_000,
        "__fail-count/s/default": 3, "__failed-by-reason/failed": 3,
    }  # fmt: skip
    assert means == {
        "__execute-latency/s/default": (elapsed_ms / n, n), "__queue-latency/s/default": (waited_ms, n),
        "__fail-latency/s/default": (waited_ms, 3),
    }  # fmt: skip


def test_each_encoding_and_decoding_counts_once() -> None:
    """Times are counted by stream, once per batch, for any number of tasks."""
    worlds: list[ExecutorHarness] = []
    encoded: list[int] = []
    decoded: list[int] = []

    class Slow:
        """Serializer that takes simulated time and records the rows of each call."""

        def serialize(self, rows: Any) -> bytes:
            encoded.append(len(rows))
            worlds[0].clock.now += SERIALIZE_SECONDS
            return pickle.dumps(rows)

        def deserialize(self, data: bytes) -> Any:
            worlds[0].clock.now += DESERIALIZE_SECONDS
            decoded.append(len(pickle.loads(data)))
            return pickle.loads(data)

    parts = {
        "a": Part(NumberSpout, outputs={"default": ("word", "n")}),
        "z": Part(Sink, par=3, inputs=[("a", "default", ALL)]),
    }
    config = {"topology.serializer": "m:Slow", "topology.message.timeout.secs": 10_000}
    worlds.append(ExecutorHarness(parts, config, classes={"m:Slow": Slow}))
    world = worlds[0]
    world.run()
    for executor in world.executors.values():
        executor.collect_metrics()
    counters = {task: world.telemetry[task].counters for task in world.plan.tasks()}
    (spout,) = world.plan.tasks_of("a")
    took = counters[spout]["__tuple-serialization-time-ns/default"]
    assert took == pytest.approx(1e9 * SERIALIZE_SECONDS * len(encoded), rel=1e-3)
    times = [counters[task]["__tuple-deserialization-time-ns/a/default"] for task in world.plan.tasks_of("z")]
    assert sum(times) == pytest.approx(1e9 * DESERIALIZE_SECONDS * len(decoded), rel=1e-3)
    # Every row counts once, plus samples of at most as many, whatever the number of tasks.
    assert NumberSpout.total <= sum(encoded) < 2 * NumberSpout.total
    assert sum(decoded) == 3 * NumberSpout.total
    assert not any(name.startswith("__tuple-deserialization") for name in counters[spout])


def test_queue_latency_spans_receipt_to_execution() -> None:
    """The mean over all tuples does not depend on the pieces: tuple n waits for those before it."""

    class Slow(Bolt):
        def process(self, tup: Any) -> None:
            alone.world.clock.now += MS_A_TUPLE / 1000
            self.ack(tup)

    alone = SingleBolt(Slow)
    waits: list[tuple[int, float]] = []
    metrics: Any = alone.executor._metrics
    metrics.count_executed = lambda key, done, elapsed_ms, waited_ms: waits.append((done, waited_ms))
    alone.feed(alone.frame([(n,) for n in range(40)]))
    for _ in range(60):
        alone.step(0.0)
    assert sum(done for done, _ in waits) == 40
    assert max(done for done, _ in waits) > 2, "in pieces of several"
    assert sum(done * each for done, each in waits) == pytest.approx(MS_A_TUPLE * sum(range(40)), rel=0.02)


def test_each_check_of_a_full_queue_is_counted_once() -> None:
    alone = SingleBolt(Bolt)
    counters, queue = alone.world.telemetry[2].counters, alone.executor.output.data_out
    for looks in range(1, 4):
        queue.add(queue.room())
        assert alone.executor.full
        alone.executor.run(alone.world.clock.ms)
        assert counters["__out-queue-full-count"] == looks


def test_burst_reports_call_count_and_mean_duration() -> None:
    def slowly(self: Any) -> None:
        alone.world.clock.now += 0.05
        Source.next_tuple(self)

    alone = SingleSpout(next_tuple=slowly)
    bursts: list[Any] = []
    telemetry: Any = alone.world.telemetry[1]
    telemetry.latency = lambda name, ms, weight=1: bursts.append((name, ms, weight))
    for calls in (1, 2):
        alone.step()
        assert bursts[-1] == ("__next-tuple-latency", pytest.approx(50, abs=0.02), 1)
        assert (len(bursts), alone.spout.calls) == (calls, calls)
    alone.executor.collect_metrics()
    assert telemetry.counters["__next-tuple-count"] == 2


@pytest.mark.parametrize("paused", [False, True])
def test_paused_gauge_covers_backpressure_and_deactivation(paused: bool) -> None:
    alone = SingleSpout()
    gauges, plan, now_ms = alone.world.telemetry[1].gauges, alone.world.plan, alone.world.clock.ms
    alone.executor.on_pause(now_ms, paused)
    alone.step()
    assert gauges["__paused"] == float(paused)
    alone.executor.on_plan(now_ms, replace(plan, state=TopologyState.PAUSED))
    alone.step()
    assert gauges["__paused"] == 1.0
    alone.executor.on_pause(now_ms, paused)
    assert gauges["__paused"] == 1.0
    alone.executor.on_plan(now_ms, plan)
    alone.step()
    assert gauges["__paused"] == float(paused)


def test_broken_metric_does_not_prevent_others(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def collect(self, name: str, telemetry: Any) -> None:
            raise OSError("no")

    alone = SingleSpout()
    metrics: Any = alone.executor.task.context.metrics
    metrics["broken"], metrics["seen"] = Broken(), CountMetric()
    metrics["seen"].incr(3)
    alone.executor.collect_metrics()
    assert alone.world.telemetry[1].counters["seen"] == 3
    assert "metric broken: cannot be collected" in caplog.text


def test_lag_is_absent_without_acks() -> None:
    alone = SingleSpout({"topology.reliability.mode": "ATMOST_ONCE"})
    alone.step()
    alone.executor.collect_metrics()
    assert alone.world.telemetry[1].counters["__emit-count/default"] > 0
    assert "__spout-lag-ms" not in alone.world.telemetry[1].gauges


def test_lag_is_the_age_of_the_oldest_root_in_flight() -> None:
    alone = SingleSpout({"topology.max.spout.pending": 10})
    gauges = alone.world.telemetry[1].gauges
    alone.executor.collect_metrics()
    assert gauges["__spout-lag-ms"] == 0
    alone.step()
    stuck, *others = alone.roots
    alone.step(3_000)
    alone.verdict(others)
    alone.step(1_000)
    alone.executor.collect_metrics()
    assert gauges["__spout-lag-ms"] == pytest.approx(4_000, abs=5)
    alone.verdict([stuck])
    alone.executor.on_pause(alone.world.clock.ms, True)
    alone.verdict(alone.roots[10:])
    alone.step(1)
    alone.executor.collect_metrics()
    assert gauges["__spout-lag-ms"] == 0
