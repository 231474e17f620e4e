"""Routes for the web page below ``/api/v1``: lists and overviews in one response each. Open to all clients."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from heron_control.inspection.process_requests import ProcessUnreachable
from heron_control.inspection.topology_status import TopologyStatus, topology_status
from heron_runtime.failures import NotFound, UsageError
from heron_runtime.model.containers import label_of
from heron_runtime.model.ids import MASTER_CONTAINER
from heron_runtime.wire.container import ProcessStatus
from heron_runtime.wire.master import (
    ExceptionsReply,
    ExceptionsRequest,
    MetricsReply,
    MetricsRequest,
    TimelineReply,
    TimelineRequest,
)
from heron_tracker.core import metrics_view, overview
from heron_tracker.core.graph_layout import layout_graph
from heron_tracker.core.metrics_view import (
    HEALTH_METRICS,
    LONGEST_RANGE,
    OVERVIEW_METRICS,
    WINDOWS,
    merge_instances,
    summarize_health,
)
from heron_tracker.core.paging import take_page
from heron_tracker.responses import success_response
from heron_tracker.routing import (
    Clusters,
    Component,
    Cursor,
    Environs,
    Interval,
    Limit,
    MetricNames,
    Role,
    Tracked,
    get,
    requested_metrics,
    tracker_of,
)
from heron_tracker.tracker import TrackedTopology, Tracker

router = APIRouter(prefix="/api/v1", tags=["page"])
DEFAULT_INTERVAL = 60
MAX_STACK = 4000
_USAGE = (*overview.CPU_NAMES, *overview.CPU_NAMES_US, *overview.MEMORY_NAMES)


async def _metrics(
    tracker: Tracker, item: TrackedTopology, interval: int, names: tuple[str, ...]
) -> MetricsReply | None:
    try:
        answer: MetricsReply = await tracker.processes.ask_master(
            item.record, "Metrics", MetricsRequest("", float(interval), names)
        )
    except ProcessUnreachable:
        return None
    return answer


async def _status(tracker: Tracker, item: TrackedTopology) -> TopologyStatus:
    answers = await tracker.processes.ask_all(item.record)
    return topology_status(item.record, answers, time.time())


async def _row(tracker: Tracker, item: TrackedTopology, interval: int) -> dict[str, Any]:
    status, metrics = await asyncio.gather(_status(tracker, item), _metrics(tracker, item, interval, OVERVIEW_METRICS))
    flowing = metrics_view.summarize_topology(metrics, item.components) if metrics is not None else None
    return {
        **overview.topology_row(item.key, item.record, status.state, status.causes, flowing),
        "stale": bool(item.stale),
    }


@get(router, "/topologies")
async def rows(
    request: Request,
    cluster: Clusters,
    environ: Environs,
    role: Role = None,
    interval: Interval = DEFAULT_INTERVAL,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """List topologies.

    State, containers, tasks, rates, complete latency, failures and backpressure of each topology.
    """
    tracker = tracker_of(request)
    chosen = take_page([(f.key, f) for f in tracker.topologies(cluster, environ, role)], limit, cursor)
    listed = await asyncio.gather(*(_row(tracker, item, interval) for item in chosen.items))
    clusters = [
        {"name": s.name, "stale": s.stale, "read_at": s.read_at or None, "error": s.error or None}
        for s in (watch.state for watch in tracker.watches.values())
    ]
    shown = {"topologies": listed, "total": chosen.total, "next": chosen.next, "clusters": clusters}
    return success_response(request, shown, stale=tracker.stale(cluster))


@get(router, "/topology")
async def topology(tracked: Tracked, interval: Interval = DEFAULT_INTERVAL) -> Response:
    """Describe a topology: health, the graph with its rates, containers with their processes, backpressure."""
    tracker, item = tracked.tracker, tracked.topology
    names = (*OVERVIEW_METRICS, *_USAGE)
    status, metrics, always = await asyncio.gather(
        _status(tracker, item),
        _metrics(tracker, item, interval, names),
        _metrics(tracker, item, -1, HEALTH_METRICS),
    )
    flowing = metrics_view.component_flows(metrics, item.components) if metrics is not None else None
    whole = metrics_view.summarize_topology(metrics, item.components) if metrics is not None else None
    by_instance = overview.instance_flows(item.record, metrics)
    used = overview.process_usage(metrics)
    processes: dict[int, list[ProcessStatus]] = {container.id: [] for container in status.containers}
    for process in status.processes:  # the scheduler has no container; it is shown with the master
        processes.get(process.container, processes[MASTER_CONTAINER]).append(process)
    shown = {
        **overview.topology_row(item.key, item.record, status.state, status.causes, whole),
        "stale": bool(item.stale),
        "master_answers": metrics is not None,
        "cause": status.cause() or None,
        "mode": status.mode,
        "put_aside": status.put_aside,
        "late": sum(status.late.values()),
        **overview.tasks_state_field(status.tasks_state),
        "health": summarize_health(always, item.components),
        "graph": overview.describe_graph(item.record, layout_graph(item.record.definition), flowing, status.causes),
        "container_list": [
            {
                "id": container.id,
                "label": label_of(container.id),
                "host": container.host or None,
                "state": str(container.state),
                "processes": [
                    overview.describe_process(p, used.get(p.name, {}), by_instance.get(p.name, {}))
                    for p in processes[container.id]
                ],
            }
            for container in status.containers
        ],
    }
    return tracked.respond(shown)


@get(router, "/topology/metrics")
async def windows(
    tracked: Tracked,
    component: Annotated[str, Query(max_length=256, description="component, over all instances")] = "",
    instance: Annotated[str, Query(max_length=256, description="only this instance")] = "",
) -> Response:
    """Get metrics of a component or an instance for 10 minutes, 1 hour, 3 hours and since the start."""
    item = tracked.topology
    if not component:
        raise UsageError("component: is missing")
    wanted = item.component(component)
    answers: list[MetricsReply] = await asyncio.gather(
        *(tracked.ask_master("Metrics", MetricsRequest(wanted, float(window))) for window in WINDOWS)
    )
    reported = any(v.instance == instance for answer in answers for v in answer.values)
    if instance and not reported and instance not in item.instances:
        raise NotFound(f"{item.name} has no instance {instance!r} of {component}")
    shown = [
        {"interval": window, "covered": answer.interval_seconds, "metrics": metrics_view.metric_rows(answer, instance)}
        for window, answer in zip(WINDOWS, answers, strict=True)
    ]
    return tracked.respond({"component": component, "instance": instance or None, "windows": shown})


@get(router, "/topology/timeline")
async def trend(
    tracked: Tracked,
    component: Component,
    metricname: MetricNames,
    interval: Annotated[int, Query(description="seconds back: points of 5 s up to 595, otherwise of a minute", ge=5,
                                   le=LONGEST_RANGE)] = 3600,
    instance: Annotated[str, Query(max_length=256, description="only this instance; empty: all together")] = "",
) -> Response:  # fmt: skip
    """Get metrics over time, merged over a component's instances.

    Sum of the growth of counters, greatest and least value of gauges over all instances, mean latency of the slowest
    instance. Null without reports.
    """
    wanted = tracked.topology.component(component)
    question = TimelineRequest(wanted, float(interval), requested_metrics(metricname), ranges=True)
    answer: TimelineReply = await tracked.ask_master("Timeline", question)
    shown = {"component": component, "instance": instance or None, **merge_instances(answer, instance)}
    return tracked.respond(shown)


@get(router, "/topology/exceptions")
async def exceptions(
    tracked: Tracked,
    component: Annotated[str, Query(max_length=256, description="only this component; empty: all")] = "",
    instance: Annotated[str, Query(max_length=256, description="only this instance")] = "",
) -> Response:
    """List exceptions of user code, the most recent first; times in seconds since 1970."""
    question = ExceptionsRequest(tracked.topology.component(component or "*"))
    answer: ExceptionsReply = await tracked.ask_master("Exceptions", question)
    shown = [
        {**asdict(e), "traceback": e.traceback[-MAX_STACK:]}
        for e in reversed(answer.exceptions)
        if instance in ("", e.instance)
    ]
    return tracked.respond(shown)
