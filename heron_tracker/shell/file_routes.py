"""Heron's paths about a container's log files, the pid and the stacks of an instance.

The tracker opens no file itself. It asks the container's ``heron_container``, whose addresses stand in the state store:
a client names a container by its number and can make the tracker connect to nothing else. What may be read is decided
there, below the log folder only, without following links.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any

import grpc
from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from heron_tracker.shell.asking import NoAnswer
from heron_tracker.shell.parameters import Cluster, Container, Environ, FilePath, Instance, Role, Topology
from heron_tracker.shell.replies import BadArgument, Failure, NotFound, Unavailable, reply
from heron_tracker.shell.routing import get, tracker_of
from heron_tracker.shell.tracker import Found
from heronry.model.ids import parse_instance_id
from heronry.wire.container import (
    ContainerStatus,
    ContainerStatusRequest,
    FileData,
    FileInfo,
    FileList,
    ListFiles,
    ProcessStatus,
    ReadFile,
    Stacks,
    StacksRequest,
)

router = APIRouter(tags=["containers"])
MAX_PART = 512 * 1024
CHUNK = 1024 * 1024
HERON_FOLDER = "log-files/"
MAX_OFFSET = 1 << 60


async def _ask(request: Request, found: Found, container: int, method: str, question: Any) -> Any:
    """What the container answers. Raises NotFound, BadArgument, Unavailable."""
    known = {0, *(plan.container for plan in found.record.packing.containers)}
    if container not in known:
        raise NotFound(f"{found.record.definition.name} has no container {container}; it has {_listed(known)}")
    try:
        return await tracker_of(request).asker.container(found.record, container, method, question)
    except NoAnswer as error:
        raise _failure(error) from None


def _failure(error: NoAnswer) -> Failure:
    if error.code is grpc.StatusCode.NOT_FOUND:
        return NotFound(str(error))
    if error.code is grpc.StatusCode.INVALID_ARGUMENT:
        return BadArgument(f"path: {error}")
    if error.code is grpc.StatusCode.UNIMPLEMENTED:
        return NotFound("this container runs an older version, which cannot do that")
    return Unavailable(str(error))


def _listed(numbers: set[int]) -> str:
    shown = ", ".join(map(str, sorted(numbers)[:20]))
    return shown + (", …" if len(numbers) > 20 else "")


def _path(path: str) -> str:
    """As ``heron_container`` wants it. Heron's own scripts begin with ``./log-files/``."""
    if any(0xD800 <= ord(c) <= 0xDFFF for c in path):
        raise BadArgument("path: is not text")
    return path.removeprefix("./").removeprefix(HERON_FOLDER)


@get(router, "/topologies/container/filedata", "/topologies/containerfiledata")
async def file_data(
    request: Request,
    cluster: Cluster,
    environ: Environ,
    topology: Topology,
    container: Container,
    path: FilePath,
    offset: Annotated[
        int, Query(description="in bytes; -1: where it ends now; less: from its end", ge=-MAX_OFFSET, le=MAX_OFFSET)
    ],
    length: Annotated[int, Query(description="in bytes; -1: as much as possible", ge=-1, le=MAX_OFFSET)],
    role: Role = None,
) -> Response:
    """A part of a log file: `{offset, length, data, size}`, at most 512 KiB. To follow it, ask from offset + length."""
    found = tracker_of(request).find(cluster, environ, topology, role)
    wanted = MAX_PART if length < 0 else min(length, MAX_PART)
    question = ReadFile(_path(path), 0 if offset == -1 else offset, 0 if offset == -1 else wanted)
    part: FileData = await _ask(request, found, container, "ReadFile", question)
    begin = part.size_bytes if offset == -1 else part.offset
    text, length = whole_characters(part.data, last=begin + len(part.data) >= part.size_bytes)
    shown = {"offset": begin, "length": length, "data": text, "size": part.size_bytes}
    return reply(request, shown, stale=found.stale)


def whole_characters(data: bytes, *, last: bool) -> tuple[str, int]:
    """(text, bytes it takes): a character that is cut at the end is left for the next part, unless that is the end."""
    keep = len(data)
    if not last:
        for back in range(1, min(4, keep) + 1):
            byte = data[-back]
            if byte >= 0xC0:  # the first byte of a character of several
                needs = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
                keep -= back if needs > back and back < keep else 0
                break
            if byte < 0x80:
                break
    return data[:keep].decode(errors="replace"), keep


