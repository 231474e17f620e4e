"""Heron's paths about what stands in the state store: topologies, states, plans, locations, machines."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from heron_tracker.core import records
from heron_tracker.core.logical import logical_plan
from heron_tracker.core.paging import BadCursor, page
from heron_tracker.core.physical import packing_plan
from heron_tracker.shell.asking import NoAnswer
from heron_tracker.shell.parameters import (
    Cluster,
    Clusters,
    Cursor,
    Environ,
    Environs,
    Limit,
    Role,
    Topologies,
    Topology,
)
from heron_tracker.shell.replies import BadArgument, NotFound, Unavailable, reply
from heron_tracker.shell.routing import get, tracker_of
from heron_tracker.shell.tracker import Found
from heronry.wire.master import MasterStatus, StatusRequest

router = APIRouter(tags=["topologies"])
DEFAULT_LIMIT = 1000


@get(router, "/clusters")
async def clusters(request: Request) -> Response:
    """Names of the clusters this tracker follows."""
    return reply(request, list(tracker_of(request).watches))


@get(router, "/machines")
async def machines(
    request: Request,
    cluster: Clusters,
    environ: Environs,
    topology: Topologies,
) -> Response:
    """Cluster → environment → topology → the machines it is on."""
    if topology and not (cluster and environ):
        raise BadArgument("topology: needs cluster and environ, too")
    tracker = tracker_of(request)
    found: dict[str, dict[str, dict[str, list[str]]]] = {name: {} for name in (cluster or tracker.watches)}
    for item in tracker.topologies(cluster, environ):
        name, place = item.record.definition.name, item.record.execution.environ
        if not topology or name in topology:
            found[item.cluster].setdefault(place, {})[name] = records.hosts(item.record)
    return reply(request, found, stale=tracker.stale(cluster))


def _page(request: Request, found: list[Found], limit: int, cursor: str | None) -> tuple[list[Found], dict[str, str]]:
    try:
        chosen = page([(f.key, f) for f in found], limit, cursor)
    except BadCursor as error:
        raise BadArgument(f"cursor: {error}") from None
    headers = {"x-total-count": str(chosen.total)}
    if chosen.next:
        url = request.url.include_query_params(cursor=chosen.next)
        headers["link"] = f'<{url.path}?{url.query}>; rel="next"'
    return list(chosen.items), headers


@get(router, "/topologies")
async def topologies(
    request: Request,
    cluster: Clusters,
    environ: Environs,
    role: Role = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response:
    """Cluster → role → environment → names. Pages by `Link` and `X-Total-Count`."""
    tracker = tracker_of(request)
    chosen, headers = _page(request, tracker.topologies(cluster, environ, role), limit, cursor)
    found: dict[str, dict[str, dict[str, list[str]]]] = {name: {} for name in (cluster or tracker.watches)}
    for item in chosen:
        name, own_role, place, topology = item.key
        found[name].setdefault(own_role, {}).setdefault(place, []).append(topology)
    response = reply(request, found, stale=tracker.stale(cluster))
    response.headers.update(headers)
    return response


@get(router, "/topologies/states")
async def states(
    request: Request,
    cluster: Clusters,
    environ: Environs,
    role: Role = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response:
    """Cluster → environment → name → execution state. Pages as `/topologies`."""
    tracker = tracker_of(request)
    chosen, headers = _page(request, tracker.topologies(cluster, environ, role), limit, cursor)
    found: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in (cluster or tracker.watches)}
    for item in chosen:
        name, _, place, topology = item.key
        found[name].setdefault(place, {})[topology] = records.execution_state(name, item.record)
    response = reply(request, found, stale=tracker.stale(cluster))
    response.headers.update(headers)
    return response


async def _status(request: Request, found: Found) -> MasterStatus | None:
    try:
        status: MasterStatus = await tracker_of(request).asker.master(found.record, "Status", StatusRequest())
    except NoAnswer:
        return None
    return status


@get(router, "/topologies/info")
async def info(request: Request, cluster: Cluster, environ: Environ, topology: Topology, role: Role = None) -> Response:
    """Everything about a topology at once. Parts that do not exist at this moment are null."""
    found = tracker_of(request).find(cluster, environ, topology, role)
    status = await _status(request, found)
    return reply(request, records.info(cluster, found.record, status), stale=found.stale, tagged=True)


@get(router, "/topologies/config")
async def config(
    request: Request, cluster: Cluster, environ: Environ, topology: Topology, role: Role = None
) -> Response:
    """The topology's configuration; values that look like secrets are hidden."""
    found = tracker_of(request).find(cluster, environ, topology, role)
    return reply(request, records.config(found.record), stale=found.stale, tagged=True)


