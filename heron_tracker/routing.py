"""Route registration, the topology of a request, and query parameters shared by several routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from functools import cached_property
from typing import Annotated, Any, TypeVar, cast

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from heron_runtime.model.containers import LAST_STANDBY
from heron_tracker.core.metrics_view import LONGEST_RANGE
from heron_tracker.responses import BARE, FAILURES, EnvelopeChoice, success_response
from heron_tracker.tracker import TrackedTopology, Tracker

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Response]])
TAGGED = {304: {"description": "Unchanged since the version in `If-None-Match`."}}


def tracker_of(request: Request) -> Tracker:
    """Return the tracker of a request."""
    return cast(Tracker, request.app.state.tracker)


class TrackedRequest:
    """Request about one topology. Using ``topology`` raises NotFound and Unavailable."""

    def __init__(self, request: Request, named: tuple[str, str, str, str | None]) -> None:
        self._request = request
        self._named = named
        self.tracker = tracker_of(request)

    @cached_property
    def topology(self) -> TrackedTopology:
        """Return the topology. It is looked up on first use, after the other arguments are checked."""
        return self.tracker.find(*self._named)

    async def ask_master(self, method: str, question: Hashable) -> Any:
        """Ask the topology master."""
        return await self.tracker.processes.ask_master(self.topology.record, method, question)

    async def ask_container(self, number: int, method: str, question: Hashable) -> Any:
        """Ask the ``heron_container`` of a container."""
        return await self.tracker.processes.ask_container(self.topology.record, number, method, question)

    def respond(self, result: Any, *, tagged: bool = False) -> Response:
        """Return a successful response, marked if the state is stale."""
        return success_response(self._request, result, stale=self.topology.stale, tagged=tagged)


async def _tracked(
    request: Request, cluster: Cluster, environ: Environ, topology: Topology, role: Role = None
) -> TrackedRequest:
    return TrackedRequest(request, (cluster, environ, topology, role))


Tracked = Annotated[TrackedRequest, Depends(_tracked)]


async def _envelope(envelope: EnvelopeChoice = True) -> bool:
    return envelope


def get(router: APIRouter, path: str, *older: str, deprecated: bool = False) -> Callable[[Handler], Handler]:
    """Register a handler for GET at ``path``, and at ``older`` paths, which are documented as deprecated."""

    def register(handler: Handler) -> Handler:
        text = (handler.__doc__ or "").strip()
        options: dict[str, Any] = {
            "response_model": None,
            "response_class": Response,
            "summary": text.split(".")[0].split(":")[0],
            "description": text,
            "responses": {200: BARE, 304: TAGGED[304], **FAILURES},
            "dependencies": [Depends(_envelope)],
        }
        name = handler.__name__
        router.add_api_route(path, handler, methods=["GET"], deprecated=deprecated, name=name, **options)
        for number, old in enumerate(older, 1):
            router.add_api_route(old, handler, methods=["GET"], deprecated=True, name=f"{name}_{number}", **options)
        return handler

    return register


MAX_NAME = 256
MAX_LIST = 200
MAX_TIME = 4_102_444_800  # the year 2100

Text = Annotated[str, Query(max_length=MAX_NAME)]
Cluster = Annotated[str, Query(description="name of the cluster, see /clusters", min_length=1, max_length=MAX_NAME)]
Environ = Annotated[str, Query(description="environment", min_length=1, max_length=MAX_NAME)]
Topology = Annotated[str, Query(description="name of the topology", min_length=1, max_length=MAX_NAME)]
Role = Annotated[str | None, Query(description="role; optional", max_length=MAX_NAME)]
Component = Annotated[
    str, Query(description="component, __stmgr__, __tmanager__, …; * for all", min_length=1, max_length=MAX_NAME)
]
Instance = Annotated[str, Query(description="instance, such as container_1_word_3", min_length=1, max_length=MAX_NAME)]


def _repeated(alias: str, description: str) -> Any:
    return Query(alias=alias, description=f"{description}; may be repeated", max_length=MAX_LIST, default_factory=list)


Clusters = Annotated[list[Text], _repeated("cluster", "only these")]
Environs = Annotated[list[Text], _repeated("environ", "only these")]
Topologies = Annotated[list[Text], _repeated("topology", "only these; requires cluster and environ")]
Instances = Annotated[list[Text], _repeated("instance", "only these")]
MetricNames = Annotated[list[Text], _repeated("metricname", "Heron names, with or without key")]
Interval = Annotated[int, Query(description="length in seconds; -1: since the start", ge=-1, le=LONGEST_RANGE)]
Time = Annotated[int, Query(description="seconds since 1970, UTC", ge=0, le=MAX_TIME)]
Limit = Annotated[int, Query(description="maximum number of results", ge=1, le=1000)]
Cursor = Annotated[str | None, Query(description="`next` of the previous page", max_length=2048)]
Container = Annotated[int, Query(description="number of the container", ge=0, le=LAST_STANDBY)]
FilePath = Annotated[str, Query(description="path relative to the container's log folder", max_length=1024)]


def requested_metrics(metricname: list[str]) -> tuple[str, ...]:
    """Return the metric names for a topology master. A name without key may end in a slash."""
    return tuple(bare for name in metricname if (bare := name.rstrip("/")))
