"""Paths about one topology: to change it, and to look at it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from heron_apiserver.core.access import Right
from heron_apiserver.shell.replies import failures
from heron_apiserver.shell.routing import PLACE, Cluster, Environ, Name, RoleName, Route, api_of, check_names, needs
from heron_control.inspection.inspector import SINCE_THE_START, LogReader, check_container, logged_processes
from heron_control.inspection.status_document import to_document
from heron_runtime.failures import NotFound
from heron_runtime.model.record import TopologyRecord
from heron_runtime.model.topology import TopologyState

router = APIRouter(prefix="/api/v1", tags=["topologies"], route_class=Route)
RESTART_SECONDS = 120.0
MAX_PART = 1 << 20
MAX_OFFSET = 1 << 53
OFFSET_HEADER, SIZE_HEADER = "heronry-offset", "heronry-size"


class Message(BaseModel):
    """What was done, in words."""

    message: str


class Killed(Message):
    """What was done; and where the logs are, on the api server's machine."""

    logs: str = ""


class Restarted(Message):
    """What was done, and to which containers."""

    containers: list[int]


class Row(BaseModel):
    """A topology in a list."""

    cluster: str
    role: str
    environ: str
    topology: str
    state: str
    containers: int | None
    tasks: int | None
    submitted_at: str | None


class LogProcess(BaseModel):
    """Who writes a log: `process`.log in its container."""

    process: str
    component: str
    container: int


class LogList(BaseModel):
    """Everyone who writes a log, and the names of the components."""

    processes: list[LogProcess]
    components: list[str]


def _find(request: Request, cluster: str, role: str, environ: str, name: str) -> TopologyRecord:
    check_names(request, cluster, role, environ, name)
    return api_of(request).service.inspector.find(name, role, environ)


@router.get(
    "/topologies", response_model=list[Row], summary="List topologies", responses=failures(401),
    dependencies=[needs(Right.LOOK)],
)  # fmt: skip
def list_topologies(
    request: Request,
    role: Annotated[str | None, Query(description="only of this role", max_length=128)] = None,
    environ: Annotated[str | None, Query(description="only of this environment", max_length=128)] = None,
) -> Any:
    """With the state of each, for which its processes are asked."""
    return api_of(request).service.inspector.rows(lambda r, e: role in (None, r) and environ in (None, e))


@router.delete(
    PLACE, response_model=Killed, summary="Kill a topology", responses=failures(401, 404),
    dependencies=[needs(Right.CHANGE)],
)  # fmt: skip
def kill(
    request: Request, cluster: Cluster, role: RoleName, environ: Environ, name: Name,
    keep_logs: Annotated[bool, Query(description="leave the log files, where the api server has them")] = False,
) -> Any:  # fmt: skip
    """Answers when nothing of it runs. A kill that was interrupted is finished; a second one is 404."""
    check_names(request, cluster, role, environ, name)
    logs = api_of(request).service.submissions.kill(name, role, environ, keep_logs=keep_logs)
    return Killed(message=f"Successfully kill topology: {name}", logs=logs)


def _set_state(request: Request, state: TopologyState, cluster: str, role: str, environ: str, name: str) -> Message:
    record = _find(request, cluster, role, environ, name)
    api_of(request).service.inspector.set_state(record, state)
    verb = "activate" if state is TopologyState.RUNNING else "deactivate"
    return Message(message=f"Successfully {verb} topology: {name}")


@router.post(
    PLACE + "/activate", response_model=Message, summary="Let the spouts emit", responses=failures(401, 404),
    dependencies=[needs(Right.CHANGE)],
)  # fmt: skip
def activate(request: Request, cluster: Cluster, role: RoleName, environ: Environ, name: Name) -> Any:
    """Answers when the topology master has decided so."""
    return _set_state(request, TopologyState.RUNNING, cluster, role, environ, name)


@router.post(
    PLACE + "/deactivate", response_model=Message, summary="Pause the spouts", responses=failures(401, 404),
    dependencies=[needs(Right.CHANGE)],
)  # fmt: skip
def deactivate(request: Request, cluster: Cluster, role: RoleName, environ: Environ, name: Name) -> Any:
    """Answers when the topology master has decided so. What was emitted is processed."""
    return _set_state(request, TopologyState.PAUSED, cluster, role, environ, name)


