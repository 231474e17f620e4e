"""Heron's paths about metrics and exceptions. All of them ask the topology master, with a deadline."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from heron_tracker.core.metrics_view import heron_metrics
from heron_tracker.core.plain import number
from heron_tracker.core.query_evaluation import MINUTE, Series, evaluate
from heron_tracker.core.query_language import MAX_LENGTH, QueryError, TimeSeries, leaves, parse, rates_deep
from heron_tracker.core.timeline import heron_timeline, request_for, request_of, series_of
from heron_tracker.shell.asking import NoAnswer
from heron_tracker.shell.parameters import (
    Cluster,
    Component,
    Environ,
    Instances,
    Interval,
    MetricNames,
    Role,
    Time,
    Topology,
)  # fmt: skip
from heron_tracker.shell.replies import BadArgument, NotFound, Unavailable, reply
from heron_tracker.shell.routing import get, tracker_of
from heron_tracker.shell.tracker import Found
from heronry.model.ids import parse_instance_id
from heronry.wire.master import ExceptionsReply, ExceptionsRequest, MetricsRequest
from heronry.wire.metrics import ExceptionReport

router = APIRouter(tags=["metrics"])
MAX_RANGE = 24 * 3600
MAX_LEAVES = 20


async def ask_master(request: Request, found: Found, method: str, question: Any) -> Any:
    """The master's answer. Raises Unavailable."""
    try:
        return await tracker_of(request).asker.master(found.record, method, question)
    except NoAnswer as error:
        raise Unavailable(str(error)) from None


def component_of(found: Found, name: str) -> str:
    """The name as a master wants it: ``*`` is all. Raises NotFound for a component that is not there."""
    if name == "*":
        return ""
    if name not in found.components and not name.startswith("__"):
        raise NotFound(
            f"{found.record.definition.name} has no component {name!r}; it has {', '.join(found.components)}"
        )
    return name


def _range(start: int, end: int) -> None:
    if end < start:
        raise BadArgument("endtime: is before starttime")
    if end - start > MAX_RANGE:
        raise BadArgument(f"endtime: at most {MAX_RANGE} seconds after starttime")


@get(router, "/topologies/metrics")
async def metrics(
    request: Request,
    cluster: Cluster,
    environ: Environ,
    topology: Topology,
    component: Component,
    metricname: MetricNames,
    instance: Instances,
    role: Role = None,
    interval: Interval = -1,
) -> Response:
    """Metric → instance → value within an interval: growth of counters, last value of gauges, mean latency in ms.

    `rates` are per second; `percentiles` come from merged sketches, `*` standing for all instances together.
    """
    found = tracker_of(request).find(cluster, environ, topology, role)
    names = tuple(name.rstrip("/") for name in metricname if name.rstrip("/"))
    question = MetricsRequest(component_of(found, component), float(interval), names)
    answer = await ask_master(request, found, "Metrics", question)
    return reply(request, heron_metrics(component, interval, answer, instance), stale=found.stale)


async def _timeline(
    request: Request, found: Found, component: str, names: list[str], span: tuple[int, int], instances: list[str],
    *, as_text: bool,
) -> Response:  # fmt: skip
    _range(*span)
    wanted = tuple(name.rstrip("/") for name in names if name.rstrip("/"))
    question = request_for(component_of(found, component), wanted, span[0], time.time())
    answer = await ask_master(request, found, "Timeline", question)
    shown = heron_timeline(component, *span, answer, instances, as_text=as_text)
    return reply(request, shown, stale=found.stale)


@get(router, "/topologies/metrics/timeline")
async def timeline(
    request: Request,
    cluster: Cluster,
    environ: Environ,
    topology: Topology,
    component: Component,
    metricname: MetricNames,
    instance: Instances,
    starttime: Time,
    endtime: Time,
    role: Role = None,
) -> Response:
    """Metric → instance → minute → value, for the last three hours."""
    found = tracker_of(request).find(cluster, environ, topology, role)
    span = (starttime, endtime)
    return await _timeline(request, found, component, metricname, span, instance, as_text=False)


