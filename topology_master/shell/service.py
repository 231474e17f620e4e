"""Links of the stream managers: one reader and one writer each, and an outbox of bounded size.

An outbox holds one message of each kind, since a newer plan or reply replaces the older one. One write
is in flight per stream and is never cancelled, because cancelling a write ends the whole call.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Any

import grpc.aio

from heron_runtime.wire.control import Leave, PlanUpdate
from heron_runtime.wire.errors import MalformedMessage
from heron_runtime.wire.master import FromMaster, Heartbeat, HeartbeatReply, Register
from topology_master.core.events import Event, HeartbeatReceived, LinkClosed, RegistrationReceived

MAX_LINKS = 8192
CLOSE = None

log = logging.getLogger(__name__)


class _Outbox:
    """The newest message of each kind in order of urgency; nothing after CLOSE."""

    def __init__(self) -> None:
        self._slots: dict[type, FromMaster] = {}
        self._closing = False
        self._news = asyncio.Event()

    def put(self, message: FromMaster) -> None:
        self._slots[type(message)] = message
        self._news.set()

    def close(self) -> None:
        self._closing = True
        self._news.set()

    async def get(self) -> FromMaster | None:
        """Return the next message, or CLOSE."""
        while True:
            for kind in (Leave, PlanUpdate, HeartbeatReply):
                message = self._slots.pop(kind, None)
                if message is not None:
                    return message
            if self._closing:
                return CLOSE
            self._news.clear()
            await self._news.wait()


class StreamManagerLinks:
    """Open streams of the stream managers."""

    def __init__(self, inbox: Callable[[Event], None]) -> None:
        self._inbox = inbox
        self._numbers = itertools.count(1)
        self._outboxes: dict[int, _Outbox] = {}

    def send(self, link: int, message: FromMaster) -> None:
        """Send a message if the link is still open."""
        outbox = self._outboxes.get(link)
        if outbox is not None:
            outbox.put(message)

    def close(self, link: int) -> None:
        """End the stream after the messages in its outbox."""
        outbox = self._outboxes.get(link)
        if outbox is not None:
            outbox.close()

    def close_all(self) -> None:
        """End every stream."""
        for outbox in self._outboxes.values():
            outbox.close()

    async def serve(self, _: Any, context: grpc.aio.ServicerContext) -> None:
        """Serve ``MASTER_SERVICE.StreamManager`` while the stream lives."""
        if len(self._outboxes) >= MAX_LINKS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"more than {MAX_LINKS} stream managers")
        link = next(self._numbers)
        outbox = self._outboxes[link] = _Outbox()
        reader = asyncio.create_task(self._read(link, outbox, context), name=f"link {link} reader")
        try:
            while (message := await outbox.get()) is not CLOSE:
                await context.write(message)
        except grpc.aio.BaseError as error:
            log.info("link %d broke: %r", link, error)
        finally:
            del self._outboxes[link]
            reader.cancel()
            self._inbox(LinkClosed(link))

    async def _read(self, link: int, outbox: _Outbox, context: grpc.aio.ServicerContext) -> None:
        try:
            while (message := await context.read()) is not grpc.aio.EOF:
                if isinstance(message, Register):
                    self._inbox(RegistrationReceived(link, message))
                elif isinstance(message, Heartbeat):
                    self._inbox(HeartbeatReceived(link, message))
        except (grpc.aio.BaseError, MalformedMessage) as error:
            log.info("link %d ends: %r", link, error)
        finally:
            outbox.close()
