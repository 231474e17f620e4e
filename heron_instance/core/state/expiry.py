"""Time to live: which entries of keyed state end, and when.

Theory of operation. Moments are absolute (seconds since 1970), so that they mean the same after a restore and in
another task. A heap has the soonest in front: when time passes, entries that are due are taken from it, and no other is
looked at; a look at an entry in between asks nothing. An entry whose moment has changed leaves its old place in the
heap, which counts for nothing when its turn comes; when such places are more than the entries the heap is made anew, so
it stays within a constant factor of them. Time passes between calls of user code only (``pass_time``), never backwards.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any

SPARE = 1024  # places that count for nothing, in a small heap


class Expiry:
    """Of the entries of one task, by index. ``wall`` gives seconds since 1970. ``times``: when entries end that do."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self.times: dict[Any, float] = {}
        self.now = wall()
        self._wall = wall
        self._heap: list[tuple[float, int, Any]] = []
        self._numbers = itertools.count()  # equal moments: indexes of different types have no order

    def set(self, index: Any, at: float) -> None:
        """This entry ends then."""
        self.times[index] = at
        heapq.heappush(self._heap, (at, next(self._numbers), index))
        self._tidy()

    def forget(self, index: Any) -> None:
        """This entry does not end, or is no more."""
        if self.times.pop(index, None) is not None:
            self._tidy()

    def pass_time(self) -> list[Any]:
        """It is now; the entries that have ended since the last time, which are forgotten."""
        now = self.now = max(self.now, self._wall())
        heap, times, due = self._heap, self.times, []
        while heap and heap[0][0] <= now:
            at, _, index = heapq.heappop(heap)
            if times.get(index) == at:
                del times[index]
                due.append(index)
        return due

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self.times) + SPARE:
            self._heap = [(at, next(self._numbers), index) for index, at in self.times.items()]
            heapq.heapify(self._heap)

    def check(self) -> None:
        """Assert every invariant."""
        assert len(self._heap) <= 2 * len(self.times) + SPARE
        assert set(self.times.items()) <= {(index, at) for at, _, index in self._heap}, "not in the heap"