@router.post(
    PLACE + "/restart", response_model=Restarted, summary="Restart a container, or all",
    responses=failures(401, 404), dependencies=[needs(Right.CHANGE)],
)  # fmt: skip
def restart(
    request: Request, cluster: Cluster, role: RoleName, environ: Environ, name: Name,
    container_id: Annotated[int, Form(description="its number; -1 for all", ge=-1, le=65_535)] = -1,
) -> Any:  # fmt: skip
    """Answers when they run again."""
    record = _find(request, cluster, role, environ, name)
    done = api_of(request).service.submissions.restart(record, container_id, RESTART_SECONDS)
    return Restarted(message=f"Successfully restart topology: {name}", containers=list(done))


@router.get(
    PLACE + "/status", response_model=dict[str, Any], summary="Containers and processes",
    responses=failures(401, 404), dependencies=[needs(Right.LOOK)],
)  # fmt: skip
def status(request: Request, cluster: Cluster, role: RoleName, environ: Environ, name: Name) -> Any:
    """What all of its processes say, as `heron status -o json` shows it; and causes of backpressure, exceptions, last
    lines of logs."""
    record = _find(request, cluster, role, environ, name)
    return to_document(api_of(request).service.inspector.status(record, exceptions=True))


@router.get(
    PLACE + "/metrics", response_model=dict[str, Any], summary="What flows", responses=failures(401, 404),
    dependencies=[needs(Right.LOOK)],
)  # fmt: skip
def metrics(
    request: Request, cluster: Cluster, role: RoleName, environ: Environ, name: Name,
    component: Annotated[str, Query(description="of this component only", max_length=128)] = "",
    interval: Annotated[float, Query(description="of the last seconds; -1: since the start", ge=-1, le=86_400)] = (
        SINCE_THE_START
    ),
    metric: Annotated[list[str] | None, Query(description="Heron names; may be repeated", max_length=200)] = None,
) -> Any:  # fmt: skip
    """As `heron metrics -o json` shows it, and `flow`: a row for each component."""
    record = _find(request, cluster, role, environ, name)
    return api_of(request).service.inspector.metrics(record, component, interval, metric or ())


@router.get(
    PLACE + "/logs", response_model=LogList, summary="Who writes a log", responses=failures(401, 404),
    dependencies=[needs(Right.LOOK)],
)  # fmt: skip
def logs(request: Request, cluster: Cluster, role: RoleName, environ: Environ, name: Name) -> Any:
    """Read them at `…/containers/{container}/file?path={process}.log`."""
    record = _find(request, cluster, role, environ, name)
    found = [LogProcess(process=p.process, component=p.component, container=p.container)
             for p in logged_processes(record)]  # fmt: skip
    return LogList(processes=found, components=[spec.name for spec in record.definition.components])


@router.get(
    PLACE + "/containers/{container}/file", response_class=Response, summary="A part of a log file",
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
               **failures(401, 404)},
    dependencies=[needs(Right.LOOK)],
)  # fmt: skip
def log_file(
    request: Request, cluster: Cluster, role: RoleName, environ: Environ, name: Name, container: int,
    path: Annotated[str, Query(description="below the log folder", min_length=1, max_length=1024)],
    offset: Annotated[int, Query(description="in bytes; negative: from the end", ge=-MAX_OFFSET, le=MAX_OFFSET)] = 0,
    length: Annotated[int, Query(description="in bytes", ge=0, le=MAX_PART)] = MAX_PART,
) -> Response:  # fmt: skip
    """The bytes; where they begin and how large the file is stand in the headers `heronry-offset` and
    `heronry-size`."""
    record = _find(request, cluster, role, environ, name)
    check_container(record, container)
    try:
        part = LogReader(record).read(container, path, offset, length)
    except FileNotFoundError:
        raise NotFound(f"there is no log {path[:200]!r} in container {container}") from None
    headers = {OFFSET_HEADER: str(part.offset), SIZE_HEADER: str(part.size_bytes)}
    return Response(part.data, media_type="application/octet-stream", headers=headers)
