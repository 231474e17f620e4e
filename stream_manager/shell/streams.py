"""Streams to instances (framed) and peers (gRPC) as the core sees them: numbered connections, pumps that write, loops
that read.

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

from heron_runtime.net.link import EOF, LinkLost
from heron_runtime.wire.errors import MalformedMessage
from stream_manager.core.control_outbox import ControlOutbox

FAREWELL_SECONDS = 1.0
MALFORMED = "malformed message"

Read = Callable[[], Awaitable[Any]]
Write = Callable[[Any], Awaitable[Any]]

log = logging.getLogger(__name__)


class Pump:
    """Writes what ``take`` gives as fast as the stream takes it. After ``close`` it writes what is left and ends."""

    def __init__(self, take: Callable[[], Any | None]) -> None:
        self._take = take
        self._work = asyncio.Event()
        self._closing = False

    def wake(self) -> None:
        """There may be something."""
        self._work.set()

    def close(self) -> None:
        """Nothing more will come."""
        self._closing = True
        self._work.set()

    async def run(self, write: Write) -> None:
        """Write until closed. Raises what ``write`` raises."""
        while True:
            message = self._take()
            if message is not None:
                await write(message)
            elif self._closing:
                return
            else:
                self._work.clear()
                await self._work.wait()


class Connection:
    """Control and data stream to one neighbour. ``gone(reason)`` is called once, when the first of them ends."""

    def __init__(self, number: int, who: str, gone: Callable[[str], None]) -> None:
        self.number = number
        self.who = who
        self._outbox = ControlOutbox()
        self.control = Pump(self._outbox.take)
        self.data: Pump | None = None
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._gone = gone

    def send(self, message: Any) -> None:
        """On the control stream (see ``ControlOutbox`` for what replaces what)."""
        if not self.ended.done():
            self._outbox.put(message)
            self.control.wake()

    def end(self, reason: str) -> None:
        """End both streams, after what was sent on the control stream. The first reason counts."""
        if self.ended.done():
            return
        self.ended.set_result(reason)
        self.control.close()
        if self.data is not None:
            self.data.close()
        self._gone(reason)

    async def converse(self, stream: Any, handle: Callable[[Any], None], pump: Pump) -> None:
        """Run one stream until it or the connection ends."""
        reader: asyncio.Future[Any] = asyncio.ensure_future(_read_all(stream.read, handle))
        writer: asyncio.Future[Any] = asyncio.ensure_future(pump.run(stream.write))
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
        if message is EOF or message is grpc.aio.EOF:
            return
        if message is None:  # what the read of a gRPC client gives for bytes that cannot be decoded
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
    if isinstance(error, LinkLost):
        return str(error)
    if not isinstance(error, grpc.RpcError | grpc.aio.BaseError | asyncio.InvalidStateError):
        log.error("unexpected fault of a stream", exc_info=error)
    return f"{type(error).__name__}: {error}"
