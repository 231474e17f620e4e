"""Paths about the api server itself: its version and what its containers run, who one is, health, metrics, docs."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from heron_apiserver.access import Caller, Permission
from heron_apiserver.responses import failures
from heron_apiserver.routes.tokens import iso
from heron_apiserver.routing import AuthorizedRoute, api_server_of, requires
from heron_control.web.docs_page import docs_page
from heronry.version import VERSION

router = APIRouter(tags=["api server"], route_class=AuthorizedRoute)
_TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}


class Runs(BaseModel):
    """The interpreter that runs the topologies: what packages must fit."""

    python: str
    implementation: str
    system: str
    machine: str
    libc: str


class Version(BaseModel):
    """What answers here."""

    heronry: str
    api: str = Field(description="of the paths: v1")
    cluster: str
    scheduler: str
    runs: Runs
    max_package_bytes: int


class WhoAmI(BaseModel):
    """What the token gives."""

    role: str
    cluster: str
    token: str = Field(description="its name")
    expires_at: str | None = Field(description="ISO 8601; null: it holds until it is revoked")


class Ready(BaseModel):
    """Whether changes are taken."""

    ready: bool
    trouble: str
    topologies: int


@router.get("/api/v1/version", response_model=Version, summary="Versions", responses=failures())
async def version(request: Request) -> Any:
    """PermissionRequirement no token."""
    api = api_server_of(request)
    target = api.target
    return Version(
        heronry=VERSION, api="v1", cluster=api.service.config.cluster, scheduler=api.scheduler_name,
        runs=Runs(python=target.python, implementation=target.implementation, system=target.system,
                  machine=target.machine, libc=target.libc),
        max_package_bytes=api.bounds.package_bytes,
    )  # fmt: skip


@router.get(
    "/api/v1/whoami", response_model=WhoAmI, summary="What my token gives", responses=failures(401),
    dependencies=[requires(Permission.LOOK)],
)  # fmt: skip
async def who_am_i(request: Request) -> Any:
    """Any token but a topology's secret."""
    caller: Caller = request.state.caller
    return WhoAmI(
        role=str(caller.role), cluster=api_server_of(request).service.config.cluster, token=caller.token,
        expires_at=iso(caller.expires),
    )  # fmt: skip


@router.get(
    "/healthz", response_class=PlainTextResponse, responses={**_TEXT, **failures()}, summary="The process lives"
)
async def healthz() -> Response:
    """`ok` as long as the process answers at all."""
    return PlainTextResponse("ok")


@router.get("/leader", response_class=PlainTextResponse, responses={**_TEXT, **failures()}, summary="It leads")
async def leader() -> Response:
    """Of several api servers of a cluster the one that leads answers `ok`, the others 503: for balancers."""
    return PlainTextResponse("ok")


@router.get(
    "/readyz", response_model=Ready, summary="Changes are taken",
    responses={**failures(), 503: {"model": Ready, "description": "Not yet, or not at this moment."}},
)  # fmt: skip
async def readyz(request: Request) -> Any:
    """Once the state store was read and what an earlier life left is settled; not while the store is away."""
    api = api_server_of(request)
    found = Ready(ready=api.ready, trouble=api.trouble, topologies=len(api.service.launches))
    return JSONResponse(found.model_dump(), 200 if api.ready else 503)


@router.get("/metrics", response_class=PlainTextResponse, responses={**_TEXT, **failures()}, summary="Its own metrics")
async def metrics(request: Request) -> Response:
    """In the text format of Prometheus."""
    return Response(api_server_of(request).counters.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/docs", response_class=HTMLResponse, include_in_schema=False)
async def docs(request: Request) -> Response:
    """The paths, for people."""
    return HTMLResponse(docs_page(request.app.openapi()))
