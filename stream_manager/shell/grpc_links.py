"""gRPC connections to the stream managers of other containers and to the topology master.

Of two stream managers the one with the lower container number connects to the other. The topology master is found
through the state store, or at its last address while the store is unavailable.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from heron_runtime.launch import Launch
from heron_runtime.model.plan import PhysicalPlan, StreamManagerInfo
from heron_runtime.model.records import MasterLocation
from heron_runtime.net.identity import Identity
from heron_runtime.net.rpc import MASTER_SERVICE, PEER_SERVICE, make_channel, make_server
from heron_runtime.state import paths, store_of
from heron_runtime.state.store import StateStore, StoreError
from heron_runtime.wire.control import Leave, PeerHello
from heron_runtime.wire.errors import MalformedMessage
from heron_runtime.wire.master import FromMaster, ToMaster
from heron_runtime.wire.message_codecs import MASTER_LOCATION
from stream_manager.core.events import (
    ConnectionOpened,
    MasterConnected,
    MasterDisconnected,
    MasterMessage,
    PeerRejected,
)
from stream_manager.shell.driver import Connection, CoreDriver

BACKOFF_MIN_SECONDS = 0.1
BACKOFF_MAX_SECONDS = 2.0
REFUSED_MIN_SECONDS = 0.05  # one of the two ends will receive its plan soon
REFUSED_MAX_SECONDS = 0.4

T = TypeVar("T")
log = logging.getLogger(__name__)


class Dialer(Generic[T]):
    """Keeps one connection to a target.

    It connects immediately when the target changes, and again with a growing delay while the target does not answer.
    The delay is shorter after a refusal, since both ends then only differ in their plan.

    Args:
        who: Name of the target in log messages.
        connect: Runs one connection from its first to its last message; returns False if there was no answer. While it
            runs it sets ``connection``, and it calls ``refused`` if one of the ends refused the connection.
    """

    def __init__(self, who: str, connect: Callable[[T], Awaitable[bool]]) -> None:
        self.connection: Connection | None = None
        self._who = who
        self._connect = connect
        self._target: T | None = None
        self._moved = asyncio.Event()
        self._fault = ""
        self._refused = False

    def set_target(self, target: T | None) -> bool:
        """Set the target. Return False if it is unchanged."""
        if target == self._target:
            return False
        self._target = target
        self._moved.set()
        if self.connection is not None:
            self.connection.end(f"{self._who} has a new address or generation")
        return True

    async def run(self) -> None:
        """Connect until cancelled."""
        delay, refusals = BACKOFF_MIN_SECONDS, 0
        while True:
            self._refused = False
            if self._target is not None and await self._connect(self._target):
                delay = BACKOFF_MIN_SECONDS
            refusals = refusals + 1 if self._refused else 0
            wait = min(REFUSED_MIN_SECONDS * 2 ** min(refusals - 1, 8), REFUSED_MAX_SECONDS) if refusals else delay
            try:
                async with asyncio.timeout(None if self._target is None else wait):
                    await self._moved.wait()
                delay, refusals = BACKOFF_MIN_SECONDS, 0
            except TimeoutError:
                delay = min(2 * delay, BACKOFF_MAX_SECONDS)
            self._moved.clear()

    def refused(self) -> None:
        """Record that one of the ends has refused the current connection."""
        self._refused = True

    def answered(self) -> None:
        """Record an answer, so that the next failure is logged again."""
        self._fault = ""

    def failed(self, fault: str) -> None:
        """Log a failure once, not at each attempt."""
        if fault != self._fault:
            self._fault = fault
            log.warning("%s: %s", self._who, fault)


CONTAINER_KEY = "heronry-container"
INCARNATION_KEY = "heronry-incarnation"
GENERATION_KEY = "heronry-generation"
HELLO_SECONDS = 10.0


async def start_peer_server(driver: CoreDriver, identity: Identity, address: str) -> tuple[grpc.aio.Server, int]:
    """Serve peers on a free port of ``address``. Return the server and the port."""
    service = _PeerService(driver)
    handler = PEER_SERVICE.handler(Control=service.control, Data=service.data)
    server, port = make_server(identity, f"{address}:0", [handler])
    await server.start()
    return server, port


class _PeerService:
    def __init__(self, driver: CoreDriver) -> None:
        self._driver = driver

    async def control(self, _: Any, context: grpc.aio.ServicerContext) -> None:
        try:
            hello = await context.read()
        except MalformedMessage:
            hello = None
        if not isinstance(hello, PeerHello):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message of a peer is PeerHello")
        connection = self._driver.connect(_who(hello))
        us = self._driver.core.peer_hello()
        connection.send(us)
        self._driver.handle(ConnectionOpened(connection.number, hello, us.generation))
        await self._driver.control(connection, context)

    async def data(self, _: Any, context: grpc.aio.ServicerContext) -> None:
        who = _metadata_numbers(context, CONTAINER_KEY, INCARNATION_KEY, GENERATION_KEY)
        connection = self._driver.without_data(self._driver.core.peer_connection(*who))
        if connection is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "say hello on a control stream first")
            return
        await self._driver.data(connection, context)


def _metadata_numbers(context: grpc.aio.ServicerContext, *keys: str) -> list[int]:
    """Return metadata as numbers; 0 for missing or invalid ones."""
    metadata = {key: str(value) for key, value in context.invocation_metadata() or ()}
    return [int(text) if (text := metadata.get(key, "")).isdecimal() else 0 for key in keys]


def _who(hello: PeerHello) -> str:
    return f"container {hello.container} (incarnation {hello.incarnation})"


@dataclass(frozen=True, slots=True)
class PeerTarget:
    """Address of a peer and the generation of the connection to it."""

    info: StreamManagerInfo
    generation: int


class PeerConnector:
    """Keeps the connection to one peer with a higher container number."""

    def __init__(self, driver: CoreDriver, identity: Identity, container: int) -> None:
        self._driver = driver
        self._identity = identity
        self._container = container
        self._dialer = Dialer(f"container {container}", self._connect)

    async def run(self) -> None:
        """Connect until cancelled."""
        await self._dialer.run()

    def set_plan(self, plan: PhysicalPlan) -> None:
        """Apply a new plan: connect to the address it names, and again when a generation begins."""
        info = plan.stream_manager(self._container)
        self._dialer.set_target(None if info is None else PeerTarget(info, plan.generation.number))

    async def _connect(self, target: PeerTarget) -> bool:
        """Run one connection. Return False if the peer did not answer with a hello."""
        us = self._driver.core.peer_hello()
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
                    self._driver.handle(PeerRejected(self._container, hello.reason))
                self._dialer.failed(f"unexpected answer {hello}")
                return False
            self._dialer.answered()
            self._dialer.connection = connection = self._driver.connect(_who(hello))
            self._driver.handle(ConnectionOpened(connection.number, hello, us.generation))
            if connection.ended.done():
                self._dialer.refused()
            try:
                if not connection.ended.done():
                    data = PEER_SERVICE.call(channel, "Data")(metadata=metadata)
                    await asyncio.gather(
                        self._driver.control(connection, stream),
                        self._driver.data(connection, data),
                    )
            finally:
                connection.end("the connector has ended")
                self._dialer.connection = None
            return True


class MasterWatcher:
    """Watches the location of the topology master in the state store.

    Args:
        launch: Launch file of the container.
        on_location: Called with each new location and its encoded form.
    """

    def __init__(self, launch: Launch, on_location: Callable[[MasterLocation, bytes], None]) -> None:
        self._launch = launch
        self._on_location = on_location
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled. Retries while the state store is unavailable."""
        loop = asyncio.get_running_loop()
        store = store_of(self._launch)
        path = paths.master(self._launch.topology)

        def changed(_: str) -> None:  # on a thread of the store
            with contextlib.suppress(RuntimeError):  # the loop may be closed already
                loop.call_soon_threadsafe(self._changed.set)

        delay = BACKOFF_MIN_SECONDS
        is_open = False
        try:
            while True:
                try:
                    if not is_open:
                        await asyncio.to_thread(store.open)
                        await asyncio.to_thread(store.watch, path, changed)
                        is_open = True
                    await self._look(store, path)
                    delay = BACKOFF_MIN_SECONDS
                    await self._changed.wait()
                except StoreError as error:
                    log.warning("state store: %s; using the last known location", error)
                    await asyncio.sleep(delay)
                    delay = min(2 * delay, BACKOFF_MAX_SECONDS)
        finally:
            with contextlib.suppress(StoreError):
                await asyncio.to_thread(store.close)

    async def _look(self, store: StateStore, path: str) -> None:
        self._changed.clear()
        node = await asyncio.to_thread(store.get, path)
        if node is None:
            return  # no leader at the moment; the last one may return
        try:
            location = MASTER_LOCATION.decode(node.data)
        except MalformedMessage as error:
            log.warning("%s: %s", path, error)
            return
        if location.topology_id == self._launch.topology_id:
            self._on_location(location, node.data)


