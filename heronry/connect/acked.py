"""Up to where all that a source has given was acked. Pure.

Acks come in any order. A position is safe once everything that was given before it is acked; rows are kept until then,
for one that fails is given again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, TypeAlias

Row: TypeAlias = Sequence[Any]


class Acked:
    """Rows by their ids, which are numbers in the order in which rows were given."""

    def __init__(self) -> None:
        self._open: dict[int, Row] = {}  # in the order of ids
        self._next = 0
        self._places: deque[tuple[int, Any]] = deque()  # the id that comes next behind a place, and the place

    def given(self, rows: Sequence[Row], place: Any) -> list[int]:
        """The ids of rows that are given now, with the place behind them."""
        ids = list(range(self._next, self._next + len(rows)))
        self._open.update(zip(ids, rows, strict=True))
        self._next += len(rows)
        self._places.append((self._next, place))
        return ids

    def ack(self, number: int) -> None:
        """It is done with."""
        self._open.pop(number, None)

    def row(self, number: int) -> Row | None:
        """What was given with an id that is not acked."""
        return self._open.get(number)

    def floor(self) -> Any:
        """The furthest place that is newly safe; None if there is none."""
        first = next(iter(self._open), self._next)
        found = None
        while self._places and self._places[0][0] <= first:
            found = self._places.popleft()[1]
        return found
