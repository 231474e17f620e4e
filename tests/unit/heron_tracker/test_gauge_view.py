"""Gauges and health in the tracker: ranges, gaps, reasons and units."""

from __future__ import annotations

from math import nan

import pytest

from heron_runtime.model.metrics import METRICS, split_name
from heron_runtime.wire.master import MetricsReply, MetricValue, TimelineReply, TimelineSeries
from heron_tracker.core import metrics_view
from heron_tracker.core.metrics_view import (
    HEALTH_METRICS,
    heron_timeline,
    matching_series,
    merge_instances,
    summarize_health,
    time_series_request,
)
from heron_tracker.core.query_evaluation import evaluate
from heron_tracker.core.query_language import TimeSeries, parse

QUEUE = "__gateway-in-stream-queue-size"


def gauge(instance: str, last: float, low: float, high: float, mean: float, name: str = QUEUE) -> MetricValue:
    return MetricValue("count", instance, name, "gauge", last, minimum=low, maximum=high, mean=mean)


def line(instance: str, *values: float) -> TimelineSeries:
    low = tuple(v - 1 for v in values)
    return TimelineSeries("count", instance, QUEUE, "gauge", values, low, tuple(v + 1 for v in values), values)


def test_ranges_accompany_the_last_values() -> None:
    reply = MetricsReply(600.0, (gauge("a", 5, 1, 9, 4), gauge("b", 7, 0, 8, 2)))
    shown = metrics_view.heron_metrics("count", 600, reply, ())
    assert shown["metrics"][QUEUE] == {"a": 5, "b": 7}
    assert shown["ranges"][QUEUE] == {
        "a": {"min": 1, "max": 9, "mean": 4}, "b": {"min": 0, "max": 8, "mean": 2},
    }  # fmt: skip
    assert QUEUE not in shown["rates"]
    (row,) = metrics_view.metric_rows(reply)
    assert (row["total"], row["range"], row["unit"]) == (12, {"min": 0, "max": 9, "mean": 3}, "bytes")
    assert row["now"] == {"min": 5, "max": 7}, "of one task, as the range"


@pytest.mark.parametrize(
    ("name", "kind", "unit", "scale"),
    [("__spout-lag-ms", "gauge", "seconds", 1e-3), ("__py-physical-memory-byte", "gauge", "bytes", 1.0),
     ("__busy-time-ms", "counter", "seconds", 1e-3), ("__gateway-sent-packets-size", "counter", "bytes", 1.0),
     ("__tracked_roots", "gauge", "", 1.0), ("orders_seconds_ago", "gauge", "", 1.0)],
)  # fmt: skip
def test_metric_row_has_its_unit(name: str, kind: str, unit: str, scale: float) -> None:
    (row,) = metrics_view.metric_rows(MetricsReply(1.0, (MetricValue("c", "i", name, kind, 1.0),)))
    assert (row["unit"], row["scale"]) == (unit, scale)
    assert row["help"]


def test_merged_instances_keep_gaps_and_extremes() -> None:
    reply = TimelineReply(600.0, 60.0, (line("a", 4, nan, 6), line("b", 9, nan, nan)))
    (shown,) = merge_instances(reply)["series"]
    assert shown == {"name": QUEUE, "kind": "gauge", "values": [10, None, 7], "minima": [3, None, 5]}
    (one,) = merge_instances(reply, "a")["series"]
    assert one["values"] == [5, None, 7]
    assert merge_instances(reply, "nobody")["series"] == []


def test_timelines_and_queries_handle_gauges_and_skip_gaps() -> None:
    reply = TimelineReply(600.0, 60.0, (line("a", 4, nan, 6), line("b", 9, 1, 2)))
    shown = heron_timeline("count", 600, 779, reply, (), as_text=False)
    assert shown["timeline"][QUEUE] == {"a": {"600": 4, "720": 6}, "b": {"600": 9, "660": 1, "720": 2}}
    leaf = TimeSeries("count", "*", QUEUE)
    assert time_series_request(leaf, 600, 800).names == (QUEUE,)
    best = evaluate(parse(f"TOPK(1, TS(count, *, {QUEUE}))"), lambda _: matching_series(leaf, reply), 600, 779)
    assert [(s.instance, dict(s.points)) for s in best.series] == [("b", {600: 9, 660: 1, 720: 2})]
    least = evaluate(parse(f"MIN(TS(count, *, {QUEUE}))"), lambda _: matching_series(leaf, reply), 600, 779)
    assert dict(least.series[0].points) == {600: 4, 660: 1, 720: 2}


def test_health_metrics_are_registered() -> None:
    assert [name for name in HEALTH_METRICS if name not in METRICS] == []
    assert [name for name in HEALTH_METRICS if split_name(name).key] == []


def test_health_summarizes_the_gauges() -> None:
    def master(name: str, value: float, **more: float) -> MetricValue:
        return MetricValue("__tmanager__", "topology_master-0", name, "gauge", value, **more)

    values = (
        master("__topology-lag-ms", 120, maximum=900), master("__used-cpu-cores", 0.5),
        master("__reserved-cpu-cores", 4), master("__used-memory-bytes", 300), master("__reserved-memory-bytes", 200),
        MetricValue("__tmanager__", "topology_master-0", "__stream_manager_deaths", "counter", 2),
        MetricValue("__stmgr__", "stream_manager-1", "__lost_on_break/stream_manager-2/a/default", "counter", 5),
        MetricValue("a", "x", "__gateway-lost-on-break/default", "counter", 1),
        MetricValue("a", "x", "__failed-by-reason/exception/b", "counter", 3),
        MetricValue("a", "y", "__failed-by-reason/exception/b", "counter", 4),
        MetricValue("a", "y", "__failed-by-reason/timeout", "counter", 9),
        MetricValue("b", "z", "__failed-by-reason/exception", "counter", 7),
    )  # fmt: skip
    assert summarize_health(MetricsReply(60.0, values), {"a": True, "b": False}) == {
        "lag_ms": 120, "lag_max_ms": 900, "stream_manager_deaths": 2, "lost_tuples": 6, "paused_ms": 0,
        "failed_by_reason": [
            {"reason": "timeout", "component": None, "count": 9}, {"reason": "exception", "component": "b", "count": 7},
        ],
        "cpu": {"used": 0.5, "reserved": 4}, "memory": {"used": 300, "reserved": 200},
    }  # fmt: skip


def test_health_without_acks_has_no_lag() -> None:
    used = MetricValue("__tmanager__", "topology_master-0", "__used-cpu-cores", "gauge", 0.5)
    found = summarize_health(MetricsReply(60.0, (used,)), {"a": True})
    assert found is not None
    assert (found["lag_ms"], found["lag_max_ms"], found["cpu"]) == (None, None, {"used": 0.5, "reserved": 0})


def test_health_without_a_master_or_reports_is_empty() -> None:
    assert summarize_health(None, {}) is None
    early = summarize_health(MetricsReply(0.0, ()), {"a": True})
    assert early is not None
    assert (early["lag_ms"], early["cpu"], early["failed_by_reason"]) == (None, None, [])