@get(router, "/topologies/container/filestats", "/topologies/containerfilestats")
async def file_stats(
    request: Request,
    cluster: Cluster,
    environ: Environ,
    topology: Topology,
    container: Container,
    path: Annotated[FilePath, Query(description="a folder below the log folder; empty is that folder")] = "",
    role: Role = None,
) -> Response:
    """What is in a log folder: name → `{path, is_dir, size, modified, formatted_stat}`."""
    found = tracker_of(request).find(cluster, environ, topology, role)
    folder = _path(path if path.endswith("/") or path != HERON_FOLDER.rstrip("/") else HERON_FOLDER)
    listed: FileList = await _ask(request, found, container, "ListFiles", ListFiles(folder))
    shown = {file.path.rpartition("/")[2]: _stat(file) for file in listed.files}
    return reply(request, shown, stale=found.stale)


def _stat(file: FileInfo) -> dict[str, Any]:
    when = datetime.fromtimestamp(file.modified_at, UTC)
    kind = "drwx------" if file.folder else "-rw-------"
    return {
        "path": file.path,
        "is_dir": file.folder,
        "size": file.size_bytes,
        "modified": when.isoformat(timespec="seconds"),
        "formatted_stat": f"{kind} {file.size_bytes:>12} {when:%Y-%m-%d %H:%M}",
    }


@router.get(
    "/topologies/container/filedownload",
    response_class=Response,
    summary="A whole log file",
    responses={
        200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
        404: {"description": "There is no such file."},
        422: {"description": "An argument makes no sense."},
        503: {"description": "The container does not answer."},
    },
)
@router.get("/topologies/containerfiledownload", include_in_schema=False)
async def file_download(
    request: Request,
    cluster: Cluster,
    environ: Environ,
    topology: Topology,
    container: Container,
    path: FilePath,
    role: Role = None,
) -> Response:
    """The file as it is now, in a stream; what is appended meanwhile is not part of it."""
    found = tracker_of(request).find(cluster, environ, topology, role)
    name = _path(path)
    first: FileData = await _ask(request, found, container, "ReadFile", ReadFile(name, 0, CHUNK))

    async def parts() -> AsyncIterator[bytes]:
        yield first.data
        at = len(first.data)
        while at < first.size_bytes:
            wanted = min(CHUNK, first.size_bytes - at)
            part: FileData = await tracker_of(request).asker.container(
                found.record, container, "ReadFile", ReadFile(name, at, wanted)
            )
            if part.offset != at or not part.data:
                return  # rotated under us: what came is what there is
            yield part.data
            at += len(part.data)

    plain_name = re.sub(r"[^A-Za-z0-9_.\-]", "_", name.rpartition("/")[2]) or "file"
    headers = {"content-disposition": f'attachment; filename="{plain_name}"'}
    return StreamingResponse(parts(), media_type="application/octet-stream", headers=headers)


def _container_of(found: Found, instance: str) -> int:
    """The container of an instance that the packing plan has. Raises NotFound."""
    try:
        name = parse_instance_id(instance)
    except ValueError as error:
        raise BadArgument(f"instance: {error}") from None
    for plan in found.record.packing.containers:
        if plan.container == name.container and any(
            i.task == name.task and i.component == name.component for i in plan.instances
        ):
            return name.container
    raise NotFound(f"{found.record.definition.name} has no instance {instance!r}")


async def _process(request: Request, found: Found, instance: str) -> ProcessStatus:
    container = _container_of(found, instance)
    status: ContainerStatus = await _ask(request, found, container, "Status", ContainerStatusRequest())
    for process in status.processes:
        if process.name == instance:
            return process
    raise NotFound(f"{instance} has not been started yet")


@get(router, "/topologies/pid")
async def pid(
    request: Request, cluster: Cluster, environ: Environ, topology: Topology, instance: Instance, role: Role = None
) -> Response:
    """The process id of an instance, in `stdout` as Heron has it; 404 while it does not live."""
    found = tracker_of(request).find(cluster, environ, topology, role)
    process = await _process(request, found, instance)
    if not process.pid:
        raise NotFound(f"{instance} does not live at this moment: it is {process.state}")
    shown = {"command": f"pid of {instance}", "stdout": f"{process.pid}\n", "stderr": "", "pid": process.pid}
    return reply(request, shown, stale=found.stale)


@get(router, "/topologies/jstack", "/topologies/stacks")
async def stacks(
    request: Request, cluster: Cluster, environ: Environ, topology: Topology, instance: Instance, role: Role = None
) -> Response:
    """The stack of every thread of an instance at this moment, in `stdout`."""
    found = tracker_of(request).find(cluster, environ, topology, role)
    container = _container_of(found, instance)
    dump: Stacks = await _ask(request, found, container, "Stacks", StacksRequest(instance))
    shown = {"command": f"stacks of {instance}", "stdout": dump.text, "stderr": "", "pid": dump.pid}
    return reply(request, shown, stale=found.stale)
