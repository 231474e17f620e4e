"""Views of a topology master's metrics: totals, rates, percentiles, timelines and health. Pure.

Percentiles come from the sum of the sketches of all instances, so they are percentiles of all tuples. A mean is the
mean of that sum, never a mean of means. Health follows section 6.3 of the Heron paper; its figures count from the
start of the topology, except lag, CPU and memory, which are current (the lag with its maximum of three hours).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from heron_control.inspection.metrics_table import sketch_of
from heron_runtime.model.metrics import (
    ACK_COUNT,
    COMPLETE_LATENCY,
    EMIT_COUNT,
    EXECUTE_COUNT,
    EXECUTE_LATENCY,
    FAIL_COUNT,
    FAILED_BY_REASON,
    PROCESS_LATENCY,
    QUEUE_LATENCY,
    MetricKind,
    base_name,
    prometheus_name,
    split_name,
)
from heron_runtime.model.sketch import Sketch
from heron_runtime.wire.master import MetricsReply, MetricValue, TimelineReply, TimelineRequest, TimelineSeries
from heron_tracker.core.json_values import json_number
from heron_tracker.core.query_evaluation import MINUTE, MetricSeries, minutes_between
from heron_tracker.core.query_language import TimeSeries

# Intervals in seconds; -1 is since the start.
WINDOWS = (600, 3600, 10_800, -1)
BUSY, IDLE, PRESSED = "__busy-time-ms", "__idle-time-ms", "__backpressured-time-ms"
OVERVIEW_METRICS = (
    EMIT_COUNT, EXECUTE_COUNT, ACK_COUNT, FAIL_COUNT, COMPLETE_LATENCY, PROCESS_LATENCY, QUEUE_LATENCY, EXECUTE_LATENCY,
    BUSY, IDLE, PRESSED,
)  # fmt: skip


def summarize_latency(sketch: Sketch) -> dict[str, Any] | None:
    """Return count, mean and percentiles in milliseconds, or None without values."""
    if not sketch.bins:
        return None
    p50, p90, p99, highest = sketch.quantiles((0.5, 0.9, 0.99, 1.0))
    return {
        "count": json_number(sketch.count), "mean": sketch.mean, "p50": p50, "p90": p90, "p99": p99, "max": highest,
    }  # fmt: skip


def heron_metrics(component: str, interval: int, reply: MetricsReply, instances: Sequence[str]) -> dict[str, Any]:
    """Return the document of ``/topologies/metrics``: metric → instance → value (mean of a latency in milliseconds).

    It also has ``rates`` of counters per second, ``ranges`` of gauges (least, greatest and mean within the interval)
    and ``percentiles`` of latencies (``*`` stands for all instances).
    """
    wanted = frozenset(instances)
    values = [v for v in reply.values if not wanted or v.instance in wanted]
    metrics: dict[str, dict[str, Any]] = {}
    rates: dict[str, dict[str, Any]] = {}
    ranges: dict[str, dict[str, Any]] = {}
    latencies: dict[str, list[MetricValue]] = {}
    for value in values:
        if value.kind == MetricKind.LATENCY:
            latencies.setdefault(value.name, []).append(value)
            shown: Any = sketch_of([value]).mean
        else:
            shown = json_number(value.total)
        metrics.setdefault(value.name, {})[value.instance] = shown
        if value.kind == MetricKind.COUNTER:
            rates.setdefault(value.name, {})[value.instance] = json_number(value.rate)
        elif value.kind == MetricKind.GAUGE:
            ranges.setdefault(value.name, {})[value.instance] = gauge_range([value])
    percentiles = {
        name: {
            **{v.instance: summarize_latency(sketch_of([v])) for v in values_of_metric},
            "*": summarize_latency(sketch_of(values_of_metric)),
        }
        for name, values_of_metric in latencies.items()
    }
    return {
        "interval": interval,
        "covered_seconds": reply.interval_seconds,
        "component": component,
        "metrics": metrics,
        "rates": rates,
        "ranges": ranges,
        "percentiles": percentiles,
    }


def gauge_range(values: Sequence[MetricValue]) -> dict[str, Any]:
    """Return least, greatest and mean value of one instance over the interval."""
    return {
        "min": json_number(min(v.minimum for v in values)),
        "max": json_number(max(v.maximum for v in values)),
        "mean": json_number(sum(v.mean for v in values) / len(values)),
    }


def gauge_now(values: Sequence[MetricValue]) -> dict[str, Any]:
    """Return the least and greatest current value of one instance."""
    return {"min": json_number(min(v.total for v in values)), "max": json_number(max(v.total for v in values))}


def metric_rows(reply: MetricsReply, instance: str = "") -> list[dict[str, Any]]:
    """Return one row per metric, summed over instances or of one instance.

    Rows have name, kind, total, rate, latency, range of gauges over all instances, meaning and unit (bytes, seconds
    or none); ``scale`` converts values into the unit.
    """
    by_name: dict[str, list[MetricValue]] = {}
    for value in reply.values:
        if instance in ("", value.instance):
            by_name.setdefault(value.name, []).append(value)
    return [
        {
            "name": name,
            "base": base_name(name),
            "kind": values[0].kind,
            "total": json_number(sum(v.total for v in values)),
            "rate": json_number(sum(v.rate for v in values)) if values[0].kind == MetricKind.COUNTER else None,
            "latency": summarize_latency(sketch_of(values)) if values[0].kind == MetricKind.LATENCY else None,
            "range": gauge_range(values) if values[0].kind == MetricKind.GAUGE else None,
            "now": gauge_now(values) if values[0].kind == MetricKind.GAUGE else None,
            **_meaning(name, MetricKind(values[0].kind)),
        }
        for name, values in sorted(by_name.items())
    ]


def _meaning(name: str, kind: MetricKind) -> dict[str, Any]:
    known = prometheus_name(name, kind)
    words = known.name.removesuffix("_total").split("_") if split_name(name).metric is not None else ()
    unit = next((unit for unit in ("bytes", "seconds") if unit in words[-2:]), "")
    return {"help": known.help, "unit": unit, "scale": known.scale}


def summarize_flow(values: Sequence[MetricValue], *, is_spout: bool) -> dict[str, Any]:
    """Return totals and rates over all streams, latency and shares of time of a component or an instance.

    ``latency`` is that of whole trees for a spout. For a bolt it lasts from receipt to ack; ``wait`` is the part
    before its code is called and ``execute`` the part within.
    """
    by_base: dict[str, list[MetricValue]] = {}
    for value in values:
        by_base.setdefault(base_name(value.name), []).append(value)

    def total(base: str) -> float:
        return sum(v.total for v in by_base.get(base, ()))

    def rate(base: str) -> float:
        return sum(v.rate for v in by_base.get(base, ()))

    times = {key: total(base) for key, base in (("busy", BUSY), ("idle", IDLE), ("backpressured", PRESSED))}
    whole = sum(times.values())
    return {
        "emitted": json_number(total(EMIT_COUNT)),
        "executed": json_number(total(EXECUTE_COUNT)),
        "acked": json_number(total(ACK_COUNT)),
        "failed": json_number(total(FAIL_COUNT)),
        "emit_rate": json_number(rate(EMIT_COUNT)),
        "execute_rate": json_number(rate(EXECUTE_COUNT)),
        "ack_rate": json_number(rate(ACK_COUNT)),
        "fail_rate": json_number(rate(FAIL_COUNT)),
        "latency": summarize_latency(sketch_of(by_base.get(COMPLETE_LATENCY if is_spout else PROCESS_LATENCY, ()))),
        "wait": summarize_latency(sketch_of(by_base.get(QUEUE_LATENCY, ()))),
        "execute": summarize_latency(sketch_of(by_base.get(EXECUTE_LATENCY, ()))),
        "time_share": {key: value / whole for key, value in times.items()} if whole > 0 else None,
    }


def component_flows(reply: MetricsReply, components: dict[str, bool]) -> dict[str, dict[str, Any]]:
    """Return ``summarize_flow`` of every component. ``components``: name → whether it is a spout."""
    values: dict[str, list[MetricValue]] = {name: [] for name in components}
    for value in reply.values:
        if value.component in values:
            values[value.component].append(value)
    return {name: summarize_flow(of_component, is_spout=components[name]) for name, of_component in values.items()}


def summarize_topology(reply: MetricsReply, components: dict[str, bool]) -> dict[str, Any]:
    """Return one row for the topology: tuples of its spouts, emit rate of all components, complete latency."""
    spouts = [v for v in reply.values if components.get(v.component)]
    of_all = [v for v in reply.values if v.component in components]
    of_spouts = summarize_flow(spouts, is_spout=True)
    return {
        "interval": reply.interval_seconds,
        "emit_rate": summarize_flow(of_all, is_spout=False)["emit_rate"],
        "spout_emit_rate": of_spouts["emit_rate"],
        "acked": of_spouts["acked"],
        "failed": of_spouts["failed"],
        "complete_latency": of_spouts["latency"],
        "spout_time_share": of_spouts["time_share"],
    }


LONGEST_RANGE = 3 * 3600  # history of a topology master
SHORTEST_MINUTES = 600  # shorter intervals have points of 5 seconds


def timeline_request(component: str, names: Iterable[str], start: float, now: float) -> TimelineRequest:
    """Return the request for everything since ``start``, in minutes."""
    seconds = min(max(now - start + MINUTE, SHORTEST_MINUTES), LONGEST_RANGE)
    return TimelineRequest(component, seconds, tuple(names))


def time_series_request(leaf: TimeSeries, start: float, now: float) -> TimelineRequest:
    """Return the request for a TS.

    A topology master does not support ``*``: the part before its last slash narrows the answer.
    """
    component = "" if "*" in leaf.component else leaf.component
    head, star, _ = leaf.metric.partition("*")
    name = head.rpartition("/")[0] if star else leaf.metric
    return timeline_request(component, (name,) if name else (), start, now)


def points_by_minute(reply: TimelineReply, values: Sequence[float]) -> dict[int, float]:
    """Return values by minute. NaN is a minute without a value."""
    first, step = int(reply.start_time), int(reply.step_seconds)
    return {first + n * step: value for n, value in enumerate(values) if value == value}


def matching_series(leaf: TimeSeries, reply: TimelineReply) -> list[MetricSeries]:
    """Return the series of a reply that a TS selects.

    A ``*`` stands for any text; what it matched in the metric's name is the label.
    """
    matching = []
    for series in reply.series:
        if (
            match_wildcards(leaf.component, series.component) is None
            or match_wildcards(leaf.instance, series.instance) is None
        ):
            continue
        label = match_wildcards(leaf.metric, series.name)
        if label is not None:
            matching.append(MetricSeries(points_by_minute(reply, series.values), series.instance, ",".join(label)))
    return matching


def heron_timeline(
    component: str, start: int, end: int, reply: TimelineReply, instances: Sequence[str], *, as_text: bool
) -> dict[str, Any]:
    """Return the document of ``/topologies/metrics/timeline``: metric → instance → minute → value."""
    wanted = frozenset(instances)
    inside = frozenset(minutes_between(start, end))
    timeline: dict[str, dict[str, dict[str, Any]]] = {}
    for series in reply.series:
        if wanted and series.instance not in wanted:
            continue
        shown = {
            str(minute): str(json_number(value)) if as_text else json_number(value)
            for minute, value in points_by_minute(reply, series.values).items()
            if minute in inside
        }
        timeline.setdefault(series.name, {})[series.instance] = shown
    return {"component": component, "starttime": start, "endtime": end, "timeline": timeline}


def merge_instances(reply: TimelineReply, instance: str = "") -> dict[str, Any]:
    """Return the points of each metric, merged over all instances or of one instance.

    Counters are added, gauges have their greatest and least value, latencies the mean of the slowest instance. None
    without reports.
    """
    by_name: dict[str, list[TimelineSeries]] = {}
    for series in reply.series:
        if instance in ("", series.instance):
            by_name.setdefault(series.name, []).append(series)
    return {
        "starttime": reply.start_time,
        "step": reply.step_seconds,
        "series": [_merge_series(name, series) for name, series in sorted(by_name.items())],
    }


def _merge_series(name: str, series: Sequence[TimelineSeries]) -> dict[str, Any]:
    kind = series[0].kind
    if kind == MetricKind.GAUGE:
        return {
            "name": name,
            "kind": kind,
            "values": _each_point(max, [s.maxima or s.values for s in series]),
            "minima": _each_point(min, [s.minima or s.values for s in series]),
        }
    fold = sum if kind == MetricKind.COUNTER else max
    return {"name": name, "kind": kind, "values": _each_point(fold, [s.values for s in series]), "minima": None}


def _each_point(fold: Callable[[list[float]], float], columns: Sequence[Sequence[float]]) -> list[Any]:
    points = ([value for value in values if value == value] for values in zip(*columns, strict=True))
    return [json_number(fold(values)) if values else None for values in points]


def match_wildcards(pattern: str, text: str) -> tuple[str, ...] | None:
    """Return the text that each ``*`` of the pattern matches, the first ones as short as possible, or None.

    Linear for every pattern, because the first occurrence of each part between stars is always sufficient.
    """
    first, *rest = pattern.split("*")
    if not rest:
        return () if text == pattern else None
    *middle, last = rest
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return None
    matches, at, end = [], len(first), len(text) - len(last)
    for part in middle:
        where = text.find(part, at, end)
        if where < 0:
            return None
        matches.append(text[at:where])
        at = where + len(part)
    return (*matches, text[at:end])


LAG, DEATHS = "__topology-lag-ms", "__stream_manager_deaths"
USED = {"cpu": "__used-cpu-cores", "memory": "__used-memory-bytes"}
RESERVED = {"cpu": "__reserved-cpu-cores", "memory": "__reserved-memory-bytes"}
LOST = ("__lost_on_break", "__gateway-lost-on-break")
PAUSED_MS = "__server/__time_spent_back_pressure_aggr"
# Metrics for ``summarize_health``, since the start.
HEALTH_METRICS = (LAG, DEATHS, *USED.values(), *RESERVED.values(), *LOST, PAUSED_MS, FAILED_BY_REASON)


def summarize_health(reply: MetricsReply | None, components: Mapping[str, bool]) -> dict[str, Any] | None:
    """Return health figures, or None when the master does not answer.

    A lag of None is unknown, or the topology does not track tuples.

    Args:
        reply: metrics of the topology master.
        components: name → whether it is a spout.
    """
    if reply is None:
        return None
    by_base: dict[str, list[MetricValue]] = {}
    for value in reply.values:
        by_base.setdefault(split_name(value.name).base, []).append(value)

    def total(name: str) -> float:
        return sum(v.total for v in by_base.get(name, ()))

    lag = by_base.get(LAG)
    roots = [v for v in by_base.get(FAILED_BY_REASON, ()) if components.get(v.component)]
    return {
        "lag_ms": json_number(total(LAG)) if lag else None,
        "lag_max_ms": json_number(max(v.maximum for v in lag)) if lag else None,
        "failed_by_reason": _reasons(roots),
        "stream_manager_deaths": json_number(total(DEATHS)),
        "lost_tuples": json_number(sum(total(name) for name in LOST)),
        "paused_ms": json_number(max((v.total for v in by_base.get(PAUSED_MS, ())), default=0.0)),
        **{
            what: {"used": json_number(total(USED[what])), "reserved": json_number(total(RESERVED[what]))}
            if USED[what] in by_base
            else None
            for what in USED
        },
    }


def _reasons(values: list[MetricValue]) -> list[dict[str, Any]]:
    """Return reason, component (None for timeouts) and count of failures, the most frequent first."""
    sums: dict[str, float] = {}
    for value in values:
        key = split_name(value.name).key
        sums[key] = sums.get(key, 0.0) + value.total
    parts = ((*key.partition("/"), total) for key, total in sorted(sums.items(), key=lambda item: (-item[1], item[0])))
    return [{"reason": kind, "component": who or None, "count": json_number(total)} for kind, _, who, total in parts]
