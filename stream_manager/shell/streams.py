"""gRPC streams as the core sees them: numbered connections, pumps that write, loops that read.

A connection is two streams, control and data; when either ends, both do. Each stream has one writer (a *pump*) with one
write in flight, which is never cancelled, since that would end the call under the packets before it. Nothing waits for
a timer: what queues up during a write goes with the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from heronry.wire.data import Packet
from heronry.wire.errors import MalformedMessage
from stream_manager.core.control_outbox import ControlOutbox

FAREWELL_SECONDS = 1.0
MALFORMED = "malformed message"

Read = Callable[[], Awaitable[Any]]
Write = Callable[[Any], Awaitable[Any]]

log = logging.getLogger(__name__)


class ControlPump:
    """Writes control messages; after ``close`` it writes what is left and ends."""

    def __init__(self) -> None:
        self._outbox = ControlOutbox()
        self._work = asyncio.Event()
        self._closing = False

    def put(self, message: Any) -> None:
        """Send this (see ``ControlOutbox`` for what replaces what)."""
        if not self._closing:
            self._outbox.put(message)
            self._work.set()

    def close(self) -> None:
        """No more messages."""
        self._closing = True
        self._work.set()

    async def run(self, write: Write) -> None:
        """Write until closed. Raises what ``write`` raises."""
        while True:
            while self._outbox:
                await write(self._outbox.take())
            if self._closing:
                return
            self._work.clear()
            await self._work.wait()


class DataPump:
    """Writes packets of one link as fast as the stream takes them."""

    def __init__(self, next_packet: Callable[[], Packet | None]) -> None:
        self._next_packet = next_packet
        self._work = asyncio.Event()
        self._closing = False

    def wake(self) -> None:
        """There may be a packet."""
        self._work.set()

    def close(self) -> None:
        """Ask for no more packets."""
        self._closing = True
        self._work.set()

    async def run(self, write: Write) -> None:
        """Write until closed. Raises what ``write`` raises."""
        while not self._closing:
            packet = self._next_packet()
            if packet is not None:
                await write(packet)
            else:
                self._work.clear()
                await self._work.wait()


class Connection:
    """Control and data stream to one neighbour. ``gone(reason)`` is called once, when the first of them ends."""

    def __init__(self, number: int, who: str, gone: Callable[[str], None]) -> None:
        self.number = number
        self.who = who
        self.control = ControlPump()
        self.data: DataPump | None = None
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._gone = gone

    def end(self, reason: str) -> None:
        """End both streams, after what was put into ``control``. The first reason counts."""
        if self.ended.done():
            return
        self.ended.set_result(reason)
        self.control.close()
        if self.data is not None:
            self.data.close()
        self._gone(reason)

    async def converse(self, read: Read, handle: Callable[[Any], None], writing: Awaitable[None]) -> None:
        """Run one stream until it or the connection ends."""
        reader: asyncio.Future[Any] = asyncio.ensure_future(_read_all(read, handle))
        writer: asyncio.Future[Any] = asyncio.ensure_future(writing)
        ended: asyncio.Future[Any] = self.ended
        try:
            await asyncio.wait({reader, writer, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.end(_why(reader) or _why(writer) or "closed by the other end")
            if not writer.done():
                await asyncio.wait({writer}, timeout=FAREWELL_SECONDS)
            for task in (reader, writer):  # the call is over: whatever they wait for will not come
                task.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)


async def _read_all(read: Read, handle: Callable[[Any], None]) -> None:
    while True:
        message = await read()
        if message is grpc.aio.EOF:
            return
        if message is None:  # what a client's read gives for bytes that cannot be decoded
            raise MalformedMessage("a message that cannot be decoded")
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
    if not isinstance(error, grpc.RpcError | grpc.aio.BaseError | asyncio.InvalidStateError):
        log.error("unexpected fault of a stream", exc_info=error)
    return f"{type(error).__name__}: {error}"
