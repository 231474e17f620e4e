"""How a function becomes a path: one decorator for all routes, so that all are documented and fail alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from heron_tracker.shell.replies import BARE, FAILURES, EnvelopeChoice
from heron_tracker.shell.tracker import Tracker

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Response]])
TAGGED = {304: {"description": "As `If-None-Match` says."}}


def tracker_of(request: Request) -> Tracker:
    """The tracker that serves this request."""
    return cast(Tracker, request.app.state.tracker)


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
