"""How a function becomes a path: one decorator for all routes, so that all are documented and fail alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from functools import cached_property
from typing import Annotated, Any, TypeVar, cast

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from heron_tracker.shell.parameters import Cluster, Environ, Role, Topology
from heron_tracker.shell.replies import BARE, FAILURES, EnvelopeChoice, reply
from heron_tracker.shell.tracker import Found, Tracker

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Response]])
TAGGED = {304: {"description": "As `If-None-Match` says."}}


def tracker_of(request: Request) -> Tracker:
    """The tracker that serves this request."""
    return cast(Tracker, request.app.state.tracker)


class TopologyRequest:
    """A request about one topology. What uses ``found`` raises NotFound and Unavailable."""

    def __init__(self, request: Request, named: tuple[str, str, str, str | None]) -> None:
        self._request = request
        self._named = named
        self.tracker = tracker_of(request)

    @cached_property
    def found(self) -> Found:
        """The topology. It is looked up when first used, so that arguments are checked first."""
        return self.tracker.find(*self._named)

    async def master(self, method: str, question: Hashable) -> Any:
        """What its topology master answers."""
        return await self.tracker.asker.master(self.found.record, method, question)

    async def container(self, number: int, method: str, question: Hashable) -> Any:
        """What the ``heron_container`` of this container answers."""
        return await self.tracker.asker.container(self.found.record, number, method, question)

    def reply(self, result: Any, *, tagged: bool = False) -> Response:
        """A successful answer; it says if this is the last known state."""
        return reply(self._request, result, stale=self.found.stale, tagged=tagged)


async def _asked(
    request: Request, cluster: Cluster, environ: Environ, topology: Topology, role: Role = None
) -> TopologyRequest:
    return TopologyRequest(request, (cluster, environ, topology, role))


Asked = Annotated[TopologyRequest, Depends(_asked)]


async def _envelope(envelope: EnvelopeChoice = True) -> bool:
    return envelope


def get(router: APIRouter, path: str, *older: str, deprecated: bool = False) -> Callable[[Handler], Handler]:
    """Serve GET at ``path``, and at ``older`` paths, which the documentation marks as such."""

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
