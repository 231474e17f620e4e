"""The clock of cores, and the alarm by which a shell on an asyncio loop keeps the deadlines they name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def now_ms() -> int:
    """Monotonic milliseconds."""
    return time.monotonic_ns() // 1_000_000


class Alarm:
    """Calls ``due`` at the deadline that was set last. Belongs to the loop that made it."""

    def __init__(self, due: Callable[[], None]) -> None:
        self._due = due
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def set(self, deadline_ms: int | None) -> None:
        """In place of the deadline before; None: there is nothing to do."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline_ms is not None:
            self._timer = self._loop.call_later(max(0, deadline_ms - now_ms() + 1) / 1000, self._due)
