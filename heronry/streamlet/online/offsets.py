"""How far a source has come: pieces in flight, pieces acked, and the place before which everything is acked. Pure.

Theory of operation. Pieces of one file are emitted in order and acked in any order. The *committed* place of a file
moves over every piece that is acked without a gap before it; it is what is written to disk, now and then, and where a
restarted task goes on. What lay between is emitted again. A failed piece is due again after a pause that doubles, up to
a bound, so that a poisoned record does not keep everybody busy.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Any, NamedTuple

FIRST_PAUSE_SECONDS = 0.1
LAST_PAUSE_SECONDS = 5.0


def pause_seconds(fails: int) -> float:
    """How long something that has failed so often waits."""
    return min(LAST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(fails - 1, 10))


class FilePosition(NamedTuple):
    """Where the next piece begins: bytes or rows, and the number of its first record."""

    offset: int
    number: int


class Span(NamedTuple):
    """A piece: the file, where it begins and where the next one begins."""

    file: str
    begin: FilePosition
    end: FilePosition


class Offsets:
    """Of one task. Message ids are numbers, one for each piece."""

    def __init__(self, committed: dict[str, FilePosition]) -> None:
        self.committed = dict(committed)
        self.changed = False
        self._next_id = 0
        self._open: dict[int, Span] = {}
        self._order: dict[str, deque[int]] = {}
        self._acked: set[int] = set()
        self._fails: dict[int, int] = {}
        self._due: list[tuple[float, int]] = []

    def begin(self, file: str) -> FilePosition:
        """Where to begin with a file."""
        return self.committed.get(file, FilePosition(0, 0))

    def emitted(self, span: Span) -> int:
        """A new piece; returns its id."""
        number = self._next_id
        self._next_id += 1
        self._open[number] = span
        self._order.setdefault(span.file, deque()).append(number)
        return number

    def acked(self, number: int) -> None:
        """Everything that came of the piece is done."""
        span = self._open.get(number)
        if span is None or number in self._acked:
            return
        self._acked.add(number)
        self._fails.pop(number, None)
        order = self._order[span.file]
        while order and order[0] in self._acked:
            done = order.popleft()
            self._acked.remove(done)
            self.committed[span.file] = self._open.pop(done).end
            self.changed = True

    def failed(self, number: int, now: float) -> int:
        """The piece is due again later; returns how often it has failed."""
        if number not in self._open or number in self._acked:
            return 0
        fails = self._fails[number] = self._fails.get(number, 0) + 1
        heapq.heappush(self._due, (now + pause_seconds(fails), number))
        return fails

    def due(self, now: float) -> tuple[int, Span] | None:
        """A failed piece whose pause is over."""
        while self._due and self._due[0][0] <= now:
            number = heapq.heappop(self._due)[1]
            if number in self._open and number not in self._acked:
                return number, self._open[number]
        return None

    def tries(self, number: int) -> int:
        """How often the piece has failed."""
        return self._fails.get(number, 0)

    @property
    def in_flight(self) -> int:
        """Pieces that are not acked."""
        return len(self._open) - len(self._acked)

    def check(self) -> None:
        """Every open piece is in the order of its file, and no acked one is at the head."""
        assert sum(map(len, self._order.values())) == len(self._open), "a piece is lost or doubled"
        for order in self._order.values():
            assert not order or order[0] not in self._acked, "a file's place could move and did not"


def as_plain(offsets: dict[str, FilePosition]) -> dict[str, Any]:
    """For JSON."""
    return {file: list(place) for file, place in offsets.items()}


def merged(plain: list[dict[str, Any]]) -> dict[str, FilePosition]:
    """The furthest place of each file, of what several tasks have written."""
    found: dict[str, FilePosition] = {}
    for offsets in plain:
        for file, (offset, number) in offsets.items():
            found[file] = max(found.get(file, FilePosition(0, 0)), FilePosition(offset, number))
    return found
