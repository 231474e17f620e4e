"""ASGI application of the tracker: routes, error responses, request checks and lifespan."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from heron_control.web.guard import Guard
from heron_tracker.login import TokenFile, TokenMiddleware
from heron_tracker.responses import Envelope, encode_error, install_error_handlers
from heron_tracker.routes import containers, history, metrics, page, server, topologies, views
from heron_tracker.tracker import Tracker
from heronry.version import VERSION

DESCRIPTION = """Read-only information about running topologies. Responses have an envelope (`status`, `message`,
`result`, `executiontime`, `version`, `tracker_version`) unless `envelope=false` requests the bare result; errors have
the same envelope. While the state store of a cluster does not answer, its last known state is served with the header
`x-heronry-stale` and a message."""


def make_app(tracker: Tracker, hosts: Iterable[str] = (), tokens: TokenFile | None = None) -> FastAPI:
    """Return the application of a tracker.

    Args:
        tracker: state shared by all requests.
        hosts: host names that requests may use besides localhost.
        tokens: tokens that give access; None allows everyone.
    """

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await tracker.start()
        yield
        await tracker.stop()

    app = FastAPI(
        title="Heronry tracker", version=VERSION, description=DESCRIPTION, lifespan=life,
        docs_url=None, redoc_url=None, openapi_url="/openapi.json",
    )  # fmt: skip
    app.state.tracker = tracker
    for module in (
        topologies, metrics, history, containers, views, page, server,
    ):  # fmt: skip
        app.include_router(module.router)
    install_error_handlers(app)

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=VERSION, description=DESCRIPTION, routes=app.routes)
            schema["components"]["schemas"]["Envelope"] = Envelope.model_json_schema()
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to extend the schema
    if tokens is not None:
        app.add_middleware(TokenMiddleware, tokens=tokens)
    app.add_middleware(
        Guard, hosts=tuple(hosts), who="this tracker", failure=encode_error, observe=tracker.metrics.request
    )
    return app