class MasterClient:
    """Keeps the stream to the topology master: registers, sends heartbeats, passes its messages to the core."""

    def __init__(self, driver: CoreDriver, identity: Identity) -> None:
        self._driver = driver
        self._identity = identity
        self._dialer = Dialer("topology master", self._connect)

    async def run(self) -> None:
        """Connect until cancelled."""
        await self._dialer.run()

    def set_location(self, location: MasterLocation) -> None:
        """Set the location of the topology master."""
        if self._dialer.set_target(location):
            log.info("topology master: %s:%d, epoch %d", location.host, location.port, location.epoch)

    def send(self, message: ToMaster) -> None:
        """Send a message if the topology master is connected."""
        if self._dialer.connection is not None:
            self._dialer.connection.send(message)

    def leave(self, reason: str) -> None:
        """Disconnect if the topology master is connected."""
        if self._dialer.connection is not None:
            self._dialer.connection.end(reason)

    async def _connect(self, location: MasterLocation) -> bool:
        """Run one connection. Return True if a message has arrived."""
        heard = False

        def handle(message: FromMaster) -> None:
            nonlocal heard
            if not heard:
                log.info("topology master: registered")
            heard = True
            self._dialer.answered()
            self._driver.handle(MasterMessage(message))

        async with make_channel(f"{location.host}:{location.port}", self._identity) as channel:
            stream = MASTER_SERVICE.call(channel, "StreamManager")(metadata=self._identity.metadata())
            self._dialer.connection = connection = Connection(0, "topology master", self._gone)
            self._driver.handle(MasterConnected())
            try:
                await connection.converse(stream, handle, connection.control)
            finally:
                self._dialer.connection = None
                stream.cancel()
        return heard

    def _gone(self, reason: str) -> None:
        self._dialer.failed(reason)
        self._driver.handle(MasterDisconnected())
