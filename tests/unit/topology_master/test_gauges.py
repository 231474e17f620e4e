"""Gauges: history equals a full list within bounded memory, and figures of the whole topology."""

from __future__ import annotations

import tracemalloc
from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.plan import ContainerPlan, PackingPlan, Resources
from heron_runtime.wire.master import MetricsRequest, PublishMetrics, TimelineRequest
from heron_runtime.wire.metrics import ProcessMetrics
from topology_master.core import metric_store, time_series
from topology_master.core.metric_store import GAUGE_FRESH_SECONDS, MetricStore, topology_gauges
from topology_master.core.time_series import EMPTY_POINT, GaugePoint, GaugeRings, _Ring, window

START = 1_000_020.0  # a whole minute
GAUGE = "__spout-lag-ms"
reports = st.lists(st.tuples(st.integers(0, 900), st.integers(-50, 100)), min_size=1, max_size=60)


def process(now: float, value: float, incarnation: int = 1, started: float = START) -> ProcessMetrics:
    return ProcessMetrics("word", "c", 1, 3, incarnation, now, gauges={GAUGE: value}, started=started)


@given(reports, st.integers(1, 10_000), st.integers(0, 20_000))
def test_points_equal_those_of_a_full_list(values: list[tuple[int, int]], seconds: int, later: int) -> None:
    rings, everything, now = GaugeRings(), [], START
    for gap, value in values:
        now += gap
        rings.add(now, value)
        everything.append((now, float(value)))
    asked = now + later
    step, count = window(seconds)
    first = int(asked // step) - count + 1
    points, lasts = rings.points(asked, seconds), rings.lasts(asked, seconds)
    assert len(points) == len(lasts) == count
    for number, (point, last) in enumerate(zip(points, lasts, strict=True), first):
        inside = [v for time, v in everything if time // step == number]
        assert point.count == len(inside)
        if inside:
            assert (point.minimum, point.maximum, point.last) == (min(inside), max(inside), inside[-1])
            assert last == inside[-1]
            assert point.mean == pytest.approx(sum(inside) / len(inside))
        else:
            assert isnan(last)
            assert isnan(point.mean)
    together, all_inside = rings.together(asked, seconds), [v for time, v in everything if time // step >= first]
    assert together.count == len(all_inside)
    if all_inside:
        assert (together.minimum, together.maximum) == (min(all_inside), max(all_inside))
        assert together.last == all_inside[-1]
        assert together.mean == pytest.approx(sum(all_inside) / len(all_inside))


@given(
    st.integers(1, 9), st.lists(st.tuples(st.integers(0, 12), st.integers(-9, 9)), max_size=30),
    st.integers(-20, 20), st.integers(1, 40),
)  # fmt: skip
def test_ring_answers_requests_for_more_points_than_it_holds(
    size: int, values: list[tuple[int, int]], later: int, count: int
) -> None:
    """The answers equal those of a dictionary of the newest ``size`` points, for any requested range."""
    ring, kept, now = _Ring(size), dict[int, list[float]](), 50
    for gap, value in values:
        now += gap
        ring.add(now, value)
        kept.setdefault(now, []).append(float(value))
    end = now + later
    inside = [kept.get(n, []) if n > now - size else [] for n in range(end - count + 1, end + 1)]
    assert list(ring.points(end, count)) == [point_of(found) for found in inside]
    assert ring.together(end, count) == point_of([value for found in inside for value in found])
    assert [v for v in ring.lasts(end, count) if not isnan(v)] == [found[-1] for found in inside if found]


def point_of(values: list[float]) -> GaugePoint:
    if not values:
        return EMPTY_POINT
    return GaugePoint(min(values), max(values), sum(values) / len(values), values[-1], len(values))


def test_nan_is_ignored() -> None:
    rings = GaugeRings()
    rings.add(START, float("nan"))
    assert rings.together(START, 600).count == 0
    rings.add(START, 1.0)
    assert rings.together(START, 600).mean == 1


def test_memory_of_a_gauge_is_within_its_bound() -> None:
    tracemalloc.start()
    try:
        made = [GaugeRings() for _ in range(200)]
        for second in range(0, 11_000, 5):
            made[second % 200].add(START + second, 1e9 + second)
        taken = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, time_series.__file__)])
    finally:
        tracemalloc.stop()
    each = sum(trace.size for trace in taken.traces) / len(made)  # without the memory of other files
    assert 12_000 < each <= 13_200


def test_store_shows_gauges_in_metrics_and_timelines() -> None:
    store = MetricStore(START)
    for second in range(0, 300, 5):
        report = process(START + second, float(second % 60))
        store.publish(START + second, PublishMetrics(1, (report,), report.time))
        store.check()
    now = START + 299
    (value,) = store.metrics(now, MetricsRequest("word", 235)).values
    assert (value.kind, value.total, value.minimum, value.maximum, value.mean) == ("gauge", 55, 0, 55, 27.5)
    (always,) = store.metrics(now, MetricsRequest("word", -1)).values
    assert (always.minimum, always.maximum) == (0, 55)
    (series,) = store.timeline(now, TimelineRequest("word", 600)).series
    assert series.kind == "gauge"
    assert series.values[-5:] == (55.0,) * 5
    assert all(isnan(v) for v in series.values[:-5])
    assert series.means == ()
    (ranged,) = store.timeline(now, TimelineRequest("word", 600, (GAUGE,), True)).series
    assert (ranged.minima[-1], ranged.maxima[-1], ranged.means[-1]) == (0, 55, 27.5)


def test_replayed_report_of_an_ended_process_is_not_fresh() -> None:
    store = MetricStore(START)
    ended, runs = process(START - 3000, 7.0, 1, START - 4000), process(START + 1, 8.0, 2, START - 10)
    store.publish(START + 50_000, PublishMetrics(1, (ended,), START))  # a clock far ahead of the sender's
    assert store.metrics(START + 50_000, MetricsRequest()).values == ()
    store.publish(START + 50_002, PublishMetrics(1, (ended, runs), START + 2))
    (value,) = store.metrics(START + 50_002, MetricsRequest("", 60)).values
    assert value.total == 8
    (series,) = store.timeline(START + 50_002, TimelineRequest("", 3600)).series
    seen = [v for v in series.values if not isnan(v)]
    assert seen == [7.0, 8.0]


def test_late_report_of_an_old_incarnation_changes_no_gauge() -> None:
    store = MetricStore(START)
    store.publish(START, PublishMetrics(1, (process(START, 1.0),)))
    store.publish(START + 1, PublishMetrics(1, (process(START + 1, 2.0, 2, START + 1),)))
    store.publish(START + 2, PublishMetrics(1, (process(START + 0.5, 9.0),)))
    (series,) = store.timeline(START + 3, TimelineRequest("", 60, (), True)).series
    assert (series.values[-1], series.maxima[-1]) == (2.0, 2.0)


def test_gauge_beyond_the_limit_keeps_its_last_value_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_store, "MAX_GAUGES", 3)
    store = MetricStore(START)
    many = ProcessMetrics("word", "c", 1, 3, 1, START, gauges={f"g{n}": float(n) for n in range(5)}, started=START)
    store.publish(START, PublishMetrics(1, (many,)))
    store.check()
    assert store.refused == 2
    values = store.metrics(START + 1, MetricsRequest()).values
    assert [(v.name, v.total, v.mean) for v in values] == [(f"g{n}", n, n) for n in range(5)]
    assert len(store.timeline(START + 1, TimelineRequest()).series) == 3


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
