"""Paths about one topology: to change it, and to look at it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from fastapi import Path as FromPath
from pydantic import BaseModel
from starlette.responses import Response

from heron_apiserver.core.access import Right
from heron_apiserver.core.submission import MAX_COMPONENTS
from heron_apiserver.shell.replies import failures
from heron_apiserver.shell.routing import MAX_NAME, Asked, Route, api_of, needs, serve
from heron_control.inspection.inspector import SINCE_THE_START, LogReader, check_container, logged_processes
from heron_control.inspection.status_document import to_document
from heron_control.packing.runtime_settings import read_settings
from heron_control.packing.update import UpdateRequest, plan_update, read_parallelism
from heron_runtime.failures import NotFound
from heron_runtime.model.containers import LAST_STANDBY
from heron_runtime.model.topology import TopologyState

router = APIRouter(prefix="/api/v1", tags=["topologies"], route_class=Route)
RESTART_SECONDS = 120.0
NAMED_SECONDS = 300.0  # for a checkpoint to be complete
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


class TakenCheckpoint(Message):
    """What was done; and the last complete checkpoint."""

    checkpoint: int


class NamedCheckpoint(TakenCheckpoint):
    """What was done; and where it is kept, on the api server's machine, if it was given a name."""

    folder: str = ""


class Restored(TakenCheckpoint):
    """What was done, from which checkpoint, and in which generation."""

    generation: int


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


@serve(router, "DELETE", "", "Kill a topology", Killed)
def kill(
    asked: Asked,
    keep_logs: Annotated[bool, Query(description="leave the log files, where the api server has them")] = False,
) -> Any:
    """Answers when nothing of it runs. A kill that was interrupted is finished; a second one is 404."""
    logs = asked.service.submissions.kill(*asked.place, keep_logs=keep_logs)
    return Killed(message=f"Successfully kill topology: {asked.name}", logs=logs)


@serve(router, "POST", "/drain", "Let what it has read get through", TakenCheckpoint)
def drain(
    asked: Asked, timeout_seconds: Annotated[float, Form(description="then it goes on", ge=1, le=1800)] = 300.0
) -> Any:
    """Pauses the spouts, and answers when no tuple is in flight or, where state is kept, when a last checkpoint (its
    number is given) is committed by all. Kill it then; it stays paused."""
    number = asked.service.submissions.drain(*asked.place, timeout_seconds)
    return TakenCheckpoint(message=f"Successfully drain topology: {asked.name}", checkpoint=number)


@serve(router, "POST", "/activate", "Let the spouts emit", Message)
def activate(asked: Asked) -> Any:
    """Answers when the topology master has decided so."""
    asked.service.inspector.set_state(asked.record, TopologyState.RUNNING)
    return Message(message=f"Successfully activate topology: {asked.name}")


@serve(router, "POST", "/deactivate", "Pause the spouts", Message)
def deactivate(asked: Asked) -> Any:
    """Answers when the topology master has decided so. What was emitted is processed."""
    asked.service.inspector.set_state(asked.record, TopologyState.PAUSED)
    return Message(message=f"Successfully deactivate topology: {asked.name}")


@serve(router, "POST", "/checkpoint", "Take a checkpoint now", NamedCheckpoint)
def take_checkpoint(
    asked: Asked,
    wait_seconds: Annotated[float, Form(description="until it is complete; 0: answer at once", ge=0, le=1800)] = 0.0,
    label: Annotated[str, Form(description="keep it under this name; waits for it", max_length=MAX_NAME)] = "",
) -> Any:
    """For topologies that keep state. Answers, where it waits, when it is complete, or with the cause it was cancelled
    for; `checkpoint` is the last complete one. With a name a copy is kept, until it is deleted."""
    if label:
        number, folder = asked.service.submissions.kept.name(asked.record, label, wait_seconds or NAMED_SECONDS)
        text = f"Successfully name checkpoint of topology: {asked.name}"
        return NamedCheckpoint(message=text, checkpoint=number, folder=str(folder))
    number = asked.service.inspector.take_checkpoint(asked.record, wait_seconds)
    done = "Successfully take" if wait_seconds else "Successfully ask for"
    return NamedCheckpoint(message=f"{done} checkpoint of topology: {asked.name}", checkpoint=number)


@serve(router, "POST", "/restore", "Go back to a complete checkpoint", Restored)
def restore(
    asked: Asked,
    checkpoint: Annotated[int, Form(description="that is kept; 0: the last one", ge=0, le=MAX_OFFSET)] = 0,
    repeat_output: Annotated[bool, Form(description="to an older one: output may come again")] = False,
) -> Any:
    """For topologies that keep state. Answers when the generation that begins from it is stored."""
    generation, number = asked.service.inspector.restore(asked.record, checkpoint, repeat_output=repeat_output)
    text = f"Successfully restore topology: {asked.name}"
    return Restored(message=text, checkpoint=number, generation=generation)


@serve(router, "GET", "/checkpoints", "Checkpoints in the storage", list[dict[str, Any]])
def checkpoints(asked: Asked) -> Any:
    """Of each manifest: when it was written, generation, turn, bytes, tasks, whether it is complete; and those that
    were given a name, also of a topology that was killed."""
    return asked.service.submissions.kept.rows(*asked.place)


Which = Annotated[str, FromPath(description="its number or name", min_length=1, max_length=MAX_NAME)]


