"""What heron_container serves over gRPC: its process table, its logs, the topology's checkpoints, stacks
(authenticated, changes nothing)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from heron_container.shell.children import Child
from heron_container.shell.log_access import BadPath, NotThere, list_files, read_file
from heron_container.shell.stacks import NoStacks, dump_stacks
from heron_runtime.checkpoint_files import checkpoint_folder
from heron_runtime.launch import Launch
from heron_runtime.net.identity import identity_of
from heron_runtime.net.rpc import make_server
from heron_runtime.net.services import CONTAINER_SERVICE
from heron_runtime.wire.container import (
    ContainerStatus,
    ContainerStatusRequest,
    FileData,
    FileList,
    ListFiles,
    ReadFile,
    Stacks,
    StacksRequest,
)


async def serve(
    launch: Launch, status: Callable[[], ContainerStatus], child: Callable[[str], Child | None] = lambda _: None
) -> tuple[grpc.aio.Server, int]:
    """Start the server on a free port of ``launch.bind_host``; returns it and its port. Raises OSError, RuntimeError.

    ``child`` finds a living child by its name.
    """
    dumping = asyncio.Semaphore(1)  # two dumps at a time could not be told apart in one log

    async def answer_status(_: ContainerStatusRequest, __: grpc.aio.ServicerContext) -> ContainerStatus:
        return status()

    async def answer_list(request: ListFiles, context: grpc.aio.ServicerContext) -> FileList:
        files = await _confined(context, list_files, launch.log_dir, request.path)
        return FileList(files)

    async def answer_read(request: ReadFile, context: grpc.aio.ServicerContext) -> FileData:
        part: FileData = await _confined(
            context, read_file, launch.log_dir, request.path, request.offset, request.length
        )
        return part

    checkpoints = checkpoint_folder(None, launch.home).folder

    async def answer_checkpoint_list(request: ListFiles, context: grpc.aio.ServicerContext) -> FileList:
        files = await _confined(context, list_files, checkpoints, request.path)
        return FileList(files)

    async def answer_checkpoint_read(request: ReadFile, context: grpc.aio.ServicerContext) -> FileData:
        part: FileData = await _confined(context, read_file, checkpoints, request.path, request.offset, request.length)
        return part

    async def answer_stacks(request: StacksRequest, context: grpc.aio.ServicerContext) -> Stacks:
        found = child(request.process)
        if found is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no process of this name lives in this container")
        assert found is not None
        try:
            async with dumping:
                text = await dump_stacks(found, launch.log_dir / f"{request.process}.log")
        except NoStacks as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return Stacks(request.process, found.pid, text)

    handler = CONTAINER_SERVICE.handler(
        Status=answer_status,
        ListFiles=answer_list,
        ReadFile=answer_read,
        Stacks=answer_stacks,
        ListCheckpointFiles=answer_checkpoint_list,
        ReadCheckpointFile=answer_checkpoint_read,
    )
    server, port = make_server(identity_of(launch), f"{launch.bind_host}:0", [handler])
    await server.start()
    return server, port


async def _confined(context: grpc.aio.ServicerContext, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return await asyncio.to_thread(function, *arguments)
    except BadPath as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    except NotThere as error:
        await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
