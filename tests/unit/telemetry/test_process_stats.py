"""Process statistics: garbage collection, event loop lag and descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import time
from pathlib import Path

import pytest

from heron_runtime import process_stats
from heron_runtime.model.metrics import MetricKind, split_name
from heron_runtime.process_stats import GARBAGE, LoopLag, ProcessStats, own_usage


def test_both_kinds_of_process_use_the_same_prometheus_names() -> None:
    names = []
    for instance in (True, False):
        counters, gauges = ProcessStats(instance=instance).read(3.0)
        for values, kind in ((counters, MetricKind.COUNTER), (gauges, MetricKind.GAUGE)):
            for name in values:
                metric = split_name(name).metric
                assert metric is not None, name
                assert metric.kind is kind
        names.append({metric.prometheus for name in (*counters, *gauges) if (metric := split_name(name).metric)})
    of_instances, of_others = names
    assert of_others < of_instances
    assert all("_gc_generation_" in name for name in of_instances - of_others)


def test_descriptors_and_memory_are_those_of_this_process() -> None:
    stats = ProcessStats(instance=False)
    before = stats.read(0.0)[1]
    with contextlib.ExitStack() as files:
        for _ in range(7):
            files.enter_context(open(os.devnull))
        after = stats.read(0.0)[1]
    assert after["__process/__fd_count"] == before["__process/__fd_count"] + 7
    assert after["__process/__mem_used_bytes"] > 1 << 20


def test_collection_time_is_counted() -> None:
    stats = ProcessStats(instance=True)
    counters = stats.read(0.0)[0]
    began = time.perf_counter()
    gc.collect()
    most_ms = 1000 * (time.perf_counter() - began)
    later = stats.read(0.0)[0]
    assert later["__py-generation-3-collections"] == counters["__py-generation-3-collections"] + 1
    assert 0 < later["__gc-time-ms"] - counters["__gc-time-ms"] <= most_ms
    assert gc.callbacks.count(GARBAGE._collected) == 1


def test_proc_stat_agrees_with_psutil(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sum(n * n for n in range(1_000_000))  # uses some CPU
    ours = own_usage()
    monkeypatch.setattr(process_stats, "STAT", tmp_path / "nowhere")
    theirs = own_usage()
    assert 0 < ours.user_seconds <= theirs.user_seconds
    assert ours.system_seconds <= theirs.system_seconds
    assert theirs.memory_bytes == pytest.approx(ours.memory_bytes, rel=0.2)
    assert ours.threads == theirs.threads
    assert 0 <= theirs.descriptors - ours.descriptors <= 1  # psutil itself opens one


async def test_blocked_loop_reports_its_lag_once() -> None:
    lag = LoopLag()
    lag.start()
    lag.start()
    await asyncio.sleep(0)
    held_ms = 1400
    time.sleep(held_ms / 1000)  # blocks the loop
    found = lag.take_ms()
    assert found >= held_ms - 1001
    assert lag.take_ms() >= found  # the timer is still late because the loop has not run
    await asyncio.sleep(0.01)
    lag.take_ms()
    assert lag.take_ms() <= 0.0
    lag.stop()
    lag.stop()


async def test_external_timer_reports_its_lag() -> None:
    lag = LoopLag()
    assert lag.take_ms() == 0.0
    lag.expect(0.0)
    time.sleep(0.05)
    assert lag.take_ms() >= 50.0, "it has not come yet"
    time.sleep(0.01)
    lag.came()
    assert lag.take_ms() >= 60.0
    assert lag.take_ms() == 0.0, "no timer runs"
    lag.expect(60.0)
    lag.came()
    assert lag.take_ms() == 0.0, "early is not late"
