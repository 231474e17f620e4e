"""What the web page asks, below ``/api/v1``: lists and overviews in one answer each. Open to all clients."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from heron_control.inspection.questions import NoAnswer
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
from heron_tracker.core.health import HEALTH_METRICS, health
from heron_tracker.core.layout import layout
from heron_tracker.core.metrics_view import OVERVIEW_METRICS, WINDOWS
from heron_tracker.core.paging import page
from heron_tracker.core.timeline import LONGEST_RANGE, together
from heron_tracker.shell.parameters import (
    Clusters,
    Component,
    Cursor,
    Environs,
    Interval,
    Limit,
    MetricNames,
    Role,
    names_of,
)
from heron_tracker.shell.replies import reply
from heron_tracker.shell.routing import Asked, get, tracker_of
from heron_tracker.shell.tracker import Found, Tracker

router = APIRouter(prefix="/api/v1", tags=["page"])
DEFAULT_INTERVAL = 60
MAX_STACK = 4000
_USAGE = (*overview.CPU_NAMES, *overview.CPU_NAMES_US, *overview.MEMORY_NAMES)


async def _metrics(tracker: Tracker, found: Found, interval: int, names: tuple[str, ...]) -> MetricsReply | None:
    try:
        answer: MetricsReply = await tracker.asker.master(
            found.record, "Metrics", MetricsRequest("", float(interval), names)
        )
    except NoAnswer:
        return None
    return answer


async def _status(tracker: Tracker, found: Found) -> TopologyStatus:
    answers = await tracker.asker.query_all(found.record)
    return topology_status(found.record, answers, time.time())


async def _row(tracker: Tracker, found: Found, interval: int) -> dict[str, Any]:
    status, metrics = await asyncio.gather(
        _status(tracker, found), _metrics(tracker, found, interval, OVERVIEW_METRICS)
    )
    flowing = metrics_view.whole(metrics, found.components) if metrics is not None else None
    return {**overview.row(found.key, found.record, status.state, status.causes, flowing), "stale": bool(found.stale)}


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
    """The list: state, containers, tasks, rates, complete latency, failures and backpressure of each topology."""
    tracker = tracker_of(request)
    chosen = page([(f.key, f) for f in tracker.topologies(cluster, environ, role)], limit, cursor)
    listed = await asyncio.gather(*(_row(tracker, found, interval) for found in chosen.items))
    clusters = [
        {"name": s.name, "stale": s.stale, "read_at": s.read_at or None, "error": s.error or None}
        for s in (watch.state for watch in tracker.watches.values())
    ]
    shown = {"topologies": listed, "total": chosen.total, "next": chosen.next, "clusters": clusters}
    return reply(request, shown, stale=tracker.stale(cluster))


@get(router, "/topology")
async def topology(asked: Asked, interval: Interval = DEFAULT_INTERVAL) -> Response:
    """One topology: how it is, the graph with its rates, containers with their processes, backpressure."""
    tracker, found = asked.tracker, asked.found
    names = (*OVERVIEW_METRICS, *_USAGE)
    status, metrics, always = await asyncio.gather(
        _status(tracker, found),
        _metrics(tracker, found, interval, names),
        _metrics(tracker, found, -1, HEALTH_METRICS),
    )
    flowing = metrics_view.flows(metrics, found.components) if metrics is not None else None
    whole = metrics_view.whole(metrics, found.components) if metrics is not None else None
    by_instance = overview.instances(found.record, metrics)
    used = overview.usage(metrics)
    processes: dict[int, list[ProcessStatus]] = {container.id: [] for container in status.containers}
    for process in status.processes:  # the scheduler lives in no container; it is shown with the master
        processes.get(process.container, processes[MASTER_CONTAINER]).append(process)
    shown = {
        **overview.row(found.key, found.record, status.state, status.causes, whole),
        "stale": bool(found.stale),
        "master_answers": metrics is not None,
        "cause": status.cause() or None,
        "mode": status.mode,
        "put_aside": status.put_aside,
        **overview.tasks_state(status.tasks_state),
        "health": health(always, found.components),
        "graph": overview.graph(found.record, layout(found.record.definition), flowing, status.causes),
        "container_list": [
            {
                "id": container.id,
                "label": label_of(container.id),
                "host": container.host or None,
                "state": str(container.state),
                "processes": [
                    overview.process_shape(p, used.get(p.name, {}), by_instance.get(p.name, {}))
                    for p in processes[container.id]
                ],
            }
            for container in status.containers
        ],
    }
    return asked.reply(shown)


@get(router, "/topology/metrics")
async def windows(
    asked: Asked,
    component: Annotated[str, Query(max_length=256, description="its metrics, over all instances")] = "",
    instance: Annotated[str, Query(max_length=256, description="only this one's")] = "",
) -> Response:
    """Counters and latencies of a component or an instance for 10 minutes, 1 hour, 3 hours and since the start."""
    found = asked.found
    if not component:
        raise UsageError("component: is missing")
    wanted = found.component(component)
    answers: list[MetricsReply] = await asyncio.gather(
        *(asked.master("Metrics", MetricsRequest(wanted, float(window))) for window in WINDOWS)
    )
    reported = any(v.instance == instance for answer in answers for v in answer.values)
    if instance and not reported and instance not in found.instances:
        raise NotFound(f"{found.name} has no instance {instance!r} of {component}")
    shown = [
        {"interval": window, "covered": answer.interval_seconds, "metrics": metrics_view.table(answer, instance)}
        for window, answer in zip(WINDOWS, answers, strict=True)
    ]
    return asked.reply({"component": component, "instance": instance or None, "windows": shown})


@get(router, "/topology/timeline")
async def trend(
    asked: Asked,
    component: Component,
    metricname: MetricNames,
    interval: Annotated[int, Query(description="seconds back: points of 5 s up to 595, else of a minute", ge=5,
                                   le=LONGEST_RANGE)] = 3600,
    instance: Annotated[str, Query(max_length=256, description="only this one's; all together if empty")] = "",
) -> Response:  # fmt: skip
    """Points over time, of a component's instances together: growth of counters (sum), gauges (the greatest of any
    instance, and the least), mean latencies (of the slowest instance). Null where nobody reported."""
    wanted = asked.found.component(component)
    question = TimelineRequest(wanted, float(interval), names_of(metricname), ranges=True)
    answer: TimelineReply = await asked.master("Timeline", question)
    shown = {"component": component, "instance": instance or None, **together(answer, instance)}
    return asked.reply(shown)


@get(router, "/topology/exceptions")
async def exceptions(
    asked: Asked,
    component: Annotated[str, Query(max_length=256, description="of this one; of all if empty")] = "",
    instance: Annotated[str, Query(max_length=256, description="of this one")] = "",
) -> Response:
    """What user code raised, the most recent first; times in seconds since 1970."""
    question = ExceptionsRequest(asked.found.component(component or "*"))
    answer: ExceptionsReply = await asked.master("Exceptions", question)
    shown = [
        {**asdict(e), "traceback": e.traceback[-MAX_STACK:]}
        for e in reversed(answer.exceptions)
        if instance in ("", e.instance)
    ]
    return asked.reply(shown)
