"""When a spout at ``topology.max.spout.pending`` may emit again.

A spout that used each free place at once would send ever smaller packets (TCP's silly window syndrome), and packets are
what costs. So the window, once shut, stays shut until there is room for a batch or a flush interval has passed.

The largest window is smaller than what the spout's tracker holds, so this is also where a spout waits for its tracker.
"""

from __future__ import annotations

WINDOW_ROWS = 2048  # a shut window opens for so many tuples at once
TOLD_MS = 2000.0  # a window that is full for so long is told of by `heron status`


class PendingWindow:
    """At most ``max_pending`` open roots; the caller says how many there are. Times in milliseconds."""

    def __init__(self, max_pending: int, patience_ms: float) -> None:
        self.max_pending = max_pending
        self._patience_ms = patience_ms
        self._enough_room = min(WINDOW_ROWS, max(1, max_pending // 4))
        self._shut_since_ms: float | None = None
        self._full = False

    def shut(self, pending: int, now_ms: float) -> bool:
        """True if no root may be added now."""
        room = self.max_pending - pending
        self._full = room <= 0
        if self._full:
            if self._shut_since_ms is None:
                self._shut_since_ms = now_ms
            return True
        if self._shut_since_ms is None:
            return False
        if room < self._enough_room and now_ms < self._shut_since_ms + self._patience_ms:
            return True
        self._shut_since_ms = None
        return False

    def waiting(self, now_ms: float) -> str:
        """For `heron status`: that the spout has waited for long since there is no room, and what helps."""
        since_ms = self._shut_since_ms
        if not self._full or since_ms is None or now_ms - since_ms < TOLD_MS:
            return ""
        return (
            f"waiting for acks for {(now_ms - since_ms) / 1000:.0f} s: {self.max_pending} tuples are in flight, all of "
            "topology.max.spout.pending; raise it, or see which bolt is slow or does not ack"
        )

    def reopens_ms(self, pending: int) -> float | None:
        """When the window opens although there is no room for a batch yet; None if time alone does not open it."""
        if self._shut_since_ms is None or pending >= self.max_pending:
            return None
        return self._shut_since_ms + self._patience_ms