@get(router, "/topologies/logicalplan")
async def logical(
    request: Request, cluster: Cluster, environ: Environ, topology: Topology, role: Role = None
) -> Response:
    """The logical plan: spouts, bolts, their streams."""
    found = tracker_of(request).find(cluster, environ, topology, role)
    return reply(request, logical_plan(found.record.definition), stale=found.stale, tagged=True)


@get(router, "/topologies/physicalplan")
async def physical(
    request: Request, cluster: Cluster, environ: Environ, topology: Topology, role: Role = None
) -> Response:
    """The physical plan: instances, containers, where each stream manager is."""
    found = tracker_of(request).find(cluster, environ, topology, role)
    plan = records.plan_of(cluster, found.record)
    if plan is None:
        raise NotFound(f"{topology} has no physical plan yet: not all of its stream managers have registered")
    return reply(request, plan, stale=found.stale, tagged=True)


@get(router, "/topologies/packingplan")
async def packing(
    request: Request, cluster: Cluster, environ: Environ, topology: Topology, role: Role = None
) -> Response:
    """The packing plan: which task is in which container, and what it needs."""
    found = tracker_of(request).find(cluster, environ, topology, role)
    plan = packing_plan(found.record.definition, found.record.packing)
    return reply(request, plan, stale=found.stale, tagged=True)


@get(router, "/topologies/executionstate", deprecated=True)
async def execution_state(
    request: Request, cluster: Cluster, environ: Environ, topology: Topology, role: Role = None
) -> Response:
    """Metadata and state in one word."""
    found = tracker_of(request).find(cluster, environ, topology, role)
    return reply(request, records.execution_state(cluster, found.record), stale=found.stale)


@get(router, "/topologies/metadata")
async def metadata(
    request: Request, cluster: Cluster, environ: Environ, topology: Topology, role: Role = None
) -> Response:
    """Who submitted it, when, with which release."""
    found = tracker_of(request).find(cluster, environ, topology, role)
    return reply(request, records.metadata(cluster, found.record), stale=found.stale, tagged=True)


@get(router, "/topologies/schedulerlocation")
async def scheduler_location(
    request: Request, cluster: Cluster, environ: Environ, topology: Topology, role: Role = None
) -> Response:
    """Where the topology's scheduler listens."""
    found = tracker_of(request).find(cluster, environ, topology, role)
    location = records.scheduler_location(found.record)
    if location is None:
        raise NotFound(f"{topology} has no scheduler at this moment")
    return reply(request, location, stale=found.stale)


@get(router, "/topologies/runtimestate")
async def runtime_state(
    request: Request, cluster: Cluster, environ: Environ, topology: Topology, role: Role = None
) -> Response:
    """Which parts are there, and which stream managers are registered at the topology master."""
    tracker = tracker_of(request)
    found = tracker.find(cluster, environ, topology, role)
    try:
        status = await tracker.asker.master(found.record, "Status", StatusRequest())
    except NoAnswer as error:
        raise Unavailable(str(error)) from None
    return reply(request, records.runtime_state(found.record, status), stale=found.stale)