@get(router, "/topologies/metricstimeline", deprecated=True)
async def timeline_as_text(
    request: Request,
    cluster: Cluster,
    environ: Environ,
    topology: Topology,
    component: Component,
    metricname: MetricNames,
    instance: Instances,
    starttime: Time,
    endtime: Time,
    role: Role = None,
) -> Response:
    """The timeline with its values as text."""
    found = tracker_of(request).find(cluster, environ, topology, role)
    span = (starttime, endtime)
    return await _timeline(request, found, component, metricname, span, instance, as_text=True)


@get(router, "/topologies/metrics/query", "/topologies/metricsquery")
async def query(
    request: Request,
    cluster: Cluster,
    environ: Environ,
    topology: Topology,
    query: Annotated[str, Query(description="as SUM(TS(word, *, __emit-count/default))", max_length=MAX_LENGTH)],
    starttime: Time,
    endtime: Time,
    role: Role = None,
) -> Response:
    """A query in the metrics query language: points by minute."""
    _range(starttime, endtime)
    found = tracker_of(request).find(cluster, environ, topology, role)
    try:
        tree = parse(query)
    except QueryError as error:
        raise BadArgument(f"query: {error}") from None
    asked = leaves(tree)
    if len(asked) > MAX_LEAVES:
        raise BadArgument(f"query: at most {MAX_LEAVES} different TS")
    first = starttime - MINUTE * (1 + rates_deep(tree))
    series: dict[TimeSeries, list[Series]] = {}
    for leaf in asked:
        if "*" not in leaf.component:
            component_of(found, leaf.component)
        question = request_of(leaf, first, time.time())
        series[leaf] = series_of(leaf, await ask_master(request, found, "Timeline", question))
    result = evaluate(tree, series.__getitem__, starttime, endtime)
    shown = [_series(s) for s in result.series]
    return reply(request, {"starttime": starttime, "endtime": endtime, "timeline": shown}, stale=found.stale)


def _series(series: Series) -> dict[str, Any]:
    named = {"instance": series.instance} if series.instance else {}
    if series.label:
        named["label"] = series.label
    return {**named, "data": {str(minute): number(value) for minute, value in series.points.items()}}


async def _exceptions(
    request: Request, found: Found, component: str, instances: list[str]
) -> list[ExceptionReport]:
    answer: ExceptionsReply = await ask_master(
        request, found, "Exceptions", ExceptionsRequest(component_of(found, component))
    )
    wanted = frozenset(instances)
    return [e for e in answer.exceptions if not wanted or e.instance in wanted]


def exception_shape(found: Found, report: ExceptionReport) -> dict[str, Any]:
    """An exception as Heron's tracker shows it, with its class, message and component beside."""
    try:
        location = found.record.container(parse_instance_id(report.instance).container)
    except ValueError:
        location = None
    return {
        "hostname": location.host if location else "",
        "instance_id": report.instance,
        "component": report.component,
        "class_name": report.class_name,
        "message": report.message,
        "stacktrace": report.traceback,
        "lasttime": moment(report.last_time),
        "firsttime": moment(report.first_time),
        "count": report.count,
        "logging": "",
    }


def moment(seconds: float) -> str:
    """A time as text, UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


@get(router, "/topologies/exceptions")
async def exceptions(
    request: Request,
    cluster: Cluster,
    environ: Environ,
    topology: Topology,
    component: Component,
    instance: Instances,
    role: Role = None,
) -> Response:
    """What user code raised, each kind once, the most recent last."""
    found = tracker_of(request).find(cluster, environ, topology, role)
    reports = await _exceptions(request, found, component, instance)
    return reply(request, [exception_shape(found, report) for report in reports], stale=found.stale)


@get(router, "/topologies/exceptionsummary")
async def exception_summary(
    request: Request,
    cluster: Cluster,
    environ: Environ,
    topology: Topology,
    component: Component,
    instance: Instances,
    role: Role = None,
) -> Response:
    """How often each class of exception was raised, and when first and last; over all instances."""
    found = tracker_of(request).find(cluster, environ, topology, role)
    by_class: dict[str, list[ExceptionReport]] = {}
    for report in await _exceptions(request, found, component, instance):
        by_class.setdefault(report.class_name, []).append(report)
    summary = [
        {
            "class_name": name,
            "lasttime": moment(max(r.last_time for r in reports)),
            "firsttime": moment(min(r.first_time for r in reports)),
            "count": sum(r.count for r in reports),
        }
        for name, reports in sorted(by_class.items())
    ]
    return reply(request, summary, stale=found.stale)


