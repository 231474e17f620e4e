"""ASGI application of the API server: routes, error responses, request limits and lifespan."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from fastapi import FastAPI

from heron_apiserver.api_server import ApiServer
from heron_apiserver.responses import encode_error, install_error_handlers
from heron_apiserver.routes import packages, server, submit, tokens, topologies
from heron_control.web.guard import BodyBounds, Guard
from heronry.version import VERSION

DESCRIPTION = (
    "Accepts topologies, runs them and reports on them. All paths except those about the API server itself require a "
    "bearer token in the Authorization header. Errors are JSON with a message and often a cure."
)
SUBMIT_PATH = "/api/v1/topologies"
SMALL_BODY_BYTES = 64 * 1024
SMALL_BODY_SECONDS = 30.0
FORM_BYTES = 8 << 20  # submit request without the package


def make_app(api: ApiServer, hosts: Iterable[str] = ()) -> FastAPI:
    """Return the application of an API server.

    Args:
        api: resources of the server.
        hosts: host names that requests may use besides localhost.
    """

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await api.start()
        yield
        await api.stop()

    app = FastAPI(
        title="Heronry API server", version=VERSION, description=DESCRIPTION, lifespan=life,
        docs_url=None, redoc_url=None, openapi_url="/openapi.json", redirect_slashes=False,
    )  # fmt: skip
    app.state.api = api
    for module in (submit, topologies, packages, tokens, server):
        app.include_router(module.router)
    install_error_handlers(app)

    bounds = api.upload_limits

    def bounds_of(method: str, path: str) -> tuple[int, float]:
        if (method, path) == ("POST", SUBMIT_PATH):
            return bounds.package_bytes + FORM_BYTES, bounds.upload_seconds
        return SMALL_BODY_BYTES, min(SMALL_BODY_SECONDS, bounds.upload_seconds)

    app.add_middleware(BodyBounds, bounds=bounds_of, failure=encode_error, idle_seconds=bounds.idle_seconds)
    app.add_middleware(
        Guard, hosts=tuple(hosts), who="this API server", failure=encode_error,
        observe=api.metrics.request,
    )  # fmt: skip
    return app
