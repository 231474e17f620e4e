"""Joins of two streams within windows, and one record of several (``distinct``), made of steps that every engine has.
Pure.

Theory of operation. A join is no step of its own. Records of both sides are marked with their side and key (``Side``),
united, and reduced by key and window to two lists (``BOTH_SIDES``); when a window closes its lists become pairs
(``Pairs``). So windows, watermarks, lateness, state, shuffles, portions of a stream and the law are those of reducers:
the accumulators are a monoid, lists put together, and the pairs of a window are a bag, as every stream is.

A record that is late for its window is late for the join: it is in no pair, and ``late()`` has it with nothing on the
other side. What an outer join has told of a window stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple

from typing_extensions import TypeVar

from heronry.streamlet.compare import canonical
from heronry.streamlet.extract import Extractor
from heronry.streamlet.monoid import Monoid
from heronry.streamlet.program import EventTime, Windowed
from heronry.streamlet.windows import to_ms

KINDS = ("inner", "left", "right", "outer")
LEFT, RIGHT = 0, 1


K = TypeVar("K", default=Any)
L = TypeVar("L", default=Any)
R = TypeVar("R", default=Any)


class Joined(NamedTuple, Generic[K, L, R]):
    """Pair of records of equal key in one window, ms since 1970 UTC; None for a missing counterpart."""

    key: K
    start: int
    end: int
    left: L
    right: R


class Sided(NamedTuple):
    """A record on its way to the join. ``time_ms`` None: the time it has from its source."""

    side: int
    key: Any
    time_ms: int | None
    record: Any


@dataclass(frozen=True, slots=True)
class SideMarker:
    """Marks the records of one side. Raises what the user's key and event time raise."""

    number: int
    key: Extractor
    time: EventTime | None

    def __call__(self, record: Any) -> Sided:
        time = self.time
        time_ms = None if time is None else to_ms(time.extractor(record), time.unit)
        return Sided(self.number, self.key(record), time_ms, record)


Lists = tuple[list[Any], list[Any]]


def _none() -> Lists:
    return [], []


def _one(record: Sided) -> Lists:
    return _with(_none(), record)


def _with(acc: Lists, record: Sided) -> Lists:
    acc[record.side].append(record.record)
    return acc


def _together(a: Lists, b: Lists) -> Lists:
    a[LEFT].extend(b[LEFT])
    a[RIGHT].extend(b[RIGHT])
    return a


def _copied(acc: Any) -> Any:
    return [list(acc[LEFT]), list(acc[RIGHT])]  # what a checkpoint keeps must not grow any more


JOIN_MONOID: Monoid[Sided, Lists] = Monoid(
    "join", _none, _together, lift=_one, fold=_with, pack=_copied, unpack=_copied
)


@dataclass(frozen=True, slots=True)
class JoinPairs:
    """What a window's lists come to."""

    how: str

    def __call__(self, row: Windowed[Any, Any]) -> Iterator[Joined[Any, Any, Any]]:
        place, (lefts, rights) = row[:3], row.value
        if not rights and self.how in ("left", "outer"):
            rights = [None]
        if not lefts and self.how in ("right", "outer"):
            lefts = [None]
        return (Joined(*place, left, right) for left in lefts for right in rights)


def apart(row: Windowed[Any, Any]) -> Iterator[Joined[Any, Any, Any]]:
    """What was late, record by record."""
    place, (lefts, rights) = row[:3], row.value
    yield from (Joined(*place, left, None) for left in lefts)
    yield from (Joined(*place, None, right) for right in rights)


def least(a: Any, b: Any) -> Any:
    """The one that is kept of two, whichever came first."""
    return a if (canonical(a), repr(a)) <= (canonical(b), repr(b)) else b


def value_of(row: Windowed[Any, Any]) -> Any:
    """The record that was kept."""
    return row.value
