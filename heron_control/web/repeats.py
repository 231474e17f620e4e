"""Refusals that repeat themselves: the first of a kind is written down, those of the minute after it are counted.

So whoever is refused without end writes a few lines a minute into the audit file, and cannot push out of it what
matters. The table is bounded: kinds beyond it are counted together.
"""

from __future__ import annotations

from typing import NamedTuple

WINDOW_SECONDS = 60.0
MAX_KINDS = 16


class Kind(NamedTuple):
    """What makes two refusals alike: who was refused, at which address, with which result."""

    who: str
    source: str
    result: int


OTHERS = Kind("various", "various", 0)


class Repeats:
    """The kinds of the last minute. ``now`` in seconds."""

    def __init__(self) -> None:
        self._kinds: dict[Kind, tuple[float, int]] = {}  # since when, how many after the first; in order of time

    def first(self, kind: Kind, now: float) -> bool:
        """A refusal; True if it is to be written down, False if it was counted."""
        known = self._kinds.get(kind)
        if known is None and len(self._kinds) < MAX_KINDS:
            self._kinds[kind] = (now, 0)
            return True
        if known is None:
            kind, known = OTHERS, self._kinds.get(OTHERS, (now, 0))
        self._kinds[kind] = (known[0], known[1] + 1)
        self.check()
        return False

    def take(self, now: float = float("inf")) -> list[tuple[Kind, int]]:
        """What was counted in the minutes that are over, to be written down; the kinds are forgotten."""
        over = {kind: count for kind, (since, count) in self._kinds.items() if now - since >= WINDOW_SECONDS}
        for kind in over:
            del self._kinds[kind]
        return [(kind, count) for kind, count in over.items() if count]

    def check(self) -> None:
        """Assert what always holds."""
        assert len(self._kinds) <= MAX_KINDS + 1
        assert all(count >= 0 for _, count in self._kinds.values())
