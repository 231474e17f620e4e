"""Driver of the core: numbered connections to instances and peers, and the effects that the core requests.

A connection consists of a control stream and a data stream; when one ends, both do. Each stream has one writer (a
*pump*) with one write in flight. A write is never cancelled, since that would end the call before earlier packets have
left. What is queued during a write leaves with the next one.

The traffic of a container is spread over its k - 1 peers, so the number of packets at a given load would grow with the
square of k, and a packet costs as much as a hundred tuples. Data packets are therefore *spaced*: the gap between two
packets of a stream grows with the number of peers, unless enough data is queued. A packet after a rest leaves
immediately. Without peers the gap is zero.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import grpc
import grpc.aio

from heron_runtime.net.link import EOF, LinkLost
from heron_runtime.telemetry.reporter import ReportRelay
from heron_runtime.wire.data import Packet
from heron_runtime.wire.errors import MalformedMessage
from heron_runtime.wire.master import ToMaster
from heron_runtime.wire.metrics import ProcessMetrics
from stream_manager.core.events import (
    ConnectionEnded,
    ControlReceived,
    DataStreamOpened,
    Effect,
    EndConnection,
    EpochRaised,
    Event,
    LeaveMaster,
    PlanAccepted,
    SendMessage,
    SendToMaster,
    StopReplaced,
    WakeLink,
)
from stream_manager.core.links import ControlOutbox
from stream_manager.core.stream_manager import StreamManager

FAREWELL_SECONDS = 1.0
MALFORMED = "malformed message"
ENOUGH_BYTES = 16 * 1024  # of queued data: the packet leaves without a gap
GAP_SECONDS_EACH_PEER = 0.0015
LONGEST_GAP_SECONDS = 0.005

Read = Callable[[], Awaitable[Any]]
Write = Callable[[Any], Awaitable[Any]]

log = logging.getLogger(__name__)


class PacketPump:
    """Writes the messages that ``take`` returns as fast as the stream accepts them.

    After ``close`` it writes what is left and ends.
    """

    def __init__(self, take: Callable[[], Any | None]) -> None:
        self._take = take
        self._work = asyncio.Event()
        self._closing = False

    def wake(self) -> None:
        """Look for messages."""
        self._work.set()

    def close(self) -> None:
        """End after the remaining messages."""
        self._closing = True
        self._work.set()

    async def run(self, write: Write) -> None:
        """Write until closed. Exceptions of ``write`` are passed on."""
        while True:
            message = self._take()
            if message is not None:
                await write(message)
            elif self._closing:
                return
            else:
                self._work.clear()
                await self._work.wait()


@dataclass(frozen=True)
class Spacing:
    """Limits of a ``SpacedPump``.

    Attributes:
        gap: Returns the least seconds between two packets.
        waiting_bytes: Returns the bytes queued for the next packet.
    """

    gap: Callable[[], float]
    waiting_bytes: Callable[[], int]


class SpacedPump(PacketPump):
    """Pump that leaves a gap between two messages, unless enough is queued."""

    def __init__(self, take: Callable[[], Any | None], gathering: Spacing) -> None:
        super().__init__(take)
        self._gathering = gathering
        self._loop = asyncio.get_running_loop()
        self._due = 0.0  # when the next message may leave
        self._timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Look for messages."""
        seconds = self._due - self._loop.time()
        if seconds <= 0 or self._gathering.waiting_bytes() >= ENOUGH_BYTES:
            self._go()
        elif self._timer is None:
            self._timer = self._loop.call_later(seconds, self._go)

    def _go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._work.set()

    async def run(self, write: Write) -> None:
        """Write until closed. Exceptions of ``write`` are passed on."""
        try:
            while not self._closing:
                await self._work.wait()
                self._work.clear()
                message = self._take()
                if message is not None:
                    self._due = self._loop.time() + self._gathering.gap()
                    await write(message)
                    if self._gathering.waiting_bytes():
                        self.wake()
            await super().run(write)
        finally:
            if self._timer is not None:
                self._timer.cancel()


