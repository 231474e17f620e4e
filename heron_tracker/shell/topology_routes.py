"""Heron's paths about what stands in the state store: topologies, states, plans, locations, machines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from heron_control.inspection.questions import NoAnswer
from heron_runtime.failures import NotFound, UsageError
from heron_runtime.wire.master import MasterStatus, StatusRequest
from heron_tracker.core import records
from heron_tracker.core.logical import logical_plan
from heron_tracker.core.paging import page
from heron_tracker.core.physical import packing_plan
from heron_tracker.shell.parameters import Clusters, Cursor, Environs, Limit, Role, Topologies
from heron_tracker.shell.replies import reply
from heron_tracker.shell.routing import Asked, get, tracker_of
from heron_tracker.shell.tracker import Found

router = APIRouter(tags=["topologies"])
DEFAULT_LIMIT = 1000


@get(router, "/clusters")
async def clusters(request: Request) -> Response:
    """Names of the clusters this tracker follows."""
    return reply(request, list(tracker_of(request).watches))


@get(router, "/machines")
async def machines(request: Request, cluster: Clusters, environ: Environs, topology: Topologies) -> Response:
    """Cluster → environment → topology → the machines it is on."""
    if topology and not (cluster and environ):
        raise UsageError("topology: needs cluster and environ, too")
    tracker = tracker_of(request)
    found: dict[str, dict[str, dict[str, list[str]]]] = {name: {} for name in (cluster or tracker.watches)}
    for item in tracker.topologies(cluster, environ):
        name, place = item.record.definition.name, item.record.execution.environ
        if not topology or name in topology:
            found[item.cluster].setdefault(place, {})[name] = records.hosts(item.record)
    return reply(request, found, stale=tracker.stale(cluster))


class _Listed:
    """The topologies that a list asks for, a page of them."""

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

    def reply(self, tell: Callable[[dict[str, Any], Found], None]) -> Response:
        """Cluster → what ``tell`` adds to it for each topology; the other pages are in `Link`. Raises BadCursor."""
        tracker = tracker_of(self._request)
        keyed = [(f.key, f) for f in tracker.topologies(self._cluster, *self._of)]
        chosen = page(keyed, *self._page)
        found: dict[str, dict[str, Any]] = {name: {} for name in (self._cluster or tracker.watches)}
        for item in chosen.items:
            tell(found[item.cluster], item)
        response = reply(self._request, found, stale=tracker.stale(self._cluster))
        response.headers["x-total-count"] = str(chosen.total)
        if chosen.next:
            url = self._request.url.include_query_params(cursor=chosen.next)
            response.headers["link"] = f'<{url.path}?{url.query}>; rel="next"'
        return response


Listed = Annotated[_Listed, Depends()]


@get(router, "/topologies")
async def topologies(listed: Listed) -> Response:
    """Cluster → role → environment → names. Pages by `Link` and `X-Total-Count`."""

    def tell(found: dict[str, Any], item: Found) -> None:
        _, role, environ, topology = item.key
        found.setdefault(role, {}).setdefault(environ, []).append(topology)

    return listed.reply(tell)


@get(router, "/topologies/states")
async def states(listed: Listed) -> Response:
    """Cluster → environment → name → execution state. Pages as `/topologies`."""

    def tell(found: dict[str, Any], item: Found) -> None:
        _, _, environ, topology = item.key
        found.setdefault(environ, {})[topology] = records.execution_state(item.cluster, item.record)

    return listed.reply(tell)


@get(router, "/topologies/info")
async def info(asked: Asked) -> Response:
    """Everything about a topology at once. Parts that do not exist at this moment are null."""
    status: MasterStatus | None = None
    with contextlib.suppress(NoAnswer):
        status = await asked.master("Status", StatusRequest())
    return asked.reply(records.info(asked.found.cluster, asked.found.record, status), tagged=True)


@get(router, "/topologies/config")
async def config(asked: Asked) -> Response:
    """The topology's configuration; values that look like secrets are hidden."""
    return asked.reply(records.config(asked.found.record), tagged=True)


@get(router, "/topologies/logicalplan")
async def logical(asked: Asked) -> Response:
    """The logical plan: spouts, bolts, their streams."""
    return asked.reply(logical_plan(asked.found.record.definition), tagged=True)


@get(router, "/topologies/physicalplan")
async def physical(asked: Asked) -> Response:
    """The physical plan: instances, containers, where each stream manager is."""
    plan = records.plan_of(asked.found.cluster, asked.found.record)
    if plan is None:
        raise NotFound(f"{asked.found.name} has no physical plan yet: not all of its stream managers have registered")
    return asked.reply(plan, tagged=True)


@get(router, "/topologies/packingplan")
async def packing(asked: Asked) -> Response:
    """The packing plan: which task is in which container, and what it needs."""
    plan = packing_plan(asked.found.record.definition, asked.found.record.packing)
    return asked.reply(plan, tagged=True)


@get(router, "/topologies/executionstate", deprecated=True)
async def execution_state(asked: Asked) -> Response:
    """Metadata and state in one word."""
    return asked.reply(records.execution_state(asked.found.cluster, asked.found.record))


@get(router, "/topologies/metadata")
async def metadata(asked: Asked) -> Response:
    """Who submitted it, when, with which release."""
    return asked.reply(records.metadata(asked.found.cluster, asked.found.record), tagged=True)


@get(router, "/topologies/schedulerlocation")
async def scheduler_location(asked: Asked) -> Response:
    """Where the topology's scheduler listens."""
    location = records.scheduler_location(asked.found.record)
    if location is None:
        raise NotFound(f"{asked.found.name} has no scheduler at this moment")
    return asked.reply(location)


@get(router, "/topologies/runtimestate")
async def runtime_state(asked: Asked) -> Response:
    """Which parts are there, and which stream managers are registered at the topology master."""
    status = await asked.master("Status", StatusRequest())
    return asked.reply(records.runtime_state(asked.found.record, status))
