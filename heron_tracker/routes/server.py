"""Routes about the tracker itself: health, metrics, Prometheus targets, events, web page and documentation."""

from __future__ import annotations

from importlib import resources
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from heron_control.web.docs_page import docs_page
from heron_runtime.failures import NotFound
from heron_tracker.core.heron_records import prometheus_targets
from heron_tracker.events import ChangeFilter, TooManyListeners
from heron_tracker.responses import error_response, plain_json
from heron_tracker.routing import Clusters, Environs, Topologies, tracker_of

router = APIRouter(tags=["tracker"])
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
DOCS_HEAD = (
    '<meta name="color-scheme" content="light dark"><link rel="icon" href="/static/heron.svg" type="image/svg+xml">'
    '<link rel="stylesheet" href="/static/style.css">'
)
DOCS_TOP = (
    '<header class="top"><a class="brand" href="/"><img src="/static/heron.svg" alt="" width="26" height="26">'
    "<span>Heron</span></a></header>"
)
_Responses = dict[int | str, dict[str, Any]]
_TEXT: _Responses = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
_JSON: _Responses = {200: {"content": {"application/json": {"schema": {}}}}}


@router.get("/healthz", response_class=PlainTextResponse, responses=_TEXT, summary="Check liveness")
@router.get("/health", response_class=PlainTextResponse, include_in_schema=False)
async def healthz() -> Response:
    """Return `ok` while the process responds."""
    return PlainTextResponse("ok")


@router.get(
    "/readyz",
    response_class=Response,
    responses={**_JSON, 503: {"description": "A cluster has not been read yet."}},
    summary="Check readiness",
)
async def readyz(request: Request) -> Response:
    """Return whether each cluster was read. If its store fails later, its last state is served as `stale`."""
    states = [watch.state for watch in tracker_of(request).watches.values()]
    clusters = {s.name: {"stale": s.stale, "error": s.error, "topologies": len(s.topologies)} for s in states}
    ready = all(state.read_at for state in states)
    response = plain_json({"ready": ready, "clusters": clusters})
    response.status_code = 200 if ready else 503
    return response


@router.get("/metrics", response_class=PlainTextResponse, responses=_TEXT, summary="Get metrics of the tracker")
async def metrics(request: Request) -> Response:
    """Return metrics in the text format of Prometheus."""
    return Response(tracker_of(request).metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get(
    "/prometheus/targets",
    response_class=Response,
    responses={**_JSON, 404: {"description": "The cluster does not exist."}, 503: {"description": "Not read yet."}},
    summary="List targets for Prometheus' http_sd_config",
)
async def targets(request: Request, cluster: Clusters, environ: Environs) -> Response:
    """Return the address of each container's metrics manager, as stored by the container."""
    items = tracker_of(request).topologies(cluster, environ)
    entries = [target for item in items for target in prometheus_targets(item.cluster, item.record)]
    return plain_json(entries)


@router.get(
    "/events",
    response_class=Response,
    responses={
        200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
        503: {"description": "Too many streams are open."},
    },
    summary="Stream changes as server-sent events",
)
async def events(request: Request, cluster: Clusters, environ: Environs, topology: Topologies) -> Response:
    """Stream events `topology` (`{cluster, topology, change}`: added, changed, removed) and `cluster` (stale, back)."""
    tracker = tracker_of(request)

    changes = ChangeFilter(frozenset(cluster), frozenset(environ), frozenset(topology))
    try:
        return tracker.events.stream(changes, request.client.host if request.client else "")
    except TooManyListeners as error:
        return error_response(request, 503, error.message, {"retry-after": "30"})


def load_static() -> dict[str, tuple[bytes, str]]:
    """Read all files of the web page: path → content and type. No other file can be requested."""
    files: dict[str, tuple[bytes, str]] = {}
    folders = [("", resources.files("heron_tracker") / "static")]
    while folders:
        prefix, folder = folders.pop()
        for entry in folder.iterdir():
            name = f"{prefix}{entry.name}"
            kind = TYPES.get("." + name.rpartition(".")[2])
            if entry.is_dir():
                folders.append((f"{name}/", entry))
            elif kind is not None:
                files[name] = (entry.read_bytes(), kind)
    return files


STATIC = load_static()


@router.get("/", include_in_schema=False)
async def page() -> Response:
    """Serve the web page."""
    return _static("index.html")


@router.get("/docs", include_in_schema=False)
async def documentation(request: Request) -> Response:
    """Serve the documentation page."""
    return HTMLResponse(docs_page(request.app.openapi(), DOCS_HEAD, DOCS_TOP))


@router.get("/static/{path:path}", include_in_schema=False)
async def static(path: str) -> Response:
    """Serve a file of the web page."""
    return _static(path)


def _static(path: str) -> Response:
    known = STATIC.get(path)
    if known is None:
        raise NotFound("file not found")
    return Response(known[0], media_type=known[1], headers={"cache-control": "no-cache"})
