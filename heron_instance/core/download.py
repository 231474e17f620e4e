"""The credit for frames to this instance: what the executor takes, over all connections, as limits of the one there is.

Limits and accounts start from zero with each hello; frames that came on an earlier connection and are not taken yet are
taken first.
"""

from __future__ import annotations

from heron_runtime.model.dataflow import UNKNOWN_WEIGHT
from heron_runtime.wire.control import Credit


class Download:
    """Owned by the gateway; the executor thread calls ``offer`` and sets ``taken_weight``."""

    def __init__(self) -> None:
        self.taken_weight = 0  # of frames the executor has taken; it says so itself
        self._total = 0  # weight of frames the executor will take
        self._tuple_weight = UNKNOWN_WEIGHT  # what a tuple weighs for the executor
        self._received = 0
        self._before = 0  # received before the hello
        self._granted = (-1, 0, 0)  # limit, weight and what is taken, as told
        self._taken_due = False

    def offer(self, total_weight: int, tuple_weight: int) -> None:
        """The executor will take frames of so much weight in all; a tuple weighs ``tuple_weight`` for it."""
        self._total, self._tuple_weight = total_weight, tuple_weight

    def begin_stream(self) -> None:
        """A hello."""
        self._before, self._granted = self._received, (-1, 0, 0)

    def receive(self, weight: int) -> None:
        """Frames have come."""
        self._received += weight

    def tell_taken(self) -> bool:
        """Tell what was taken since it was told last, if anything was; True if so."""
        self._taken_due = self._granted[0] >= 0 and self._taken() != self._granted[2]
        return self._taken_due

    def news(self) -> Credit | None:
        """What the stream manager is to be told."""
        limit, weight = max(0, self._total - self._before), self._tuple_weight
        if limit <= self._granted[0] and weight == self._granted[1] and not self._taken_due:
            return None
        self._taken_due = False
        self._granted = (limit, weight, self._taken())
        return Credit(*self._granted)

    def _taken(self) -> int:
        """The weight that is taken of what came on this connection; what the one before left comes first."""
        return max(0, self.taken_weight - self._before)
