"""Metrics as shown by ``heron metrics``, derived from the topology master's reply. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

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
)
from heron_runtime.model.sketch import Sketch
from heron_runtime.wire.errors import MalformedMessage
from heron_runtime.wire.master import MetricsReply, MetricValue
from heron_runtime.wire.sketch_codec import decode_sketch

COLUMNS = (
    "component", "emitted", "executed", "acked", "failed", "emitted/s", "executed/s",
    "wait ms", "execute ms", "complete ms",
)  # fmt: skip
NUMBERS = COLUMNS[1:]
TIMES = {"wait": QUEUE_LATENCY, "execute": EXECUTE_LATENCY, "complete": COMPLETE_LATENCY}
FLOW = ("emitted", "executed", "acked", "failed")
RATES = ("emitted_rate", "executed_rate")


def matches(name: str, wanted: Iterable[str]) -> bool:
    """Return True if ``wanted`` is empty or names the metric, with or without its key."""
    chosen = tuple(wanted)
    return not chosen or name in chosen or base_name(name) in chosen


def as_json(topology: str, reply: MetricsReply, wanted: Iterable[str] = ()) -> dict[str, Any]:
    """Return the shape of ``heron metrics --output json``."""
    chosen = tuple(wanted)
    components: dict[str, dict[str, list[MetricValue]]] = {}
    for value in reply.values:
        if matches(value.name, chosen):
            components.setdefault(value.component, {}).setdefault(value.name, []).append(value)
    return {
        "topology": topology,
        "interval": reply.interval_seconds,
        "components": {
            component: {name: _metric(values) for name, values in sorted(metrics.items())}
            for component, metrics in sorted(components.items())
        },
    }


def sketch_of(values: Iterable[MetricValue]) -> Sketch:
    """Return the sum of the sketches, without unreadable ones."""
    together = Sketch()
    for value in values:
        if value.sketch:
            with suppress(MalformedMessage):
                together = together + decode_sketch(value.sketch)
    return together


def _metric(values: list[MetricValue]) -> dict[str, Any]:
    return {
        "total": sum(value.total for value in values),
        "rate": sum(value.rate for value in values),
        **_quantiles(values),
        "instances": {
            value.instance: {"total": value.total, "rate": value.rate, **_quantiles([value])}
            for value in sorted(values, key=lambda v: v.instance)
        },
    }


def _quantiles(values: list[MetricValue]) -> dict[str, float | None]:
    if not any(value.kind == MetricKind.LATENCY for value in values):
        return {}
    sketch = sketch_of(values)
    p50, p99 = sketch.quantiles((0.5, 0.99))
    return {"mean": sketch.mean if sketch.bins else None, "p50": p50, "p99": p99}


def flow(reply: MetricsReply, components: Mapping[str, bool]) -> list[dict[str, Any]]:
    """Return throughput and latency of each component; values are None if unknown.

    ``components`` maps names to True for spouts. Emitted, executed, acked and failed are sums over streams. ``p50`` and
    ``p99`` are those of tuple trees for a spout, and from receipt to ack for a bolt. ``times`` lists separately the
    wait in the task's queue, the time in its code, and tuple trees. All are in milliseconds.
    """
    rows = []
    for component, is_spout in components.items():
        values = [value for value in reply.values if value.component == component]
        latency = COMPLETE_LATENCY if is_spout else PROCESS_LATENCY
        p50, p99 = sketch_of(v for v in values if base_name(v.name) == latency).quantiles((0.5, 0.99))
        sums = zip(FLOW, (EMIT_COUNT, EXECUTE_COUNT, ACK_COUNT, FAIL_COUNT), strict=True)
        rates = zip(RATES, (EMIT_COUNT, EXECUTE_COUNT), strict=True)
        rows.append(
            {
                "component": component,
                "spout": is_spout,
                **{key: _sum(values, name) for key, name in sums},
                **{key: _sum(values, name, rate=True) for key, name in rates},
                "p50": p50,
                "p99": p99,
                "times": {
                    key: _quantiles([v for v in values if base_name(v.name) == name]) for key, name in TIMES.items()
                },
            }
        )
    return rows


def document(
    topology: str, reply: MetricsReply, components: Mapping[str, bool], wanted: Iterable[str] = ()
) -> dict[str, Any]:
    """Return all that ``heron metrics`` shows, as JSON data: ``as_json`` and ``flow``."""
    return {**as_json(topology, reply, wanted), "flow": flow(reply, components)}


def flow_rows(flow: Mapping[str, Any]) -> list[list[object]]:
    """Return the rows of the table of ``flow``."""
    return [
        [
            row["component"],
            *(_count(row[key]) for key in (*FLOW, *RATES)),
            *(_p50_and_p99(row["times"][key]) for key in TIMES),
        ]
        for row in flow["flow"]
    ]


def detail_rows(details: Mapping[str, Any]) -> list[list[object]]:
    """Return a row per instance and metric: component, instance, metric, total, rate, p50, p99."""
    return [
        [component, instance, name, _count(one["total"]), _count(one["rate"]), _ms(one.get("p50")), _ms(one.get("p99"))]
        for component, metrics in details["components"].items()
        for name, metric in metrics.items()
        for instance, one in metric["instances"].items()
    ]


def _ms(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


def _p50_and_p99(quantiles: Mapping[str, float | None]) -> str | None:
    return f"{_ms(quantiles['p50'])} / {_ms(quantiles['p99'])}" if quantiles.get("p50") is not None else None


def _sum(values: Iterable[MetricValue], base: str, *, rate: bool = False) -> float | None:
    numbers = [value.rate if rate else value.total for value in values if base_name(value.name) == base]
    return sum(numbers) if numbers else None


def _count(number: float | None) -> str | None:
    if number is None:
        return None
    return f"{number:.0f}" if number == int(number) or abs(number) >= 100 else f"{number:.1f}"
