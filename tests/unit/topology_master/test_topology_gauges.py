"""Gauges of a whole topology: lag, CPU and memory, used and reserved."""

from __future__ import annotations

import pytest

from heron_runtime.model.plan import ContainerPlan, PackingPlan, Resources
from heron_runtime.wire.master import PublishMetrics
from heron_runtime.wire.metrics import ProcessMetrics
from topology_master.core.metric_store import GAUGE_FRESH_SECONDS, MetricStore, topology_gauges

START = 1_000_020.0
MIB = 1 << 20
CONTAINERS = (ContainerPlan(1, (), Resources(1.5, 700 * MIB)), ContainerPlan(2, (), Resources(1, 500 * MIB)))
PLAN = PackingPlan("t", CONTAINERS)


def instance(container: int, task: int, second: float, lag_ms: float, cores: float) -> ProcessMetrics:
    return ProcessMetrics(
        "word", f"container_{container}_word_{task}", container, task, 1, START + second,
        {"__py-user-cpu-time-secs": 0.75 * cores * second, "__py-sys-cpu-time-secs": 0.25 * cores * second},
        {"__spout-lag-ms": lag_ms, "__py-physical-memory-byte": 100.0 * MIB}, started=START,
    )  # fmt: skip


def system(component: str, name: str, container: int, second: float, cores: float) -> ProcessMetrics:
    return ProcessMetrics(
        component, name, container, 0, 1, START + second,
        {"__process/__cpu_user_usec": 0.75e6 * cores * second, "__process/__cpu_system_usec": 0.25e6 * cores * second},
        {"__process/__mem_used_bytes": 50.0 * MIB}, started=START,
    )  # fmt: skip


def test_gauges_sum_over_containers_with_tasks() -> None:
    store = MetricStore(START)
    for second in range(5, 121, 5):
        processes = (
            system("__tmanager__", "topology_master-0", 0, second, 3.0),  # its container reports first
            instance(1, 1, second, 40.0, 0.5), instance(2, 2, second, 900.0, 1.0),
            system("__stmgr__", "stream_manager-1", 1, second, 0.25),
        )  # fmt: skip
        store.publish(START + second, PublishMetrics(1, processes, START + second))
    found = topology_gauges(store, PLAN, START + 120)
    assert found == {
        "__topology-lag-ms": 900.0,
        "__used-cpu-cores": pytest.approx(1.75, rel=0.1),  # whole points of 5 s
        "__used-memory-bytes": 250 * MIB,
        "__reserved-cpu-cores": 2.5,
        "__reserved-memory-bytes": 1200 * MIB,
    }
    gone = topology_gauges(store, None, START + 121 + GAUGE_FRESH_SECONDS)
    assert "__topology-lag-ms" not in gone
    assert found.keys() - gone.keys() == {"__topology-lag-ms"}
    assert gone == dict.fromkeys(gone, 0.0) | {"__used-cpu-cores": gone["__used-cpu-cores"]}


def test_gauges_are_zero_without_reports() -> None:
    found = topology_gauges(MetricStore(START), PLAN, START)
    assert found["__used-cpu-cores"] == 0
    assert "__topology-lag-ms" not in found


def test_lag_is_absent_without_acks() -> None:
    store = MetricStore(START)
    report = instance(1, 1, 5.0, 0.0, 0.5)
    del report.gauges["__spout-lag-ms"]
    store.publish(START + 5, PublishMetrics(1, (report,), START + 5))
    found = topology_gauges(store, PLAN, START + 5)
    assert "__topology-lag-ms" not in found
    assert found["__used-memory-bytes"] == 100 * MIB
