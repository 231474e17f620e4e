"""Counting of repeated refusals: the first of a kind is recorded, the others of the next minute are counted.

A client that is refused again and again causes a few lines a minute in the audit file, and cannot displace other
entries. The table is bounded: further kinds are counted together.
"""

from __future__ import annotations

from typing import NamedTuple

WINDOW_SECONDS = 60.0
MAX_KINDS = 16


class Kind(NamedTuple):
    """Key of equal refusals: client, address and result."""

    who: str
    source: str
    result: int


OTHERS = Kind("various", "various", 0)


class Repeats:
    """Kinds of the last minute. ``now`` is in seconds."""

    def __init__(self) -> None:
        self._kinds: dict[Kind, tuple[float, int]] = {}  # time of the first, number of repeats; in order of time

    def first(self, kind: Kind, now: float) -> bool:
        """Add a refusal; return True to record it, False if it was counted."""
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
        """Return and remove the counts of past minutes."""
        over = {kind: count for kind, (since, count) in self._kinds.items() if now - since >= WINDOW_SECONDS}
        for kind in over:
            del self._kinds[kind]
        return [(kind, count) for kind, count in over.items() if count]

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self._kinds) <= MAX_KINDS + 1
        assert all(count >= 0 for _, count in self._kinds.values())
