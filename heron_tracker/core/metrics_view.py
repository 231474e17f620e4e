"""Metrics as the tracker shows them: totals, rates and percentiles from what a topology master replied.

Percentiles come from the sum of the sketches of all instances, so they are percentiles of all tuples; a mean is the
mean of that sum, never a mean of means. Counters are added, gauges are added over instances (bytes in queues, tuples in
flight).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heron_control.inspection.metrics_table import sketch_of
from heron_runtime.model.metrics import (
    ACK_COUNT,
    COMPLETE_LATENCY,
    EMIT_COUNT,
    EXECUTE_COUNT,
    EXECUTE_LATENCY,
    FAIL_COUNT,
    PROCESS_LATENCY,
    QUEUE_LATENCY,
    MetricKind,
    base_name,
    prometheus_name,
    split_name,
)
from heron_runtime.model.sketch import Sketch
from heron_runtime.wire.master import MetricsReply, MetricValue
from heron_tracker.core.plain import number

# The intervals people ask for, in seconds; -1 is since the start.
WINDOWS = (600, 3600, 10_800, -1)
BUSY, IDLE, PRESSED = "__busy-time-ms", "__idle-time-ms", "__backpressured-time-ms"
OVERVIEW_METRICS = (
    EMIT_COUNT, EXECUTE_COUNT, ACK_COUNT, FAIL_COUNT, COMPLETE_LATENCY, PROCESS_LATENCY, QUEUE_LATENCY, EXECUTE_LATENCY,
    BUSY, IDLE, PRESSED,
)  # fmt: skip


def latency(sketch: Sketch) -> dict[str, Any] | None:
    """Count, mean and percentiles in milliseconds; None without values."""
    if not sketch.bins:
        return None
    p50, p90, p99, highest = sketch.quantiles((0.5, 0.9, 0.99, 1.0))
    return {
        "count": number(sketch.count), "mean": sketch.mean, "p50": p50, "p90": p90, "p99": p99, "max": highest,
    }  # fmt: skip


def heron_metrics(component: str, interval: int, reply: MetricsReply, instances: Sequence[str]) -> dict[str, Any]:
    """The shape of ``/topologies/metrics``: metric → instance → value (a latency: its mean in milliseconds).

    Beside it ``rates`` (of counters, per second), ``ranges`` (of gauges: least, greatest and mean within the interval)
    and ``percentiles`` (of latencies; ``*`` stands for all instances).
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
            shown = number(value.total)
        metrics.setdefault(value.name, {})[value.instance] = shown
        if value.kind == MetricKind.COUNTER:
            rates.setdefault(value.name, {})[value.instance] = number(value.rate)
        elif value.kind == MetricKind.GAUGE:
            ranges.setdefault(value.name, {})[value.instance] = gauge_range([value])
    percentiles = {
        name: {**{v.instance: latency(sketch_of([v])) for v in found}, "*": latency(sketch_of(found))}
        for name, found in latencies.items()
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
    """What one instance of these had at least, at most, and they had in the mean."""
    return {
        "min": number(min(v.minimum for v in values)),
        "max": number(max(v.maximum for v in values)),
        "mean": number(sum(v.mean for v in values) / len(values)),
    }


def gauge_now(values: Sequence[MetricValue]) -> dict[str, Any]:
    """What one instance of these has at least and at most at this moment, as ``gauge_range`` tells of an interval."""
    return {"min": number(min(v.total for v in values)), "max": number(max(v.total for v in values))}


def table(reply: MetricsReply, instance: str = "") -> list[dict[str, Any]]:
    """One row for each metric, summed over instances (or of one): name, kind, total, rate, latency; the range of gauges
    over all instances; what the metric means, and its unit (bytes, seconds, none; ``scale`` turns numbers into it)."""
    by_name: dict[str, list[MetricValue]] = {}
    for value in reply.values:
        if instance in ("", value.instance):
            by_name.setdefault(value.name, []).append(value)
    return [
        {
            "name": name,
            "base": base_name(name),
            "kind": values[0].kind,
            "total": number(sum(v.total for v in values)),
            "rate": number(sum(v.rate for v in values)) if values[0].kind == MetricKind.COUNTER else None,
            "latency": latency(sketch_of(values)) if values[0].kind == MetricKind.LATENCY else None,
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


def flow(values: Sequence[MetricValue], *, is_spout: bool) -> dict[str, Any]:
    """What flows through a component or instance: totals and rates over all streams, latency, shares of time.

    ``latency`` is of whole trees for a spout, from receipt to ack for a bolt, of which ``wait`` is before its code is
    called and ``execute`` within.
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
        "emitted": number(total(EMIT_COUNT)),
        "executed": number(total(EXECUTE_COUNT)),
        "acked": number(total(ACK_COUNT)),
        "failed": number(total(FAIL_COUNT)),
        "emit_rate": number(rate(EMIT_COUNT)),
        "execute_rate": number(rate(EXECUTE_COUNT)),
        "ack_rate": number(rate(ACK_COUNT)),
        "fail_rate": number(rate(FAIL_COUNT)),
        "latency": latency(sketch_of(by_base.get(COMPLETE_LATENCY if is_spout else PROCESS_LATENCY, ()))),
        "wait": latency(sketch_of(by_base.get(QUEUE_LATENCY, ()))),
        "execute": latency(sketch_of(by_base.get(EXECUTE_LATENCY, ()))),
        "time_share": {key: value / whole for key, value in times.items()} if whole > 0 else None,
    }


def flows(reply: MetricsReply, components: dict[str, bool]) -> dict[str, dict[str, Any]]:
    """``flow`` of every component (name → is it a spout)."""
    values: dict[str, list[MetricValue]] = {name: [] for name in components}
    for value in reply.values:
        if value.component in values:
            values[value.component].append(value)
    return {name: flow(found, is_spout=components[name]) for name, found in values.items()}


def whole(reply: MetricsReply, components: dict[str, bool]) -> dict[str, Any]:
    """The topology in a row: what its spouts emitted, acked and failed, what all emit, the complete latency."""
    spouts = [v for v in reply.values if components.get(v.component)]
    everybody = [v for v in reply.values if v.component in components]
    of_spouts = flow(spouts, is_spout=True)
    return {
        "interval": reply.interval_seconds,
        "emit_rate": flow(everybody, is_spout=False)["emit_rate"],
        "spout_emit_rate": of_spouts["emit_rate"],
        "acked": of_spouts["acked"],
        "failed": of_spouts["failed"],
        "complete_latency": of_spouts["latency"],
        "spout_time_share": of_spouts["time_share"],
    }
