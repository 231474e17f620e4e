"""Tracking of the position up to which all emitted rows are acknowledged. Performs no I/O.

Acknowledgements arrive in any order. A position is safe once everything emitted before it is acknowledged. Rows are
kept until then, so that failed ones can be emitted again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, TypeAlias

Row: TypeAlias = Sequence[Any]


class Acked:
    """Unacknowledged rows by id. Ids are consecutive numbers in the order of emission."""

    def __init__(self) -> None:
        self._open: dict[int, Row] = {}  # ordered by id
        self._next = 0
        self._places: deque[tuple[int, Any]] = deque()  # positions, each with the next id after it

    def given(self, rows: Sequence[Row], place: Any) -> list[int]:
        """Record rows that are emitted now, with the position after them, and return their ids."""
        ids = list(range(self._next, self._next + len(rows)))
        self._open.update(zip(ids, rows, strict=True))
        self._next += len(rows)
        self._places.append((self._next, place))
        return ids

    def ack(self, number: int) -> None:
        """Remove an acknowledged row."""
        self._open.pop(number, None)

    def row(self, number: int) -> Row | None:
        """Return an unacknowledged row, or None if it is acknowledged."""
        return self._open.get(number)

    def floor(self) -> Any:
        """Return the furthest position that has become safe, or None if it has not advanced."""
        first = next(iter(self._open), self._next)
        floor = None
        while self._places and self._places[0][0] <= first:
            floor = self._places.popleft()[1]
        return floor
