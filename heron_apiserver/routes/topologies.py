"""Routes of topologies: change them and observe them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from fastapi import Path as FromPath
from pydantic import BaseModel
from starlette.responses import Response

from heron_apiserver.access import Permission
from heron_apiserver.responses import documented_errors
from heron_apiserver.routing import MAX_NAME, AuthorizedRoute, Target, api_server_of, requires, topology_route
from heron_apiserver.submit_request import MAX_COMPONENTS
from heron_control.inspection.inspector import SINCE_THE_START, LogReader, check_container, logged_processes
from heron_control.inspection.status_document import to_document
from heron_control.packing.runtime_settings import read_settings
from heron_control.packing.update import UpdateRequest, plan_update, read_parallelism
from heron_runtime.failures import NotFound
from heron_runtime.model.topology import TopologyState

router = APIRouter(prefix="/api/v1", tags=["topologies"], route_class=AuthorizedRoute)
RESTART_SECONDS = 120.0
NAMED_SECONDS = 300.0  # wait for a named checkpoint
MAX_PART = 1 << 20
MAX_OFFSET = 1 << 53
MAX_NUMBER = (1 << 31) - 1  # of a container
MAX_SECONDS = 1e9
OFFSET_HEADER, SIZE_HEADER = "heronry-offset", "heronry-size"


class Message(BaseModel):
    """Result in words."""

    message: str


class Killed(Message):
    """Result of a kill, with the folder of the logs on the API server's machine."""

    logs: str = ""


class Restarted(Message):
    """Result of a restart, with the containers."""

    containers: list[int]


class RolledBack(Message):
    """Result of a rollback, with the new topology id and the checkpoint that the topology starts from, if any."""

    topology_id: str
    from_checkpoint: str = ""


class TakenCheckpoint(Message):
    """Result with the last complete checkpoint."""

    checkpoint: int


class NamedCheckpoint(TakenCheckpoint):
    """Result with the folder of a named checkpoint on the API server's machine."""

    folder: str = ""


class Restored(TakenCheckpoint):
    """Result of a restore, with checkpoint and generation."""

    generation: int


class Row(BaseModel):
    """Topology in a list."""

    cluster: str
    role: str
    environ: str
    topology: str
    state: str
    containers: int | None
    tasks: int | None
    submitted_at: str | None


class LogProcess(BaseModel):
    """Process that writes the log `process`.log in its container."""

    process: str
    component: str
    container: int


class LogList(BaseModel):
    """Processes that write logs, and names of the components."""

    processes: list[LogProcess]
    components: list[str]


@router.get(
    "/topologies", response_model=list[Row], summary="List topologies", responses=documented_errors(401),
    dependencies=[requires(Permission.LOOK)],
)  # fmt: skip
def list_topologies(
    request: Request,
    role: Annotated[str | None, Query(description="only topologies of this role", max_length=128)] = None,
    environ: Annotated[str | None, Query(description="only topologies of this environment", max_length=128)] = None,
) -> Any:
    """Return all topologies with their states, for which their processes are asked."""
    return api_server_of(request).topologies.inspector.rows(lambda r, e: role in (None, r) and environ in (None, e))


@topology_route(router, "DELETE", "", "Kill a topology", Killed)
def kill(
    target: Target,
    keep_logs: Annotated[bool, Query(description="keep the log files on the API server's machine")] = False,
) -> Any:
    """Kill a topology and answer when nothing of it runs. A second kill returns 404."""
    logs = target.topologies.submissions.kill(*target.names, keep_logs=keep_logs)
    return Killed(message=f"Successfully kill topology: {target.name}", logs=logs)


@topology_route(router, "POST", "/rollback", "Start the previous version", RolledBack)
def rollback(target: Target) -> Any:
    """Start the version again that the last replacement has ended, within an hour. Kill the new version first.

    It has the parallelism and settings that it had. A version with state starts from the checkpoint that the
    replacement has kept. An API server that has restarted meanwhile returns 404.
    """
    topology_id, reference = target.topologies.roll_back(*target.names)
    text = f"Successfully roll back topology: {target.name}"
    return RolledBack(message=text, topology_id=topology_id, from_checkpoint=reference)


