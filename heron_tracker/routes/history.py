"""Routes about the history of topologies, including killed ones: read from files by DuckDB.

No process is asked, so these routes do not depend on running topologies. A submission is looked up among the
existing ones, never at a path built from the request. Answers are limited
(``heron_control.history.reading.MAX_POINTS``) and computed in the query thread.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from heron_control.history.reading import Events, History, Point, Question, newest_first
from heron_runtime.failures import NotFound, UsageError
from heron_runtime.history_folder import places, read_about
from heron_runtime.model.history import KINDS, LEVEL_MS, SubmissionPath
from heron_tracker.core.json_values import json_number
from heron_tracker.responses import success_response
from heron_tracker.routing import (
    MAX_TIME,
    Cluster,
    Clusters,
    Environ,
    Environs,
    Limit,
    MetricNames,
    Role,
    Text,
    Topology,
    get,
    requested_metrics,
    tracker_of,
)
from heron_tracker.tracker import Tracker

router = APIRouter(tags=["history"])
POINTS = 500  # per series, without an explicit step
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}

Id = Annotated[Text, Query(description="id of the submission; the newest if empty")]
Since = Annotated[int | None, Query(description="seconds since 1970; default: the beginning", ge=0, le=MAX_TIME)]
Until = Annotated[int | None, Query(description="seconds since 1970; default: the end", ge=0, le=MAX_TIME)]
Step = Annotated[
    int | None, Query(description="seconds per point, a multiple of 10; automatic by default", ge=10, le=366 * 86_400)
]

Kinds = Annotated[
    list[Text] | None, Query(description=f"{', '.join(KINDS)}; may be repeated; default: all", max_length=len(KINDS))
]
Offset = Annotated[int, Query(description="number of events to skip", ge=0, le=1_000_000)]


@get(router, "/topologies/history")
async def submissions(
    request: Request, cluster: Clusters, environ: Environs, role: Role = None, topology: Text = "", limit: Limit = 100
) -> Response:
    """List submissions with a history, newest first: user, time, tasks, and whether they are running."""
    tracker = tracker_of(request)
    running = _running(tracker)

    def compute() -> list[dict[str, Any]]:
        chosen = [
            place
            for place in places(tracker.history)
            if (not cluster or place.cluster in cluster)
            and (not environ or place.environ in environ)
            and role in (None, place.role)
            and topology in ("", place.topology)
        ]
        return [_shape(tracker.history, p, at, running) for p, at in newest_first(tracker.history, chosen)[:limit]]

    return success_response(request, await tracker.run_query(compute))


@get(router, "/topologies/history/metrics")
async def series(
    request: Request, cluster: Cluster, environ: Environ, topology: Topology, metricname: MetricNames,
    role: Role = None, id: Id = "", component: Text = "", instance: Text = "", starttime: Since = None,
    endtime: Until = None, step: Step = None,
) -> Response:  # fmt: skip
    """Get points over time of each component and metric, merged over instances unless one is named.

    Counters have their growth, gauges least, greatest, mean and last value, latencies count and percentiles in ms.
    """
    tracker = tracker_of(request)

    def compute() -> dict[str, Any]:
        history = History(_folder(tracker.history, (cluster, role, environ, topology, id)))
        kept = history.times() or (0, 0)
        first = kept[0] if starttime is None else starttime * 1000
        last = kept[1] if endtime is None else endtime * 1000
        if last < first:
            raise UsageError("endtime: is before starttime")
        step_ms = step * 1000 if step is not None else _step_for(last - first)
        asked = Question(
            first, last, step_ms, component, instance, requested_metrics(metricname), by_instance=bool(instance)
        )
        points = history.points(asked) if last > first else []
        return {
            "id": history.place.id, "starttime": first // 1000, "endtime": last // 1000, "step": step_ms // 1000,
            "series": _series(points),
        }  # fmt: skip

    return success_response(request, await tracker.run_query(compute))


@get(router, "/topologies/history/events")
async def events(
    request: Request, cluster: Cluster, environ: Environ, topology: Topology, role: Role = None, id: Id = "",
    kind: Kinds = None, starttime: Since = None, endtime: Until = None, limit: Limit = 100, offset: Offset = 0,
) -> Response:  # fmt: skip
    """List events, newest first; times in seconds since 1970.

    Exceptions of user code, plan changes, backpressure on spouts with its causes, checkpoints, restores, and audited
    requests. `count`: number of merged events, of which `time` is the last. `detail`: the traceback of an exception,
    otherwise JSON.
    """
    tracker = tracker_of(request)

    def compute() -> list[dict[str, Any]]:
        history = History(_folder(tracker.history, (cluster, role, environ, topology, id)))
        first, last = (None if at is None else at * 1000 for at in (starttime, endtime))
        asked = Events(frozenset(kind or ()), first, last, limit, offset)
        return [
            {
                "time": e.time_ms / 1000, "kind": e.kind, "container": e.container, "component": e.component or None,
                "instance": e.instance or None, "count": e.count, "text": e.text, "detail": e.detail or None,
            }
            for e in history.events(asked)
        ]  # fmt: skip

    return success_response(request, await tracker.run_query(compute))


def _running(tracker: Tracker) -> frozenset[tuple[str, str]]:
    return frozenset(
        (name, record.definition.id) for name, w in tracker.watches.items() for record in w.state.topologies.values()
    )


def _shape(
    root: Path, place: SubmissionPath, submitted_at: float, running: frozenset[tuple[str, str]]
) -> dict[str, Any]:
    about = read_about(root / place.path)
    return {
        "cluster": place.cluster, "role": place.role, "environ": place.environ, "topology": place.topology,
        "id": place.id, "submitted_at": submitted_at or None, "running": (place.cluster, place.id) in running,
        "containers": about.containers if about is not None else None,
        "components": {part.name: part.parallelism for part in about.parts} if about is not None else {},
    }  # fmt: skip


def _folder(root: Path, named: tuple[str, str | None, str, str, str]) -> Path:
    """Return the folder of a submission. Raises NotFound."""
    cluster, role, environ, topology, id_ = named
    matching = [
        place
        for place in places(root)
        if (place.cluster, place.environ, place.topology) == (cluster, environ, topology)
        and role in (None, place.role)
        and id_ in ("", place.id)
    ]
    if not matching:
        raise NotFound(f"no history of {topology!r} in {cluster}; set heron.history.enabled=true to keep one")
    return root / newest_first(root, matching)[0][0].path


def _step_for(span_ms: int) -> int:
    return next((ms for ms in LEVEL_MS.values() if span_ms / ms <= POINTS), LEVEL_MS["1d"])


def _series(points: list[Point]) -> list[dict[str, Any]]:
    by_series: dict[tuple[str, str, str, str], list[dict[str, Any]]] = {}
    for point in points:
        by_series.setdefault(point.series, []).append({"time": point.start_ms // 1000, **_value(point)})
    return [
        {"component": c, "instance": i or None, "metric": m, "kind": k, "points": shown}
        for (c, i, m, k), shown in sorted(by_series.items())
    ]


def _number(value: float | None) -> int | float | None:
    return None if value is None else json_number(value)


def _value(point: Point) -> dict[str, Any]:
    kind = point.series[3]
    if kind == "counter":
        return {"total": _number(point.total)}
    if kind == "gauge":
        mean = point.total / point.count if point.count else None
        return {
            name: _number(v)
            for name, v in (("low", point.low), ("high", point.high), ("mean", mean), ("last", point.last))
        }
    quantiles = point.sketch.quantiles(QUANTILES.values()) if point.sketch is not None else [None] * len(QUANTILES)
    return {"count": _number(point.count), **{n: _number(v) for n, v in zip(QUANTILES, quantiles, strict=True)}}
