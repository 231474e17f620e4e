"""Heron's routes about log files of containers, and pid and stacks of instances.

The tracker opens no file. It asks the container's ``heron_container``, whose address is in the state store: a client
names a container by number and cannot make the tracker connect elsewhere. The container decides what may be read:
files below the log folder, without following links.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated, Any

import grpc
from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from heron_control.inspection.process_requests import ProcessUnreachable
from heron_runtime.failures import Failure, NotFound, UsageError
from heron_runtime.model.containers import containers_of, listed
from heron_runtime.model.ids import parse_instance_id
from heron_runtime.wire.container import (
    ContainerStatus,
    ContainerStatusRequest,
    FileData,
    FileList,
    ListFiles,
    ProcessStatus,
    ReadFile,
    Stacks,
    StacksRequest,
)
from heron_tracker.core.heron_records import decode_whole_characters, describe_file, relative_log_path
from heron_tracker.routing import Container, FilePath, Instance, Tracked, TrackedRequest, get
from heron_tracker.tracker import TrackedTopology

router = APIRouter(tags=["containers"])
MAX_PART = 512 * 1024
CHUNK = 1024 * 1024
MAX_OFFSET = 1 << 60


async def _ask(tracked: TrackedRequest, container: int, method: str, question: Any) -> Any:
    """Ask a container. Raises NotFound, UsageError, Unavailable."""
    record = tracked.topology.record
    known = containers_of(record.packing, record.definition.config)
    if container not in known:
        raise NotFound(f"{tracked.topology.name} has no container {container}; it has {listed(known)}")
    try:
        return await tracked.ask_container(container, method, question)
    except ProcessUnreachable as error:
        raise _failure(error) from None


def _failure(error: ProcessUnreachable) -> Failure:
    if error.code is grpc.StatusCode.NOT_FOUND:
        return NotFound(str(error))
    if error.code is grpc.StatusCode.INVALID_ARGUMENT:
        return UsageError(f"path: {error}")
    if error.code is grpc.StatusCode.UNIMPLEMENTED:
        return NotFound("this container runs an older version without this operation")
    return error


@get(router, "/topologies/container/filedata", "/topologies/containerfiledata")
async def file_data(
    tracked: Tracked,
    container: Container,
    path: FilePath,
    offset: Annotated[
        int,
        Query(description="first byte; -1: the present end; less: relative to the end", ge=-MAX_OFFSET, le=MAX_OFFSET),
    ],
    length: Annotated[int, Query(description="number of bytes; -1: the maximum", ge=-1, le=MAX_OFFSET)],
) -> Response:
    """Read a part of a log file: `{offset, length, data, size}`, at most 512 KiB.

    To follow the file, continue at offset + length.
    """
    wanted = MAX_PART if length < 0 else min(length, MAX_PART)
    question = ReadFile(relative_log_path(path), 0 if offset == -1 else offset, 0 if offset == -1 else wanted)
    part: FileData = await _ask(tracked, container, "ReadFile", question)
    begin = part.size_bytes if offset == -1 else part.offset
    text, length = decode_whole_characters(part.data, last=begin + len(part.data) >= part.size_bytes)
    shown = {"offset": begin, "length": length, "data": text, "size": part.size_bytes}
    return tracked.respond(shown)


@get(router, "/topologies/container/filestats", "/topologies/containerfilestats")
async def file_stats(
    tracked: Tracked,
    container: Container,
    path: Annotated[FilePath, Query(description="folder relative to the log folder; empty: the log folder")] = "",
) -> Response:
    """List a log folder: name → `{path, is_dir, size, modified, formatted_stat}`."""
    listed: FileList = await _ask(tracked, container, "ListFiles", ListFiles(relative_log_path(path)))
    shown = {file.path.rpartition("/")[2]: describe_file(file) for file in listed.files}
    return tracked.respond(shown)


@router.get(
    "/topologies/container/filedownload",
    response_class=Response,
    summary="Download a log file",
    responses={
        200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
        404: {"description": "The file does not exist."},
        422: {"description": "An argument is invalid."},
        503: {"description": "The container does not answer."},
    },
)
@router.get("/topologies/containerfiledownload", include_in_schema=False)
async def file_download(tracked: Tracked, container: Container, path: FilePath) -> Response:
    """Download a log file in its present size. Data appended meanwhile is not included."""
    name = relative_log_path(path)
    first: FileData = await _ask(tracked, container, "ReadFile", ReadFile(name, 0, CHUNK))

    async def parts() -> AsyncIterator[bytes]:
        yield first.data
        at = len(first.data)
        while at < first.size_bytes:
            wanted = min(CHUNK, first.size_bytes - at)
            part: FileData = await tracked.ask_container(container, "ReadFile", ReadFile(name, at, wanted))
            if part.offset != at or not part.data:
                return  # rotated meanwhile: the rest is gone
            yield part.data
            at += len(part.data)

    plain_name = re.sub(r"[^A-Za-z0-9_.\-]", "_", name.rpartition("/")[2]) or "file"
    headers = {"content-disposition": f'attachment; filename="{plain_name}"'}
    return StreamingResponse(parts(), media_type="application/octet-stream", headers=headers)


def _container_of(topology: TrackedTopology, instance: str) -> int:
    """Return the container of an instance in the packing plan. Raises NotFound."""
    try:
        parse_instance_id(instance)
    except ValueError as error:
        raise UsageError(f"instance: {error}") from None
    container = topology.instances.get(instance)
    if container is None:
        raise NotFound(f"{topology.name} has no instance {instance!r}")
    return container


async def _process(tracked: TrackedRequest, instance: str) -> ProcessStatus:
    container = _container_of(tracked.topology, instance)
    status: ContainerStatus = await _ask(tracked, container, "Status", ContainerStatusRequest())
    for process in status.processes:
        if process.name == instance:
            return process
    raise NotFound(f"{instance} has not been started yet")


@get(router, "/topologies/pid")
async def pid(tracked: Tracked, instance: Instance) -> Response:
    """Get the process id of an instance, in `stdout` as in Heron; 404 while it is not running."""
    process = await _process(tracked, instance)
    if not process.pid:
        raise NotFound(f"{instance} is not running: it is {process.state}")
    shown = {"command": f"pid of {instance}", "stdout": f"{process.pid}\n", "stderr": "", "pid": process.pid}
    return tracked.respond(shown)


@get(router, "/topologies/jstack", "/topologies/stacks")
async def stacks(tracked: Tracked, instance: Instance) -> Response:
    """Get the stack of every thread of an instance, in `stdout`."""
    container = _container_of(tracked.topology, instance)
    dump: Stacks = await _ask(tracked, container, "Stacks", StacksRequest(instance))
    shown = {"command": f"stacks of {instance}", "stdout": dump.text, "stderr": "", "pid": dump.pid}
    return tracked.respond(shown)
