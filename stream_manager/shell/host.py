"""One core and the world: tells the core what happens, does what it wants, and keeps the connections by number."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from heron_runtime.telemetry.reporter import Waiting
from heron_runtime.wire.data import Packet
from heron_runtime.wire.metrics import ProcessMetrics
from stream_manager.core.effects import Effect, End, Replaced, Send, Wake
from stream_manager.core.events import ConnectionEnded, DataOpened, Event, Heard
from stream_manager.core.stream_manager import StreamManager
from stream_manager.shell.streams import (
    GAP_SECONDS_EACH_PEER,
    LONGEST_GAP_SECONDS,
    MALFORMED,
    Connection,
    Gathering,
    GatheringPump,
    Pump,
)

log = logging.getLogger(__name__)


def now_ms() -> int:
    """The monotonic clock."""
    return time.monotonic_ns() // 1_000_000


class Host:
    """Owns the core. Everything runs on one loop, so the core needs no lock."""

    def __init__(self, core: StreamManager) -> None:
        self.core = core
        self.connections: dict[int, Connection] = {}
        self.reports = Waiting()  # of the instances, for the metrics manager
        self.stop = asyncio.Event()
        self.replaced = False
        self._numbers = itertools.count(1)
        self._todo: deque[Effect] = deque()
        self._acting = False
        self._do: dict[type[Effect], Callable[[Any], None]] = {
            Wake: self._wake,
            Send: self._send,
            End: self._end,
            Replaced: self._replaced,
        }

    def on(self, kind: type[Effect], do: Callable[[Any], None]) -> None:
        """Who does the effects of this kind."""
        self._do[kind] = do

    def handle(self, event: Event) -> None:
        """Tell the core, and do what it wants."""
        self._act(self.core.handle(event))

    def connect(self, who: str) -> Connection:
        """A new connection, with its number."""
        number = next(self._numbers)
        connection = self.connections[number] = Connection(number, who, partial(self._ended, number, who))
        log.info("%s: connected", who)
        return connection

    def without_data(self, number: int | None) -> Connection | None:
        """The connection of this number, if it is open and has no data stream yet."""
        connection = None if number is None else self.connections.get(number)
        return None if connection is None or connection.data is not None else connection

    async def control(self, connection: Connection, stream: Any) -> None:
        """Run the control stream of a connection."""

        def heard(message: Any) -> None:
            if isinstance(message, ProcessMetrics):
                self.reports.put(message)
            else:
                self.handle(Heard(connection.number, message))

        await connection.converse(stream, heard, connection.control)

    async def data(self, connection: Connection, stream: Any) -> None:
        """Run the data stream of a connection."""
        number = connection.number
        pump = connection.data = self._pump(number)
        self.handle(DataOpened(number))

        def arrived(packet: Packet) -> None:
            self._act(self.core.packet(number, packet))

        await connection.converse(stream, arrived, pump)

    def _pump(self, number: int) -> Pump:
        """Of the data stream: its packets gather."""
        take, neighbour = partial(self._next_packet, number), self.core.connections.at(number)
        if neighbour is not None:
            return GatheringPump(take, Gathering(self._gap, neighbour.link.waiting_bytes))
        return Pump(take)

    def _gap(self) -> float:
        """Seconds from packet to packet on one stream."""
        return min(LONGEST_GAP_SECONDS, GAP_SECONDS_EACH_PEER * len(self.core.standing.routes.peers))

    def _act(self, effects: list[Effect]) -> None:
        """Do these, in order. What they lead to is done after them."""
        self._todo.extend(effects)
        if self._acting:
            return
        self._acting = True
        try:
            while self._todo:
                effect = self._todo.popleft()
                self._do[type(effect)](effect)
        finally:
            self._acting = False

    def _wake(self, effect: Wake) -> None:
        connection = self.connections.get(effect.connection)
        if connection is not None and connection.data is not None:
            connection.data.wake()

    def _send(self, effect: Send) -> None:
        connection = self.connections.get(effect.connection)
        if connection is not None:
            connection.send(effect.message)

    def _end(self, effect: End) -> None:
        connection = self.connections.get(effect.connection)
        if connection is not None:
            connection.end(effect.reason)

    def _replaced(self, effect: Replaced) -> None:
        log.warning("told to leave: %s", effect.reason)
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
