"""Routes about the API server itself: versions, caller, health, metrics and documentation."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from heron_apiserver.access import Caller, Permission
from heron_apiserver.responses import documented_errors
from heron_apiserver.routes.tokens import iso_time
from heron_apiserver.routing import AuthorizedRoute, api_server_of, requires
from heron_control.web.docs_page import docs_page
from heronry.version import VERSION

router = APIRouter(tags=["api server"], route_class=AuthorizedRoute)
_TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}


class Runs(BaseModel):
    """Interpreter that runs the topologies and that packages must fit."""

    python: str
    implementation: str
    system: str
    machine: str
    libc: str


class Version(BaseModel):
    """Versions and limits of the server."""

    heronry: str
    api: str = Field(description="version of the paths")
    cluster: str
    scheduler: str
    runs: Runs
    max_package_bytes: int


class WhoAmI(BaseModel):
    """Properties of the caller's token."""

    role: str
    cluster: str
    token: str = Field(description="name of the token")
    expires_at: str | None = Field(description="ISO 8601; null: no expiry")


class Ready(BaseModel):
    """Readiness for changes."""

    ready: bool
    trouble: str
    topologies: int


@router.get("/api/v1/version", response_model=Version, summary="Get versions", responses=documented_errors())
async def version(request: Request) -> Any:
    """Return versions and limits. No token required."""
    api = api_server_of(request)
    target = api.target
    return Version(
        heronry=VERSION, api="v1", cluster=api.topologies.config.cluster, scheduler=api.scheduler_name,
        runs=Runs(python=target.python, implementation=target.implementation, system=target.system,
                  machine=target.machine, libc=target.libc),
        max_package_bytes=api.upload_limits.package_bytes,
    )  # fmt: skip


@router.get(
    "/api/v1/whoami", response_model=WhoAmI, summary="Get token properties", responses=documented_errors(401),
    dependencies=[requires(Permission.LOOK)],
)  # fmt: skip
async def who_am_i(request: Request) -> Any:
    """Return role and expiry of any token. Proofs of topologies are not accepted."""
    caller: Caller = request.state.caller
    return WhoAmI(
        role=str(caller.role), cluster=api_server_of(request).topologies.config.cluster, token=caller.token,
        expires_at=iso_time(caller.expires),
    )  # fmt: skip


@router.get(
    "/healthz",
    response_class=PlainTextResponse,
    responses={**_TEXT, **documented_errors()},
    summary="Check liveness",
)
async def healthz() -> Response:
    """Return `ok` while the process responds."""
    return PlainTextResponse("ok")


@router.get(
    "/leader", response_class=PlainTextResponse, responses={**_TEXT, **documented_errors()}, summary="Check leadership"
)
async def leader() -> Response:
    """Return `ok` on the API server that leads and 503 on the others, for load balancers."""
    return PlainTextResponse("ok")


@router.get(
    "/readyz", response_model=Ready, summary="Check readiness",
    responses={**documented_errors(), 503: {"model": Ready, "description": "Not ready."}},
)  # fmt: skip
async def readyz(request: Request) -> Any:
    """Return whether changes are accepted: after recovery, and while the state store answers."""
    api = api_server_of(request)
    readiness = Ready(
        ready=api.maintenance.ready, trouble=api.maintenance.trouble, topologies=len(api.topologies.launches)
    )
    return JSONResponse(readiness.model_dump(), 200 if api.maintenance.ready else 503)


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={**_TEXT, **documented_errors()},
    summary="Get metrics of the API server",
)
async def metrics(request: Request) -> Response:
    """Return metrics in the text format of Prometheus."""
    return Response(api_server_of(request).metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/docs", response_class=HTMLResponse, include_in_schema=False)
async def docs(request: Request) -> Response:
    """Serve the documentation page."""
    return HTMLResponse(docs_page(request.app.openapi()))
