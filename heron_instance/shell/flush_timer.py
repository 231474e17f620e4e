"""Flush timer: flushes the rows, acks and fails of a long call of user code while it lasts.

The executor's thread flushes between calls. This timer runs on the gateway thread and takes over when a call outlasts
the flush interval: it takes the executor's lock, which is free while user code runs, routes, and hands the flush to the
gateway. If the lock is not free, the executor itself is at work.

The timer sleeps unless there is a reason. An emit that finds no waiting rows reports it (``watch``), which wakes the
loop at most once: a flush that follows at once needs no wake-up of its own. Acks set a byte and report nothing, so an
incoming packet is a reason to check once after a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from heron_instance.core.executor import Executor
from heron_instance.core.outbox import Flush

RECHECK_SECONDS = 0.05  # after input, and during a call that leaves nothing to flush


class FlushTimer:
    """Flush timer of an instance, for its current executor.

    Args:
        post: Sends flushes.
        wake: Makes the loop call ``on_wake``; may be called from any thread.
    """

    def __init__(self, post: Callable[[list[Flush]], None], wake: Callable[[], None]) -> None:
        self._post = post
        self._wake = wake
        self._executor: Executor | None = None
        self._watching = False
        self._handle: asyncio.TimerHandle | None = None
        self._at = 0.0

    def attach(self, executor: Executor) -> None:
        """Flush this executor from now on. Called on its thread, like ``detach`` and ``watch``."""
        self._executor = executor

    def detach(self) -> None:
        """Flush nothing from now on."""
        self._executor = None

    def watch(self) -> None:
        """Take note, on the executor's thread, that rows have begun to wait."""
        if not self._watching:
            self._watching = True
            self._wake()

    # On the loop.

    def on_wake(self) -> None:
        """Check the waiting rows, since the loop was woken."""
        if not self._watching:
            return
        self._watching = False  # before the check: rows that begin to wait after it wake the loop again
        executor = self._executor
        seconds = None if executor is None else self._flush_in(executor)
        if seconds is not None:
            self._watching = True
            self._set(seconds)

    def on_input(self) -> None:
        """Check after a while, since input has come."""
        if self._handle is None:
            self._set(RECHECK_SECONDS)

    def _flush_in(self, executor: Executor) -> float | None:
        """Return the seconds until the waiting rows are due, or None if there are none."""
        due_ms = executor.gate.due_ms()
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
        executor = self._executor
        if executor is None:
            self._watching = False
            return
        interval = executor.gate.interval_ms / 1000
        again: float | None = None
        if executor.gate.outlasts_flush_interval():
            flushes = self._flush(executor)
            if flushes:
                self._post(flushes)
            again = interval if flushes else RECHECK_SECONDS
        self._watching = again == interval
        seconds = self._flush_in(executor)
        if seconds is not None:
            self._watching = True
            again = seconds or interval  # if it is due now, the executor is about to flush
        if again is not None:
            self._set(again)

    def _flush(self, executor: Executor) -> list[Flush]:
        gate = executor.gate
        if not gate.lock.acquire(blocking=False):
            return []
        try:
            return executor.flush_within_call(time.monotonic() * 1000) if gate.outlasts_flush_interval() else []
        finally:
            gate.lock.release()
