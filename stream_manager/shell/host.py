"""One core and the world: does what the core wants, in order, and keeps the connections by number."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from heronry.model.plan import PhysicalPlan
from heronry.wire.data import Packet
from heronry.wire.master import ToMaster
from stream_manager.core.effects import (
    Effect,
    End,
    Exit,
    MasterRefused,
    PlanAccepted,
    TellMaster,
    ToInstance,
    ToPeer,
    Wake,
)
from stream_manager.core.links import Link
from stream_manager.core.stream_manager import StreamManager
from stream_manager.shell.streams import MALFORMED, Connection, DataPump

log = logging.getLogger(__name__)


def now_ms() -> int:
    """The monotonic clock."""
    return time.monotonic_ns() // 1_000_000


class Host:
    """Owns the core. Everything runs on one loop, so the core needs no lock."""

    def __init__(self, core: StreamManager) -> None:
        self.core = core
        self.connections: dict[int, Connection] = {}
        self.stop = asyncio.Event()
        self.replaced = False
        self.on_plan: list[Callable[[PhysicalPlan], None]] = []
        self.tell_master: Callable[[ToMaster], None] = lambda message: None
        self.refuse_master: Callable[[str], None] = lambda reason: None
        self._numbers = 0
        self._todo: deque[Effect] = deque()
        self._acting = False

    def connect(self, who: str, gone: Callable[[int], list[Effect]]) -> Connection:
        """Give a new connection its number. ``gone`` is the core's method for its end."""
        self._numbers += 1
        number = self._numbers
        connection = self.connections[number] = Connection(number, who, partial(self._ended, number, who, gone))
        log.info("%s: connected", who)
        return connection

    def pump(self, connection: Connection, link: Link) -> DataPump:
        """The writer of a link on this connection."""
        connection.data = DataPump(partial(self._next_packet, link))
        return connection.data

    def act(self, effects: list[Effect]) -> None:
        """Do these, in order. What they lead to is done after them."""
        self._todo.extend(effects)
        if self._acting:
            return
        self._acting = True
        try:
            while self._todo:
                self._do(self._todo.popleft())
        finally:
            self._acting = False

    def _do(self, effect: Effect) -> None:
        match effect:
            case Wake():
                self._wake(effect.link)
            case ToInstance() | ToPeer():
                connection = self.connections.get(effect.connection)
                if connection is not None:
                    connection.control.put(effect.message)
            case TellMaster():
                self.tell_master(effect.message)
            case End():
                connection = self.connections.get(effect.connection)
                if connection is not None:
                    connection.end(effect.reason)
            case PlanAccepted():
                log.info("plan %s of epoch %d", effect.plan.version, self.core.epoch)
                for listener in self.on_plan:
                    listener(effect.plan)
            case MasterRefused():
                self.refuse_master(effect.reason)
            case Exit():
                log.warning("told to leave: %s", effect.reason)
                self.replaced = True
                self.stop.set()

    def _wake(self, link: Link) -> None:
        neighbours = self.core.flow.peers if link.container else self.core.flow.instances
        neighbour = neighbours.get(link.container or link.task)
        if neighbour is not None and neighbour.connection is not None:
            connection = self.connections.get(neighbour.connection)
            if connection is not None and connection.data is not None:
                connection.data.wake()

    def _next_packet(self, link: Link) -> Packet | None:
        packet, effects = self.core.next_packet(link)
        if effects:
            self.act(effects)
        return packet

    def _ended(self, number: int, who: str, gone: Callable[[int], list[Effect]], reason: str) -> None:
        del self.connections[number]
        if reason.startswith(MALFORMED):
            self.core.outcome.violations += 1
            log.warning("%s: %s", who, reason)
        else:
            log.info("%s: disconnected: %s", who, reason)
        self.act(gone(number))