class Connection:
    """Control and data stream to one neighbour.

    Args:
        number: Number by which the core knows the connection.
        who: Name of the neighbour in log messages.
        gone: Called once with the reason, when the first stream ends.
    """

    def __init__(self, number: int, who: str, gone: Callable[[str], None]) -> None:
        self.number = number
        self.who = who
        self._outbox = ControlOutbox()
        self.control = PacketPump(self._outbox.take)
        self.data: PacketPump | None = None
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._gone = gone

    def send(self, message: Any) -> None:
        """Queue a message on the control stream (``ControlOutbox``)."""
        if not self.ended.done():
            self._outbox.put(message)
            self.control.wake()

    def end(self, reason: str) -> None:
        """End both streams after the queued control messages. Only the first call has an effect."""
        if self.ended.done():
            return
        self.ended.set_result(reason)
        self.control.close()
        if self.data is not None:
            self.data.close()
        self._gone(reason)

    async def converse(self, stream: Any, handle: Callable[[Any], None], pump: PacketPump) -> None:
        """Run one stream until it or the connection ends."""
        reader: asyncio.Future[Any] = asyncio.ensure_future(_read_all(stream.read, handle))
        writer: asyncio.Future[Any] = asyncio.ensure_future(pump.run(stream.write))
        ended: asyncio.Future[Any] = self.ended
        try:
            await asyncio.wait({reader, writer, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            try:
                self.end(_why(reader) or _why(writer) or "closed by the other end")
                if not writer.done():
                    await asyncio.wait({writer}, timeout=FAREWELL_SECONDS)
            finally:  # also if this is cancelled meanwhile: the call has ended
                for task in (reader, writer):
                    task.cancel()
                await asyncio.gather(reader, writer, return_exceptions=True)


async def _read_all(read: Read, handle: Callable[[Any], None]) -> None:
    while True:
        message = await read()
        if message is EOF or message is grpc.aio.EOF:
            return
        if message is None:  # a gRPC client returns it for bytes that cannot be decoded
            raise MalformedMessage("a message cannot be decoded")
        handle(message)


def _why(task: asyncio.Future[None]) -> str:
    if not task.done() or task.cancelled():
        return ""
    error = task.exception()
    if error is None:
        return ""
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    if isinstance(error, MalformedMessage):
        return f"{MALFORMED}: {error}"
    if isinstance(error, LinkLost):
        return str(error)
    if not isinstance(error, grpc.RpcError | grpc.aio.BaseError | asyncio.InvalidStateError):
        log.error("unexpected exception of a stream", exc_info=error)
    return f"{type(error).__name__}: {error}"


def now_ms() -> int:
    """Return monotonic time in milliseconds."""
    return time.monotonic_ns() // 1_000_000


class DriverSurroundings(Protocol):
    """Parts of the process that effects of the core concern: plan file, peer connectors and master client."""

    def accept_plan(self, effect: PlanAccepted) -> None:
        """Store a plan, and connect to the peers that this stream manager calls."""

    def save_epoch(self, epoch: int) -> None:
        """Store an epoch."""

    def send_to_master(self, message: ToMaster) -> None:
        """Send a message to the topology master if it is connected."""

    def leave_master(self, reason: str) -> None:
        """Disconnect from the topology master if it is connected."""


class CoreDriver:
    """Passes events to the core and runs its effects. All of it runs on one event loop, so the core needs no lock.

    Args:
        core: Core of the stream manager.
        surroundings: Runs the effects that do not concern a connection.
    """

    def __init__(self, core: StreamManager, surroundings: DriverSurroundings) -> None:
        self.core = core
        self._surroundings = surroundings
        self.connections: dict[int, Connection] = {}
        self.reports = ReportRelay()  # metrics reports of the instances, for the metrics manager
        self.stop = asyncio.Event()
        self.replaced = False
        self._numbers = itertools.count(1)
        self._todo: deque[Effect] = deque()
        self._acting = False

    def handle(self, event: Event) -> None:
        """Pass an event to the core and run its effects."""
        self._act(self.core.handle(event))

    def connect(self, who: str) -> Connection:
        """Create a connection and assign its number."""
        number = next(self._numbers)
        connection = self.connections[number] = Connection(number, who, partial(self._ended, number, who))
        log.info("%s: connected", who)
        return connection

    def without_data(self, number: int | None) -> Connection | None:
        """Return a connection that is open and has no data stream yet, or None."""
        connection = None if number is None else self.connections.get(number)
        return None if connection is None or connection.data is not None else connection

    async def control(self, connection: Connection, stream: Any) -> None:
        """Run the control stream of a connection until it ends."""

        def heard(message: Any) -> None:
            if isinstance(message, ProcessMetrics):
                self.reports.put(message)
            else:
                self.handle(ControlReceived(connection.number, message))

        await connection.converse(stream, heard, connection.control)

    async def data(self, connection: Connection, stream: Any) -> None:
        """Run the data stream of a connection until it ends."""
        number = connection.number
        pump = connection.data = self._pump(number)
        self.handle(DataStreamOpened(number))

        def arrived(packet: Packet) -> None:
            self._act(self.core.packet(number, packet))

        await connection.converse(stream, arrived, pump)

    def _pump(self, number: int) -> PacketPump:
        """Return the pump of a data stream."""
        take, neighbour = partial(self._next_packet, number), self.core.connections.at(number)
        if neighbour is not None:
            return SpacedPump(take, Spacing(self._gap, neighbour.link.waiting_bytes))
        return PacketPump(take)

    def _gap(self) -> float:
        """Return the least seconds between two packets of one stream."""
        return min(LONGEST_GAP_SECONDS, GAP_SECONDS_EACH_PEER * len(self.core.current.routes.peers))

    def _act(self, effects: list[Effect]) -> None:
        """Run effects in order. The effects that they lead to run after them."""
        self._todo.extend(effects)
        if self._acting:
            return
        self._acting = True
        try:
            while self._todo:
                self._run(self._todo.popleft())
        finally:
            self._acting = False

    def _run(self, effect: Effect) -> None:
        """Run one effect. Effects on a connection that has ended have no consequence."""
        match effect:
            case WakeLink(number):
                connection = self.connections.get(number)
                if connection is not None and connection.data is not None:
                    connection.data.wake()
            case SendMessage(number, message):
                connection = self.connections.get(number)
                if connection is not None:
                    connection.send(message)
            case EndConnection(number, reason):
                connection = self.connections.get(number)
                if connection is not None:
                    connection.end(reason)
            case SendToMaster(to_master):
                self._surroundings.send_to_master(to_master)
            case LeaveMaster(reason):
                self._surroundings.leave_master(reason)
            case PlanAccepted():
                self._surroundings.accept_plan(effect)
            case EpochRaised(epoch):
                self._surroundings.save_epoch(epoch)
            case StopReplaced(reason):
                log.warning("stopping, since another stream manager has taken over: %s", reason)
                self.replaced = True
                self.stop.set()

    def _next_packet(self, number: int) -> Packet | None:
        packet, effects = self.core.next_packet(number)
        if effects:
            self._act(effects)
        return packet

    def _ended(self, number: int, who: str, reason: str) -> None:
        del self.connections[number]
        malformed = reason.startswith(MALFORMED)
        log.log(logging.WARNING if malformed else logging.INFO, "%s: disconnected: %s", who, reason)
        self.handle(ConnectionEnded(number, malformed))
