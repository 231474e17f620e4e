"""Frames that were handed to a connection and are not known to be taken: what is lost when it breaks.

The far end tells with its credit, and each second, how much it has taken of what came on the connection, by weight. So
what is counted as lost is never less than what was, and more by what was taken since then or still waited over there.
"""

from __future__ import annotations

from collections import deque


class HandedOver:
    """One queue's, in the order in which they left; of one connection at a time."""

    __slots__ = ("_frames",)

    def __init__(self) -> None:
        self._frames: deque[tuple[int, int, int]] = deque()

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, sent: int, stream: int, tuples: int) -> None:
        """A frame has left; ``sent`` is the weight of all that has, with this one."""
        self._frames.append((sent, stream, tuples))

    def take(self, taken: int) -> None:
        """The far end has taken so much, by weight, of what was sent."""
        frames = self._frames
        while frames and frames[0][0] <= taken:
            frames.popleft()

    def lose(self, lost: dict[int, int]) -> None:
        """The connection has ended: add what is lost with it, stream → tuples, and begin anew."""
        for _, stream, tuples in self._frames:
            lost[stream] = lost.get(stream, 0) + tuples
        self._frames.clear()