@serve(router, "GET", "/checkpoints/{which}", "What a checkpoint is made of", dict[str, Any])
def checkpoint(
    asked: Asked, which: Which, verify: Annotated[bool, Query(description="read all files that it needs")] = False
) -> Any:
    """Its parts, the files its state is read from, key groups by task, tokens of sinks; with `verify` also
    `damaged_files`, a line each."""
    return asked.service.submissions.kept.details(*asked.place, which, verify=verify)


@serve(router, "DELETE", "/checkpoints/{which}", "Delete a checkpoint with a name", Message)
def delete_checkpoint(asked: Asked, which: Which) -> Any:
    """The others go by themselves."""
    asked.service.submissions.kept.delete(*asked.place, which)
    return Message(message=f"Successfully delete checkpoint {which} of topology: {asked.name}")


@serve(router, "POST", "/restart", "Restart a container, or all", Restarted)
def restart(
    asked: Asked,
    container_id: Annotated[int, Form(description="its number; -1 for all", ge=-1, le=LAST_STANDBY)] = -1,
    timeout_seconds: Annotated[float, Form(description="answer 503 after this time", ge=0, le=1800)] = RESTART_SECONDS,
) -> Any:
    """Answers when they run again."""
    done = asked.service.submissions.restart(asked.record, container_id, timeout_seconds)
    return Restarted(message=f"Successfully restart topology: {asked.name}", containers=list(done))


@serve(router, "POST", "/update", "Change parallelism, containers, settings", dict[str, Any])
def update(
    asked: Asked,
    component_parallelism: Annotated[
        list[str] | None, Form(description="COMPONENT:TASKS; may be repeated", max_length=MAX_COMPONENTS)
    ] = None,
    container_number: Annotated[int | None, Form(description="how many containers", ge=1, le=65_535)] = None,
    runtime_config: Annotated[
        list[str] | None, Form(description="[COMPONENT:]KEY:VALUE; may be repeated", max_length=MAX_COMPONENTS)
    ] = None,
    move_container: Annotated[int | None, Form(description="its tasks go to a new one", ge=1, le=65_535)] = None,
    dry_run: Annotated[bool, Form(description="say what would be done, and do nothing")] = False,
    timeout_seconds: Annotated[float, Form(description="then the old plan again", ge=1, le=1800)] = 120.0,
) -> Any:
    """Answers when every task runs by the new plan, or when it runs by the old one again, with the cause. What was
    done, or would be: tasks and containers that come, go and move."""
    settings = read_settings(runtime_config or ())
    request = UpdateRequest(read_parallelism(component_parallelism or ()), container_number, settings, move_container)
    if dry_run:
        return plan_update(asked.record.definition, asked.record.packing, request).document()
    return asked.service.submissions.update(asked.record, request, timeout_seconds).document()


@serve(router, "GET", "/status", "Containers and processes", dict[str, Any])
def status(asked: Asked) -> Any:
    """What all of its processes say, as `heron status -o json` shows it; and causes of backpressure, exceptions, last
    lines of logs."""
    return to_document(asked.service.inspector.status(asked.record, exceptions=True))


@serve(router, "GET", "/metrics", "What flows", dict[str, Any])
def metrics(
    asked: Asked,
    component: Annotated[str, Query(description="of this component only", max_length=128)] = "",
    interval: Annotated[float, Query(description="of the last seconds; -1: since the start", ge=-1, le=86_400)] = (
        SINCE_THE_START
    ),
    metric: Annotated[list[str] | None, Query(description="Heron names; may be repeated", max_length=200)] = None,
) -> Any:
    """As `heron metrics -o json` shows it, and `flow`: a row for each component."""
    return asked.service.inspector.metrics(asked.record, component, interval, metric or ())


@serve(router, "GET", "/logs", "Who writes a log", LogList)
def logs(asked: Asked) -> Any:
    """Read them at `…/containers/{container}/file?path={process}.log`."""
    record = asked.record
    found = [LogProcess(process=p.process, component=p.component, container=p.container)
             for p in logged_processes(record)]  # fmt: skip
    return LogList(processes=found, components=[spec.name for spec in record.definition.components])


BYTES = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}


@serve(
    router, "GET", "/containers/{container}/file", "A part of a log file", None, response_class=Response,
    responses={200: BYTES, **failures(401, 404)},
)  # fmt: skip
def log_file(
    asked: Asked,
    container: int,
    path: Annotated[str, Query(description="below the log folder", min_length=1, max_length=1024)],
    offset: Annotated[int, Query(description="in bytes; negative: from the end", ge=-MAX_OFFSET, le=MAX_OFFSET)] = 0,
    length: Annotated[int, Query(description="in bytes", ge=0, le=MAX_PART)] = MAX_PART,
) -> Response:
    """The bytes; where they begin and how large the file is stand in the headers `heronry-offset` and
    `heronry-size`."""
    record = asked.record
    check_container(record, container)
    try:
        part = LogReader(record).read(container, path, offset, length)
    except FileNotFoundError:
        raise NotFound(f"there is no log {path[:200]!r} in container {container}") from None
    headers = {OFFSET_HEADER: str(part.offset), SIZE_HEADER: str(part.size_bytes)}
    return Response(part.data, media_type="application/octet-stream", headers=headers)
