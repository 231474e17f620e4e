"""The service for local instances, on the container's Unix socket."""

from __future__ import annotations

import os
from typing import Any

import grpc
import grpc.aio

from heronry.net.rpc import make_server
from heronry.net.services import INSTANCE_SERVICE
from heronry.wire.control import Credit, InstanceControl, InstanceHello
from heronry.wire.data import Packet
from heronry.wire.errors import MalformedMessage
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
        host, core, task = self._host, self._host.core, hello.task
        connection = host.connect(
            f"task {task} (process {hello.pid})", lambda number: core.handle_instance_gone(number, task)
        )
        host.act(core.handle_instance_hello(connection.number, hello))

        def handle(message: InstanceControl) -> None:
            if not isinstance(message, Credit):
                raise MalformedMessage(f"{type(message).__name__} is not for stream managers")
            host.act(core.handle_instance_credit(connection.number, task, message))

        await connection.converse(context.read, handle, connection.control.run(context.write))

    async def data(self, _: Any, context: grpc.aio.ServicerContext) -> None:
        task, incarnation = metadata_numbers(context, TASK_KEY, INCARNATION_KEY)
        host, core = self._host, self._host.core
        instance = core.flow.instances.get(task)
        number = None if instance is None or instance.incarnation != incarnation else instance.connection
        connection = None if number is None else host.connections.get(number)
        if instance is None or connection is None or connection.data is not None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "say hello on a control stream first")
            return
        pump = host.pump(connection, instance.link)
        host.act(core.handle_instance_data(connection.number, task))

        def handle(packet: Packet) -> None:
            host.act(core.handle_instance_packet(connection.number, task, packet))

        await connection.converse(context.read, handle, pump.run(context.write))


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
