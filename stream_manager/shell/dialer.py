"""Keeps one connection to a target: at once when it moves, and again with a growing delay while nobody answers, or
a smaller one while the two ends are not of one mind yet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from stream_manager.shell.streams import Connection

BACKOFF_MIN_SECONDS = 0.1
BACKOFF_MAX_SECONDS = 2.0
REFUSED_MIN_SECONDS = 0.05  # a plan is on its way to one of the two ends
REFUSED_MAX_SECONDS = 0.4

T = TypeVar("T")
log = logging.getLogger(__name__)


class Dialer(Generic[T]):
    """``connect`` runs one connection from its first to its last message and is False if nobody answered. While it
    runs, ``connection`` is what it has opened, and it says ``refused`` if that was not to be."""

    def __init__(self, who: str, connect: Callable[[T], Awaitable[bool]]) -> None:
        self.connection: Connection | None = None
        self._who = who
        self._connect = connect
        self._target: T | None = None
        self._moved = asyncio.Event()
        self._fault = ""
        self._refused = False

    def set_target(self, target: T | None) -> bool:
        """Go there instead; False if it is the same place."""
        if target == self._target:
            return False
        self._target = target
        self._moved.set()
        if self.connection is not None:
            self.connection.end(f"{self._who} is to be called anew")
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
        """The connection that runs is of no use to one of its ends; the next one may be, soon."""
        self._refused = True

    def answered(self) -> None:
        """The next fault is worth a line in the log."""
        self._fault = ""

    def failed(self, fault: str) -> None:
        """Log a fault once, not at every attempt."""
        if fault != self._fault:
            self._fault = fault
            log.warning("%s: %s", self._who, fault)
