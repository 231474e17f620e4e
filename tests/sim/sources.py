"""Source of the messages of a simulated spout; like a file or a queue, it outlives the process."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class Source:
    """Source of messages 0, 1, …, one each ``gap_ms``; failed ones and those open at the spout's death are repeated."""

    def __init__(self, count: int, gap_ms: float) -> None:
        self.opened: dict[int, int] = {}
        self.finished: set[int] = set()
        self._fresh = deque((n * gap_ms, n) for n in range(count))
        self._again: deque[int] = deque()
        self.total = count

    def take(self, now_ms: float) -> int | None:
        """Return the next available message, or None."""
        if self._again:
            return self._again.popleft()
        if self._fresh and self._fresh[0][0] <= now_ms:
            return self._fresh.popleft()[1]
        return None

    def add(self, count: int, now_ms: float) -> None:
        """Add messages."""
        self._fresh.extend((now_ms, self.total + n) for n in range(count))
        self.total += count

    def again(self, message: int) -> None:
        """Schedule a message to be emitted again."""
        self._again.append(message)

    def spout_died(self, abandoned: Iterable[int]) -> None:
        """Schedule the abandoned messages to be emitted again."""
        self._again.extend(self.opened.pop(uid) for uid in abandoned if uid in self.opened)

    def hurry(self, now_ms: float) -> None:
        """Make all remaining messages available now."""
        self._fresh = deque((min(when, now_ms), n) for when, n in self._fresh)

    @property
    def done(self) -> bool:
        """Return True if every message has been acked (or was emitted without an id)."""
        return len(self.finished) == self.total
