"""Metrics of encoding and decoding time: by stream, once per batch, for any number of tasks."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tests.support.harness.executors import ALL, ExecutorHarness, Part
from tests.unit.heron_instance.test_instance_flow import NumberSpout, Sink

SERIALIZE_SECONDS, DESERIALIZE_SECONDS = 0.25, 0.5


def slow_serializer(world: list[ExecutorHarness], encoded: list[int], decoded: list[int]) -> type:
    """Return a serializer that takes simulated time and records the rows of each call."""

    class Slow:
        def serialize(self, rows: Any) -> bytes:
            encoded.append(len(rows))
            world[0].clock.now += SERIALIZE_SECONDS
            return pickle.dumps(rows)

        def deserialize(self, data: bytes) -> Any:
            world[0].clock.now += DESERIALIZE_SECONDS
            rows = pickle.loads(data)
            decoded.append(len(rows))
            return rows

    return Slow


def test_each_encoding_and_decoding_counts_once() -> None:
    worlds: list[ExecutorHarness] = []
    encoded: list[int] = []
    decoded: list[int] = []
    parts = {
        "a": Part(NumberSpout, outputs={"default": ("word", "n")}),
        "z": Part(Sink, par=3, inputs=[("a", "default", ALL)]),
    }
    config = {"topology.serializer": "m:Slow", "topology.message.timeout.secs": 10_000}
    worlds.append(ExecutorHarness(parts, config, classes={"m:Slow": slow_serializer(worlds, encoded, decoded)}))
    world = worlds[0]
    world.run()
    assert sum(sum(sink.seen.values()) for sink in world.objects("z")) == 3 * NumberSpout.total
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
