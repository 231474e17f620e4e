"""The mesh: serves peers with a lower container number, connects to those with a higher one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from heron_runtime.model.plan import PhysicalPlan, StreamManagerInfo
from heron_runtime.net.identity import Identity
from heron_runtime.net.rpc import make_channel, make_server
from heron_runtime.net.services import PEER_SERVICE
from heron_runtime.wire.control import Leave, PeerHello
from heron_runtime.wire.errors import MalformedMessage
from stream_manager.core.events import Connected, PeerRefused
from stream_manager.shell.dialer import Dialer
from stream_manager.shell.host import Host

CONTAINER_KEY = "heronry-container"
INCARNATION_KEY = "heronry-incarnation"
GENERATION_KEY = "heronry-generation"
HELLO_SECONDS = 10.0


async def start_peer_server(host: Host, identity: Identity, address: str) -> tuple[grpc.aio.Server, int]:
    """Serve peers on a free port of ``address``. Returns the server and the port."""
    service = _PeerService(host)
    handler = PEER_SERVICE.handler(Control=service.control, Data=service.data)
    server, port = make_server(identity, f"{address}:0", [handler])
    await server.start()
    return server, port


class _PeerService:
    def __init__(self, host: Host) -> None:
        self._host = host

    async def control(self, _: Any, context: grpc.aio.ServicerContext) -> None:
        try:
            hello = await context.read()
        except MalformedMessage:
            hello = None
        if not isinstance(hello, PeerHello):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message of a peer is PeerHello")
        connection = self._host.connect(_who(hello))
        us = self._host.core.peer_hello()
        connection.send(us)
        self._host.handle(Connected(connection.number, hello, us.generation))
        await self._host.control(connection, context)

    async def data(self, _: Any, context: grpc.aio.ServicerContext) -> None:
        who = _metadata_numbers(context, CONTAINER_KEY, INCARNATION_KEY, GENERATION_KEY)
        connection = self._host.without_data(self._host.core.peer_connection(*who))
        if connection is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "say hello on a control stream first")
            return
        await self._host.data(connection, context)


def _metadata_numbers(context: grpc.aio.ServicerContext, *keys: str) -> list[int]:
    """These metadata as numbers, 0 for what is missing or no number."""
    metadata = {key: str(value) for key, value in context.invocation_metadata() or ()}
    return [int(text) if (text := metadata.get(key, "")).isdecimal() else 0 for key in keys]


def _who(hello: PeerHello) -> str:
    return f"container {hello.container} (incarnation {hello.incarnation})"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a peer is. What belongs to another generation needs a connection of its own."""

    info: StreamManagerInfo
    generation: int


class Connector:
    """Keeps a connection to one peer with a higher container number."""

    def __init__(self, host: Host, identity: Identity, container: int) -> None:
        self._host = host
        self._identity = identity
        self._container = container
        self._dialer = Dialer(f"container {container}", self._connect)
        self.run = self._dialer.run

    def set_plan(self, plan: PhysicalPlan) -> None:
        """A new plan: go where it says the peer is, and again when it begins another generation."""
        info = plan.stream_manager(self._container)
        self._dialer.set_target(None if info is None else Target(info, plan.generation.number))

    async def _connect(self, target: Target) -> bool:
        """One connection from hello to end. False if there was no hello."""
        us = self._host.core.peer_hello()
        keys = (CONTAINER_KEY, us.container), (INCARNATION_KEY, us.incarnation), (GENERATION_KEY, us.generation)
        metadata = self._identity.metadata(*((key, str(value)) for key, value in keys if value))
        async with make_channel(f"{target.info.host}:{target.info.port}", self._identity) as channel:
            try:
                stream = PEER_SERVICE.call(channel, "Control")(metadata=metadata)
                async with asyncio.timeout(HELLO_SECONDS):
                    await stream.write(us)
                    hello = await stream.read()
            except (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError, TimeoutError) as error:
                fault = error.details() if isinstance(error, grpc.aio.AioRpcError) else repr(error)
                self._dialer.failed(f"cannot be reached: {fault}")
                return False
            if not isinstance(hello, PeerHello) or hello.container != self._container:
                if isinstance(hello, Leave):
                    self._host.handle(PeerRefused(self._container, hello.reason))
                self._dialer.failed(f"it answers {hello}")
                return False
            self._dialer.answered()
            self._dialer.connection = connection = self._host.connect(_who(hello))
            self._host.handle(Connected(connection.number, hello, us.generation))
            if connection.ended.done():
                self._dialer.refused()
            try:
                if not connection.ended.done():
                    data = PEER_SERVICE.call(channel, "Data")(metadata=metadata)
                    await asyncio.gather(
                        self._host.control(connection, stream),
                        self._host.data(connection, data),
                    )
            finally:
                connection.end("the connector has ended")
                self._dialer.connection = None
            return True
