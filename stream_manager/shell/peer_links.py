"""The mesh: serves peers with a lower container number, connects to those with a higher one."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc
import grpc.aio

from heronry.model.plan import PhysicalPlan, StreamManagerInfo
from heronry.net.rpc import credentials, make_channel, make_server
from heronry.net.services import PEER_SERVICE
from heronry.wire.control import Leave, PeerControl, PeerHello
from heronry.wire.data import Packet
from stream_manager.core.effects import Exit
from stream_manager.shell.host import Host
from stream_manager.shell.instance_server import INCARNATION_KEY, first_message, metadata_numbers
from stream_manager.shell.streams import Connection

CONTAINER_KEY = "heronry-container"
BACKOFF_MIN_SECONDS = 0.1
BACKOFF_MAX_SECONDS = 2.0
HELLO_SECONDS = 10.0

log = logging.getLogger(__name__)


async def start_peer_server(host: Host, secret: str, address: str) -> tuple[grpc.aio.Server, int]:
    """Serve peers on a free port of ``address``. Returns the server and the port."""
    service = _PeerService(host)
    handler = PEER_SERVICE.handler(Control=service.control, Data=service.data)
    server = make_server(secret, host.core.topology_id, [handler])
    port = server.add_insecure_port(f"{address}:0")
    await server.start()
    return server, port


class _PeerService:
    def __init__(self, host: Host) -> None:
        self._host = host

    async def control(self, _: Any, context: grpc.aio.ServicerContext) -> None:
        hello = await first_message(context)
        if not isinstance(hello, PeerHello):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message of a peer is PeerHello")
        connection = _greet(self._host, hello)
        await _control(self._host, connection, hello.container, context)

    async def data(self, _: Any, context: grpc.aio.ServicerContext) -> None:
        container, incarnation = metadata_numbers(context, CONTAINER_KEY, INCARNATION_KEY)
        peer = self._host.core.mesh.of_container(container) if container > 0 else None
        number = None if peer is None or peer.incarnation != incarnation else peer.connection
        connection = None if number is None else self._host.connections.get(number)
        if connection is None or connection.data is not None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "say hello on a control stream first")
            return
        await _data(self._host, connection, container, context)


def _greet(host: Host, hello: PeerHello, answer: bool = True) -> Connection:
    core, container = host.core, hello.container
    who = f"container {container} (incarnation {hello.incarnation})"
    connection = host.connect(who, lambda number: core.handle_peer_gone(number, container))
    if answer:
        connection.control.put(core.peer_hello())
    host.act(core.handle_peer_hello(connection.number, hello))
    return connection


async def _control(host: Host, connection: Connection, container: int, stream: Any) -> None:
    def handle(message: PeerControl) -> None:
        host.act(host.core.handle_peer_control(connection.number, container, message))

    await connection.converse(stream.read, handle, connection.control.run(stream.write))


async def _data(host: Host, connection: Connection, container: int, stream: Any) -> None:
    def handle(packet: Packet) -> None:
        host.act(host.core.handle_peer_packet(connection.number, container, packet))

    pump = host.pump(connection, host.core.mesh.of_container(container).link)
    host.act(host.core.handle_peer_data(connection.number, container))
    await connection.converse(stream.read, handle, pump.run(stream.write))


class Connector:
    """Keeps a connection to one peer with a higher container number."""

    def __init__(self, host: Host, secret: str, container: int) -> None:
        self._host = host
        self._secret = secret
        self._container = container
        self._moved = asyncio.Event()
        self._connection: Connection | None = None
        self._target: StreamManagerInfo | None = None
        self._said = ""

    def set_plan(self, plan: PhysicalPlan) -> None:
        """A new plan: go where it says the peer is."""
        target = plan.stream_manager(self._container)
        if target != self._target:
            self._target = target
            self._moved.set()
            if self._connection is not None:
                self._connection.end("the plan names another stream manager")

    async def run(self) -> None:
        """Connect, again and again."""
        delay = BACKOFF_MIN_SECONDS
        while True:
            if self._target is not None and await self._connect(self._target):
                delay = BACKOFF_MIN_SECONDS
            try:
                async with asyncio.timeout(None if self._target is None else delay):
                    await self._moved.wait()
                delay = BACKOFF_MIN_SECONDS
            except TimeoutError:
                delay = min(2 * delay, BACKOFF_MAX_SECONDS)
            self._moved.clear()

    async def _connect(self, target: StreamManagerInfo) -> bool:
        """One connection from hello to end. False if there was no hello."""
        core = self._host.core
        metadata = credentials(
            self._secret,
            core.topology_id,
            (CONTAINER_KEY, str(core.container)),
            (INCARNATION_KEY, str(core.info.incarnation)),
        )
        async with make_channel(f"{target.host}:{target.port}") as channel:
            try:
                stream = PEER_SERVICE.call(channel, "Control")(metadata=metadata)
                async with asyncio.timeout(HELLO_SECONDS):
                    hello = await self._hello(stream)
            except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError, TimeoutError) as error:
                self._say(error.details() if isinstance(error, grpc.aio.AioRpcError) else repr(error))
                return False
            if not isinstance(hello, PeerHello) or hello.container != self._container:
                if isinstance(hello, Leave):
                    self._host.act([Exit(hello.reason)])
                self._say(f"it answers {hello}")
                return False
            self._said = ""
            self._connection = connection = _greet(self._host, hello, answer=False)
            try:
                if not connection.ended.done():
                    data = PEER_SERVICE.call(channel, "Data")(metadata=metadata)
                    await asyncio.gather(
                        _control(self._host, connection, self._container, stream),
                        _data(self._host, connection, self._container, data),
                    )
            finally:
                connection.end("the connector has ended")
                self._connection = None
            return True

    async def _hello(self, stream: Any) -> Any:
        await stream.write(self._host.core.peer_hello())
        return await stream.read()

    def _say(self, fault: str | None) -> None:
        """Log a fault once, not at every attempt."""
        text = fault or "no answer"
        if text != self._said:
            self._said = text
            log.warning("container %d cannot be reached: %s", self._container, text)
