"""Spout lag metric: reported only where tuple trees are tracked."""

from __future__ import annotations

import pytest

from tests.support.harness.single_spout import SingleSpout


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
