"""The service for local instances, on the container's Unix socket."""

from __future__ import annotations

import os
from typing import Any

import grpc
import grpc.aio

from heron_runtime.net.rpc import make_server
from heron_runtime.net.services import INSTANCE_SERVICE
from heron_runtime.wire.control import InstanceHello
from heron_runtime.wire.errors import MalformedMessage
from stream_manager.core.events import Connected
from stream_manager.shell.host import Host

TASK_KEY = "heronry-task"
INCARNATION_KEY = "heronry-incarnation"


async def start_instance_server(host: Host, secret: str, target: str) -> grpc.aio.Server:
    """Serve on ``target`` (``unix:/path``), where the socket of a predecessor may still lie. Raises OSError."""
    path = target.removeprefix("unix:")
    if os.path.exists(path):
        os.unlink(path)
    service = _InstanceService(host)
    handler = INSTANCE_SERVICE.handler(Control=service.control, Data=service.data)
    server = make_server(secret, host.core.topology_id, [handler])
    server.add_insecure_port(target)
    await server.start()
    return server


class _InstanceService:
    def __init__(self, host: Host) -> None:
        self._host = host

    async def control(self, _: Any, context: grpc.aio.ServicerContext) -> None:
        hello = await first_message(context)
        if not isinstance(hello, InstanceHello):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message of an instance is InstanceHello")
        connection = self._host.connect(f"task {hello.task} (process {hello.pid})")
        self._host.handle(Connected(connection.number, hello))
        await self._host.control(connection, context)

    async def data(self, _: Any, context: grpc.aio.ServicerContext) -> None:
        task, incarnation = metadata_numbers(context, TASK_KEY, INCARNATION_KEY)
        await serve_data(self._host, self._host.core.connection_of(incarnation, task=task), context)


async def serve_data(host: Host, number: int | None, context: grpc.aio.ServicerContext) -> None:
    """Serve the data stream of the connection of this number, which must have none yet."""
    connection = host.without_data(number)
    if connection is None:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "say hello on a control stream first")
        return
    await host.data(connection, context)


async def first_message(context: grpc.aio.ServicerContext) -> Any:
    """The first message, or None for one that cannot be decoded."""
    try:
        return await context.read()
    except MalformedMessage:
        return None


def metadata_numbers(context: grpc.aio.ServicerContext, *keys: str) -> tuple[int, ...]:
    """These metadata as numbers, -1 for what is missing or no number."""
    metadata = {key: str(value) for key, value in context.invocation_metadata() or ()}
    return tuple(int(text) if (text := metadata.get(key, "")).isdecimal() else -1 for key in keys)
