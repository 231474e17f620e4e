"""Monotonic clock and deadline timer of shells on an asyncio loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def now_ms() -> int:
    """Return monotonic milliseconds."""
    return time.monotonic_ns() // 1_000_000


class DeadlineTimer:
    """Timer that calls ``due`` at the deadline set last. Belongs to the loop that created it."""

    def __init__(self, due: Callable[[], None]) -> None:
        self._due = due
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def set(self, deadline_ms: int | None) -> None:
        """Replace the deadline; None cancels it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline_ms is not None:
            self._timer = self._loop.call_later(max(0, deadline_ms - now_ms() + 1) / 1000, self._due)
