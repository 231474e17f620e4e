"""Heron's routes about metrics and exceptions. All of them ask the topology master, with a deadline."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from heron_runtime.failures import UsageError
from heron_runtime.wire.master import ExceptionsReply, ExceptionsRequest, MetricsRequest, TimelineReply
from heron_runtime.wire.metrics import ExceptionReport
from heron_tracker.core import heron_records
from heron_tracker.core.json_values import json_number
from heron_tracker.core.metrics_view import (
    heron_metrics,
    heron_timeline,
    matching_series,
    time_series_request,
    timeline_request,
)
from heron_tracker.core.query_evaluation import MINUTE, MetricSeries, evaluate
from heron_tracker.core.query_language import MAX_LENGTH, QueryError, TimeSeries, leaves, parse, rate_depth
from heron_tracker.routing import (
    Component,
    Instances,
    Interval,
    MetricNames,
    Time,
    Tracked,
    TrackedRequest,
    get,
    requested_metrics,
)

router = APIRouter(tags=["metrics"])
MAX_RANGE = 24 * 3600
MAX_LEAVES = 20


def _range(start: int, end: int) -> None:
    if end < start:
        raise UsageError("endtime: is before starttime")
    if end - start > MAX_RANGE:
        raise UsageError(f"endtime: at most {MAX_RANGE} seconds after starttime")


@get(router, "/topologies/metrics")
async def metrics(
    tracked: Tracked, component: Component, metricname: MetricNames, instance: Instances, interval: Interval = -1
) -> Response:
    """Get metrics: metric → instance → value within an interval.

    Growth of counters, last value of gauges, mean latency in ms. `rates` are per second; `percentiles` come from
    merged sketches, `*` stands for all instances together.
    """
    question = MetricsRequest(tracked.topology.component(component), float(interval), requested_metrics(metricname))
    answer = await tracked.ask_master("Metrics", question)
    return tracked.respond(heron_metrics(component, interval, answer, instance))


async def _timeline(
    tracked: TrackedRequest, component: str, names: list[str], span: tuple[int, int], instances: list[str],
    *, as_text: bool,
) -> Response:  # fmt: skip
    topology = tracked.topology
    _range(*span)
    question = timeline_request(topology.component(component), requested_metrics(names), span[0], time.time())
    answer = await tracked.ask_master("Timeline", question)
    return tracked.respond(heron_timeline(component, *span, answer, instances, as_text=as_text))


@get(router, "/topologies/metrics/timeline")
async def timeline(
    tracked: Tracked, component: Component, metricname: MetricNames, instance: Instances, starttime: Time, endtime: Time
) -> Response:
    """Get metrics over time: metric → instance → minute → value, for the last three hours."""
    return await _timeline(tracked, component, metricname, (starttime, endtime), instance, as_text=False)


@get(router, "/topologies/metricstimeline", deprecated=True)
async def timeline_as_text(
    tracked: Tracked, component: Component, metricname: MetricNames, instance: Instances, starttime: Time, endtime: Time
) -> Response:
    """Get the timeline with values as text."""
    return await _timeline(tracked, component, metricname, (starttime, endtime), instance, as_text=True)


@get(router, "/topologies/metrics/query", "/topologies/metricsquery")
async def query(
    tracked: Tracked,
    query: Annotated[str, Query(description="such as SUM(TS(word, *, __emit-count/default))", max_length=MAX_LENGTH)],
    starttime: Time,
    endtime: Time,
) -> Response:
    """Evaluate a query of the metrics query language: points by minute."""
    _range(starttime, endtime)
    topology = tracked.topology
    try:
        tree = parse(query)
    except QueryError as error:
        raise UsageError(f"query: {error}") from None
    wanted = leaves(tree)
    if len(wanted) > MAX_LEAVES:
        raise UsageError(f"query: at most {MAX_LEAVES} different TS")
    first = starttime - MINUTE * (1 + rate_depth(tree))
    replies: dict[TimeSeries, TimelineReply] = {}
    for leaf in wanted:
        if "*" not in leaf.component:
            topology.component(leaf.component)
        replies[leaf] = await tracked.ask_master("Timeline", time_series_request(leaf, first, time.time()))

    def compute() -> list[dict[str, Any]]:
        result = evaluate(tree, lambda leaf: matching_series(leaf, replies[leaf]), starttime, endtime)
        return [_series(s) for s in result.series]

    try:
        shown = await tracked.tracker.run_query(compute)
    except QueryError as error:
        raise UsageError(f"query: {error}") from None
    return tracked.respond({"starttime": starttime, "endtime": endtime, "timeline": shown})


def _series(series: MetricSeries) -> dict[str, Any]:
    named = {"instance": series.instance} if series.instance else {}
    if series.label:
        named["label"] = series.label
    return {**named, "data": {str(minute): json_number(value) for minute, value in series.points.items()}}


async def _exceptions(tracked: TrackedRequest, component: str, instances: list[str]) -> list[ExceptionReport]:
    question = ExceptionsRequest(tracked.topology.component(component))
    answer: ExceptionsReply = await tracked.ask_master("Exceptions", question)
    return [report for report in answer.exceptions if not instances or report.instance in instances]


@get(router, "/topologies/exceptions")
async def exceptions(tracked: Tracked, component: Component, instance: Instances) -> Response:
    """List exceptions of user code, each kind once, the most recent last."""
    reports = await _exceptions(tracked, component, instance)
    return tracked.respond([heron_records.exception(tracked.topology.record, report) for report in reports])


@get(router, "/topologies/exceptionsummary")
async def exception_summary(tracked: Tracked, component: Component, instance: Instances) -> Response:
    """Count exceptions by class, with first and last time, over all instances."""
    return tracked.respond(heron_records.exception_summary(await _exceptions(tracked, component, instance)))
