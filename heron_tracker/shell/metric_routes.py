"""Heron's paths about metrics and exceptions. All of them ask the topology master, with a deadline."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from heron_runtime.failures import UsageError
from heron_runtime.wire.master import ExceptionsReply, ExceptionsRequest, MetricsRequest, TimelineReply
from heron_runtime.wire.metrics import ExceptionReport
from heron_tracker.core import records
from heron_tracker.core.metrics_view import heron_metrics
from heron_tracker.core.plain import number
from heron_tracker.core.query_evaluation import MINUTE, Series, evaluate
from heron_tracker.core.query_language import MAX_LENGTH, QueryError, TimeSeries, leaves, parse, rates_deep
from heron_tracker.core.timeline import heron_timeline, request_for, request_of, series_of
from heron_tracker.shell.parameters import Component, Instances, Interval, MetricNames, Time, names_of
from heron_tracker.shell.routing import Asked, TopologyRequest, get

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
    asked: Asked, component: Component, metricname: MetricNames, instance: Instances, interval: Interval = -1
) -> Response:
    """Metric → instance → value within an interval: growth of counters, last value of gauges, mean latency in ms.

    `rates` are per second; `percentiles` come from merged sketches, `*` standing for all instances together.
    """
    question = MetricsRequest(asked.found.component(component), float(interval), names_of(metricname))
    answer = await asked.master("Metrics", question)
    return asked.reply(heron_metrics(component, interval, answer, instance))


async def _timeline(
    asked: TopologyRequest, component: str, names: list[str], span: tuple[int, int], instances: list[str],
    *, as_text: bool,
) -> Response:  # fmt: skip
    found = asked.found
    _range(*span)
    question = request_for(found.component(component), names_of(names), span[0], time.time())
    answer = await asked.master("Timeline", question)
    return asked.reply(heron_timeline(component, *span, answer, instances, as_text=as_text))


@get(router, "/topologies/metrics/timeline")
async def timeline(
    asked: Asked, component: Component, metricname: MetricNames, instance: Instances, starttime: Time, endtime: Time
) -> Response:
    """Metric → instance → minute → value, for the last three hours."""
    return await _timeline(asked, component, metricname, (starttime, endtime), instance, as_text=False)


@get(router, "/topologies/metricstimeline", deprecated=True)
async def timeline_as_text(
    asked: Asked, component: Component, metricname: MetricNames, instance: Instances, starttime: Time, endtime: Time
) -> Response:
    """The timeline with its values as text."""
    return await _timeline(asked, component, metricname, (starttime, endtime), instance, as_text=True)


@get(router, "/topologies/metrics/query", "/topologies/metricsquery")
async def query(
    asked: Asked,
    query: Annotated[str, Query(description="as SUM(TS(word, *, __emit-count/default))", max_length=MAX_LENGTH)],
    starttime: Time,
    endtime: Time,
) -> Response:
    """A query in the metrics query language: points by minute."""
    _range(starttime, endtime)
    found = asked.found
    try:
        tree = parse(query)
    except QueryError as error:
        raise UsageError(f"query: {error}") from None
    wanted = leaves(tree)
    if len(wanted) > MAX_LEAVES:
        raise UsageError(f"query: at most {MAX_LEAVES} different TS")
    first = starttime - MINUTE * (1 + rates_deep(tree))
    replies: dict[TimeSeries, TimelineReply] = {}
    for leaf in wanted:
        if "*" not in leaf.component:
            found.component(leaf.component)
        replies[leaf] = await asked.master("Timeline", request_of(leaf, first, time.time()))

    def compute() -> list[dict[str, Any]]:
        result = evaluate(tree, lambda leaf: series_of(leaf, replies[leaf]), starttime, endtime)
        return [_series(s) for s in result.series]

    try:
        shown = await asked.tracker.beside(compute)
    except QueryError as error:
        raise UsageError(f"query: {error}") from None
    return asked.reply({"starttime": starttime, "endtime": endtime, "timeline": shown})


def _series(series: Series) -> dict[str, Any]:
    named = {"instance": series.instance} if series.instance else {}
    if series.label:
        named["label"] = series.label
    return {**named, "data": {str(minute): number(value) for minute, value in series.points.items()}}


async def _exceptions(asked: TopologyRequest, component: str, instances: list[str]) -> list[ExceptionReport]:
    question = ExceptionsRequest(asked.found.component(component))
    answer: ExceptionsReply = await asked.master("Exceptions", question)
    return [report for report in answer.exceptions if not instances or report.instance in instances]


@get(router, "/topologies/exceptions")
async def exceptions(asked: Asked, component: Component, instance: Instances) -> Response:
    """What user code raised, each kind once, the most recent last."""
    reports = await _exceptions(asked, component, instance)
    return asked.reply([records.exception(asked.found.record, report) for report in reports])


@get(router, "/topologies/exceptionsummary")
async def exception_summary(asked: Asked, component: Component, instance: Instances) -> Response:
    """How often each class of exception was raised, and when first and last; over all instances."""
    return asked.reply(records.exception_summary(await _exceptions(asked, component, instance)))