@topology_route(router, "POST", "/drain", "Drain a topology", TakenCheckpoint)
def drain(
    target: Target,
    timeout_seconds: Annotated[float, Form(description="resume the topology after this time", ge=1, le=1800)] = 300.0,
) -> Any:
    """Pause the spouts and wait until no tuple is in flight.

    With state, wait until all tasks have committed a last checkpoint, and return its number. The topology stays
    paused; kill it afterwards.
    """
    number = target.topologies.submissions.drain(*target.names, timeout_seconds)
    return TakenCheckpoint(message=f"Successfully drain topology: {target.name}", checkpoint=number)


@topology_route(router, "POST", "/activate", "Activate a topology", Message)
def activate(target: Target) -> Any:
    """Resume the spouts and answer when the topology master has stored the new state."""
    target.topologies.inspector.set_state(target.record, TopologyState.RUNNING)
    return Message(message=f"Successfully activate topology: {target.name}")


@topology_route(router, "POST", "/deactivate", "Deactivate a topology", Message)
def deactivate(target: Target) -> Any:
    """Pause the spouts and answer when the topology master has stored the new state. Emitted tuples are processed."""
    target.topologies.inspector.set_state(target.record, TopologyState.PAUSED)
    return Message(message=f"Successfully deactivate topology: {target.name}")


@topology_route(router, "POST", "/checkpoint", "Take a checkpoint", NamedCheckpoint)
def take_checkpoint(
    target: Target,
    wait_seconds: Annotated[
        float, Form(description="seconds to wait until the checkpoint is complete; 0: do not wait", ge=0, le=1800)
    ] = 0.0,
    label: Annotated[
        str, Form(description="keep the checkpoint under this name; waits until it is complete", max_length=MAX_NAME)
    ] = "",
) -> Any:
    """Take a checkpoint of a topology that keeps state.

    With a wait, answer when the checkpoint is complete, or with the reason why it was cancelled. `checkpoint` is the
    last complete one. A named checkpoint is a copy that stays until it is deleted.
    """
    if label:
        number, folder = target.topologies.submissions.checkpoints.name(
            target.record, label, wait_seconds or NAMED_SECONDS
        )
        text = f"Successfully name checkpoint of topology: {target.name}"
        return NamedCheckpoint(message=text, checkpoint=number, folder=str(folder))
    number = target.topologies.inspector.take_checkpoint(target.record, wait_seconds)
    done = "Successfully take" if wait_seconds else "Successfully ask for"
    return NamedCheckpoint(message=f"{done} checkpoint of topology: {target.name}", checkpoint=number)


@topology_route(router, "POST", "/restore", "Restore a checkpoint", Restored)
def restore(
    target: Target,
    checkpoint: Annotated[
        int, Form(description="number of a kept checkpoint; 0: the last one", ge=0, le=MAX_OFFSET)
    ] = 0,
    repeat_output: Annotated[
        bool, Form(description="required for an older checkpoint: output may be repeated")
    ] = False,
) -> Any:
    """Restore a topology that keeps state and answer when the new generation is stored."""
    generation, number = target.topologies.inspector.restore(target.record, checkpoint, repeat_output=repeat_output)
    text = f"Successfully restore topology: {target.name}"
    return Restored(message=text, checkpoint=number, generation=generation)


@topology_route(router, "GET", "/checkpoints", "List checkpoints", list[dict[str, Any]])
def checkpoints(target: Target) -> Any:
    """Return time, generation, turn, bytes, tasks and completeness of each checkpoint.

    Named checkpoints are included, also those of killed topologies.
    """
    return target.topologies.submissions.checkpoints.rows(*target.names)


Which = Annotated[str, FromPath(description="number or name of the checkpoint", min_length=1, max_length=MAX_NAME)]


@topology_route(router, "GET", "/checkpoints/{which:path}", "Inspect a checkpoint", dict[str, Any])
def checkpoint(
    target: Target, which: Which, verify: Annotated[bool, Query(description="read and verify all its files")] = False
) -> Any:
    """Return parts, files of the state, key groups by task and tokens of sinks.

    With `verify`, also return `damaged_files`, one line each.
    """
    return target.topologies.submissions.checkpoints.details(*target.names, which, verify=verify)


@topology_route(router, "DELETE", "/checkpoints/{which:path}", "Delete a named checkpoint", Message)
def delete_checkpoint(target: Target, which: Which) -> Any:
    """Delete a named checkpoint. Other checkpoints are deleted automatically."""
    target.topologies.submissions.checkpoints.delete(*target.names, which)
    return Message(message=f"Successfully delete checkpoint {which} of topology: {target.name}")


