"""Flushes what a call of user code has emitted, acked and failed, while that call lasts.

The executor's thread flushes between calls. This timer lives on the loop's thread and takes over when a call outlasts
the flush interval: it takes the executor's lock, which is free while user code runs, routes, and hands the flush to the
gateway. If the lock is not free the executor is at work itself.

It sleeps unless there is a reason. An emit that finds nothing waiting says so (``watch``), which wakes the loop at most
once: a flush that follows at once needs no wake-up of its own. Acks set a byte and tell nobody, so a packet that comes
in is a reason, too, to look once after a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from heron_instance.core.executor import Executor
from heron_instance.core.outbox import Flush

GLANCE_SECONDS = 0.05  # after input, and while a call goes on that leaves nothing to flush


class FlushTimer:
    """Of one instance. ``post`` sends flushes, ``wake`` (from any thread) has the loop call ``look``."""

    def __init__(self, executor: Executor, post: Callable[[list[Flush]], None], wake: Callable[[], None]) -> None:
        self._executor = executor
        self._gate = executor.gate
        self._post = post
        self._wake = wake
        self._interval = executor.gate.interval_ms / 1000
        self._watching = False
        self._handle: asyncio.TimerHandle | None = None
        self._at = 0.0

    def watch(self) -> None:
        """From the executor's thread: something has begun to wait."""
        if not self._watching:
            self._watching = True
            self._wake()

    # On the loop.

    def look(self) -> None:
        """The loop was woken."""
        if not self._watching:
            return
        self._watching = False  # before the look: what begins to wait after it wakes the loop again
        seconds = self._flush_in()
        if seconds is not None:
            self._watching = True
            self._set(seconds)

    def expect(self) -> None:
        """Input has come."""
        if self._handle is None:
            self._set(GLANCE_SECONDS)

    def _flush_in(self) -> float | None:
        """Seconds until what waits is due; None if nothing waits."""
        due_ms = self._gate.due_ms()
        return None if due_ms is None else max(0.0, due_ms / 1000 - time.monotonic())

    def _set(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        if self._handle is not None:
            if self._at <= at:
                return
            self._handle.cancel()
        self._at = at
        self._handle = loop.call_at(at, self._fire)

    def _fire(self) -> None:
        self._handle = None
        again: float | None = None
        if self._gate.lasts():
            flushes = self._flush()
            if flushes:
                self._post(flushes)
            again = self._interval if flushes else GLANCE_SECONDS
        self._watching = again == self._interval
        seconds = self._flush_in()
        if seconds is not None:
            self._watching = True
            again = seconds or self._interval  # if it is due now the executor is about to flush by itself
        if again is not None:
            self._set(again)

    def _flush(self) -> list[Flush]:
        lock = self._gate.lock
        if not lock.acquire(blocking=False):
            return []
        try:
            return self._executor.flush_inside(time.monotonic() * 1000) if self._gate.lasts() else []
        finally:
            lock.release()
