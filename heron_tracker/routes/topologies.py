"""Heron's routes about the state store: topologies, states, plans, locations and machines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from heron_control.inspection.process_requests import ProcessUnreachable
from heron_runtime.failures import NotFound, UsageError
from heron_runtime.wire.master import MasterStatus, StatusRequest
from heron_tracker.core import heron_records
from heron_tracker.core.heron_plans import logical_plan, packing_plan
from heron_tracker.core.paging import take_page
from heron_tracker.responses import success_response
from heron_tracker.routing import Clusters, Cursor, Environs, Limit, Role, Topologies, Tracked, get, tracker_of
from heron_tracker.tracker import TrackedTopology

router = APIRouter(tags=["topologies"])
DEFAULT_LIMIT = 1000


@get(router, "/clusters")
async def clusters(request: Request) -> Response:
    """List the clusters that this tracker follows."""
    return success_response(request, list(tracker_of(request).watches))


@get(router, "/machines")
async def machines(request: Request, cluster: Clusters, environ: Environs, topology: Topologies) -> Response:
    """List machines: cluster → environment → topology → host names."""
    if topology and not (cluster and environ):
        raise UsageError("topology: requires cluster and environ")
    tracker = tracker_of(request)
    by_cluster: dict[str, dict[str, dict[str, list[str]]]] = {name: {} for name in (cluster or tracker.watches)}
    for item in tracker.topologies(cluster, environ):
        name, place = item.record.definition.name, item.record.execution.environ
        if not topology or name in topology:
            by_cluster[item.cluster].setdefault(place, {})[name] = heron_records.hosts(item.record)
    return success_response(request, by_cluster, stale=tracker.stale(cluster))


class _Listed:
    """A page of the topologies that a list request selects."""

    def __init__(
        self,
        request: Request,
        cluster: Clusters,
        environ: Environs,
        role: Role = None,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> None:
        self._request, self._cluster, self._of, self._page = request, cluster, (environ, role), (limit, cursor)

    def respond(self, add: Callable[[dict[str, Any], TrackedTopology], None]) -> Response:
        """Return cluster → what ``add`` adds for each topology, and the next page in `Link`. Raises InvalidCursor."""
        tracker = tracker_of(self._request)
        keyed = [(f.key, f) for f in tracker.topologies(self._cluster, *self._of)]
        chosen = take_page(keyed, *self._page)
        by_cluster: dict[str, dict[str, Any]] = {name: {} for name in (self._cluster or tracker.watches)}
        for item in chosen.items:
            add(by_cluster[item.cluster], item)
        response = success_response(self._request, by_cluster, stale=tracker.stale(self._cluster))
        response.headers["x-total-count"] = str(chosen.total)
        if chosen.next:
            url = self._request.url.include_query_params(cursor=chosen.next)
            response.headers["link"] = f'<{url.path}?{url.query}>; rel="next"'
        return response


Listed = Annotated[_Listed, Depends()]


@get(router, "/topologies")
async def topologies(listed: Listed) -> Response:
    """List topologies: cluster → role → environment → names. Pages by `Link` and `X-Total-Count`."""

    def add(part: dict[str, Any], item: TrackedTopology) -> None:
        _, role, environ, topology = item.key
        part.setdefault(role, {}).setdefault(environ, []).append(topology)

    return listed.respond(add)


@get(router, "/topologies/states")
async def states(listed: Listed) -> Response:
    """List states: cluster → environment → name → execution state. Pages as `/topologies`."""

    def add(part: dict[str, Any], item: TrackedTopology) -> None:
        _, _, environ, topology = item.key
        part.setdefault(environ, {})[topology] = heron_records.execution_state(item.cluster, item.record)

    return listed.respond(add)


@get(router, "/topologies/info")
async def info(tracked: Tracked) -> Response:
    """Get everything about a topology. Missing parts are null."""
    status: MasterStatus | None = None
    with contextlib.suppress(ProcessUnreachable):
        status = await tracked.ask_master("Status", StatusRequest())
    return tracked.respond(heron_records.info(tracked.topology.cluster, tracked.topology.record, status), tagged=True)


@get(router, "/topologies/config")
async def config(tracked: Tracked) -> Response:
    """Get the configuration. Secrets are masked."""
    return tracked.respond(heron_records.config(tracked.topology.record), tagged=True)


@get(router, "/topologies/logicalplan")
async def logical(tracked: Tracked) -> Response:
    """Get the logical plan: spouts, bolts and their streams."""
    return tracked.respond(logical_plan(tracked.topology.record.definition), tagged=True)


@get(router, "/topologies/physicalplan")
async def physical(tracked: Tracked) -> Response:
    """Get the physical plan: instances, containers and locations of the stream managers."""
    plan = heron_records.optional_physical_plan(tracked.topology.cluster, tracked.topology.record)
    if plan is None:
        raise NotFound(f"{tracked.topology.name} has no physical plan yet: some stream managers have not registered")
    return tracked.respond(plan, tagged=True)


@get(router, "/topologies/packingplan")
async def packing(tracked: Tracked) -> Response:
    """Get the packing plan: container and resources of each task."""
    plan = packing_plan(tracked.topology.record.definition, tracked.topology.record.packing)
    return tracked.respond(plan, tagged=True)


@get(router, "/topologies/executionstate", deprecated=True)
async def execution_state(tracked: Tracked) -> Response:
    """Get metadata and state."""
    return tracked.respond(heron_records.execution_state(tracked.topology.cluster, tracked.topology.record))


@get(router, "/topologies/metadata")
async def metadata(tracked: Tracked) -> Response:
    """Get user, time and release of the submission."""
    return tracked.respond(heron_records.metadata(tracked.topology.cluster, tracked.topology.record), tagged=True)


@get(router, "/topologies/schedulerlocation")
async def scheduler_location(tracked: Tracked) -> Response:
    """Get the address of the topology's scheduler."""
    location = heron_records.scheduler_location(tracked.topology.record)
    if location is None:
        raise NotFound(f"{tracked.topology.name} has no scheduler at present")
    return tracked.respond(location)


@get(router, "/topologies/runtimestate")
async def runtime_state(tracked: Tracked) -> Response:
    """Get the available parts and the registered stream managers."""
    status = await tracked.ask_master("Status", StatusRequest())
    return tracked.respond(heron_records.runtime_state(tracked.topology.record, status))