@topology_route(router, "POST", "/restart", "Restart containers", Restarted)
def restart(
    target: Target,
    container_id: Annotated[int, Form(description="number of the container; -1: all", ge=-1, le=MAX_NUMBER)] = -1,
    timeout_seconds: Annotated[float, Form(description="answer 503 after this time", ge=0, le=1800)] = RESTART_SECONDS,
) -> Any:
    """Restart one or all containers and answer when they run again."""
    done = target.topologies.submissions.restart(target.record, container_id, timeout_seconds)
    return Restarted(message=f"Successfully restart topology: {target.name}", containers=list(done))


@topology_route(router, "POST", "/update", "Update a topology", dict[str, Any])
def update(
    target: Target,
    component_parallelism: Annotated[
        list[str] | None, Form(description="COMPONENT:TASKS; may be repeated", max_length=MAX_COMPONENTS)
    ] = None,
    container_number: Annotated[int | None, Form(description="number of containers", ge=1, le=MAX_NUMBER)] = None,
    runtime_config: Annotated[
        list[str] | None, Form(description="[COMPONENT:]KEY:VALUE; may be repeated", max_length=MAX_COMPONENTS)
    ] = None,
    move_container: Annotated[
        int | None, Form(description="container whose tasks move to a new one", ge=1, le=MAX_NUMBER)
    ] = None,
    dry_run: Annotated[bool, Form(description="return the changes without making them")] = False,
    timeout_seconds: Annotated[
        float, Form(description="return to the old plan after this time", ge=1, le=1800)
    ] = 120.0,
) -> Any:
    """Change parallelism, containers or settings, and return what is added, removed and moved.

    Answer when every task runs under the new plan, or under the old one again, with the cause.
    """
    settings = read_settings(runtime_config or ())
    request = UpdateRequest(read_parallelism(component_parallelism or ()), container_number, settings, move_container)
    if dry_run:
        return plan_update(target.record.definition, target.record.packing, request).document()
    return target.topologies.submissions.update(target.record, request, timeout_seconds).document()


@topology_route(router, "GET", "/status", "Get the status", dict[str, Any])
def status(target: Target) -> Any:
    """Return the status reported by all processes, as `heron status -o json` prints it.

    Causes of backpressure, exceptions and last lines of logs are included.
    """
    return to_document(target.topologies.inspector.status(target.record, exceptions=True))


@topology_route(router, "GET", "/metrics", "Get metrics", dict[str, Any])
def metrics(
    target: Target,
    component: Annotated[str, Query(description="only this component", max_length=128)] = "",
    interval: Annotated[float, Query(description="length in seconds; -1: since the start", ge=-1, le=MAX_SECONDS)] = (
        SINCE_THE_START
    ),
    metric: Annotated[
        list[str] | None, Query(description="Heron names of metrics; may be repeated", max_length=200)
    ] = None,
) -> Any:
    """Return metrics as `heron metrics -o json` prints them, and `flow`, one row per component."""
    return target.topologies.inspector.metrics(target.record, component, interval, metric or ())


@topology_route(router, "GET", "/logs", "List log files", LogList)
def logs(target: Target) -> Any:
    """List the processes that write logs. Read a log at `…/containers/{container}/file?path={process}.log`."""
    record = target.record
    processes = [LogProcess(process=p.process, component=p.component, container=p.container)
             for p in logged_processes(record)]  # fmt: skip
    return LogList(processes=processes, components=[spec.name for spec in record.definition.components])


BYTES = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}


@topology_route(
    router, "GET", "/containers/{container}/file", "Read a part of a log file", None, response_class=Response,
    responses={200: BYTES, **documented_errors(401, 404)},
)  # fmt: skip
def log_file(
    target: Target,
    container: int,
    path: Annotated[str, Query(description="path relative to the log folder", min_length=1, max_length=1024)],
    offset: Annotated[
        int, Query(description="first byte; negative: relative to the end", ge=-MAX_OFFSET, le=MAX_OFFSET)
    ] = 0,
    length: Annotated[int, Query(description="number of bytes", ge=0, le=MAX_PART)] = MAX_PART,
) -> Response:
    """Return the bytes. The headers `heronry-offset` and `heronry-size` give their offset and the file size."""
    record = target.record
    check_container(record, container)
    try:
        part = LogReader(record).read(container, path, offset, length)
    except FileNotFoundError:
        raise NotFound(f"log {path[:200]!r}: not found in container {container}") from None
    headers = {OFFSET_HEADER: str(part.offset), SIZE_HEADER: str(part.size_bytes)}
    return Response(part.data, media_type="application/octet-stream", headers=headers)
