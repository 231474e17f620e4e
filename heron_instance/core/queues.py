"""The bound of a queue between the gateway and the executor, and how it adapts (Heron paper, section 5.5.2).

While a queue holds more than its *limit* its capacity is halved at each adjustment, down to zero if need be: then
nothing new is produced or taken, and after an outage the backlog drains before anything is added. While it holds less,
the capacity grows by a sixteenth of the maximum at a time. Only the numbers are here; who adds must ask ``full`` first.
An item is added whole, so ``size`` may pass the capacity by one item.
"""

from __future__ import annotations

ADJUST_INTERVAL_MS = 100.0
_STEPS = 16


class AdaptiveQueue:
    """Size and capacity of one queue, in bytes (or in whatever is counted)."""

    def __init__(self, maximum: int, limit: int | None = None) -> None:
        self.maximum = maximum
        self.limit = maximum // 2 if limit is None else limit
        self.capacity = maximum
        self.size = 0
        self._due_ms: float | None = None

    @property
    def full(self) -> bool:
        """True if nothing may be added."""
        return self.size >= self.capacity

    def room(self) -> int:
        """How much may be added."""
        return max(0, self.capacity - self.size)

    def add(self, amount: int) -> None:
        """Something was put in."""
        self.size += amount

    def remove(self, amount: int) -> None:
        """Something was taken out."""
        self.size = max(0, self.size - amount)

    def adjust(self, now_ms: float) -> bool:
        """Adapt the capacity, at most once in each interval. True if it did."""
        if self._due_ms is not None and now_ms < self._due_ms:
            return False
        self._due_ms = now_ms + ADJUST_INTERVAL_MS
        if self.size > self.limit:
            self.capacity //= 2
        elif self.capacity < self.maximum:
            self.capacity = min(self.maximum, self.capacity + max(1, self.maximum // _STEPS))
        return True

    def deadline_ms(self) -> float | None:
        """When ``adjust`` has something to do; None while the queue is at rest."""
        return self._due_ms if self.capacity < self.maximum or self.size > self.limit else None

    def check(self) -> None:
        """Capacity within 0 and the maximum."""
        assert 0 <= self.capacity <= self.maximum
        assert self.size >= 0
