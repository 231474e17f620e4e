"""Joins of two streams within windows, and ``distinct`` (one record of several), built of steps that every engine has.

Pure.

Theory of operation. A join is not a separate step. Records of both sides are marked with their side and key
(``Sided``), united, and reduced by key and window to two lists (``JOIN_MONOID``). When a window closes, its lists
become pairs (``JoinPairs``). Windows, watermarks, lateness, state, shuffles and portions of a stream are therefore
those of reducers, and so is the agreement of engines. The accumulators are a monoid (concatenated lists), and the pairs
of a window are a bag, as every stream is.

A record that is late for its window is late for the join. It is in no pair, and ``late()`` returns it with None as its
counterpart. Results that an outer join has emitted for a window are final.
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
    """Record on its way to the join. ``time_ms`` None: the time that it has from its source."""

    side: int
    key: Any
    time_ms: int | None
    record: Any


@dataclass(frozen=True, slots=True)
class SideMarker:
    """Function that marks the records of one side. Errors of the user's key and event time are raised unchanged."""

    number: int
    key: Extractor
    time: EventTime | None

    def __call__(self, record: Any) -> Sided:
        """Return the record with its side, key and event time."""
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
    return [list(acc[LEFT]), list(acc[RIGHT])]  # checkpointed lists must not grow later


JOIN_MONOID: Monoid[Sided, Lists] = Monoid(
    "join", _none, _together, lift=_one, fold=_with, pack=_copied, unpack=_copied
)


@dataclass(frozen=True, slots=True)
class JoinPairs:
    """Function from the lists of a window to its joined pairs."""

    how: str

    def __call__(self, row: Windowed[Any, Any]) -> Iterator[Joined[Any, Any, Any]]:
        """Yield the pairs of one key and window."""
        place, (lefts, rights) = row[:3], row.value
        if not rights and self.how in ("left", "outer"):
            rights = [None]
        if not lefts and self.how in ("right", "outer"):
            lefts = [None]
        return (Joined(*place, left, right) for left in lefts for right in rights)


def apart(row: Windowed[Any, Any]) -> Iterator[Joined[Any, Any, Any]]:
    """Yield late records, each without a counterpart."""
    place, (lefts, rights) = row[:3], row.value
    yield from (Joined(*place, left, None) for left in lefts)
    yield from (Joined(*place, None, right) for right in rights)


def least(a: Any, b: Any) -> Any:
    """Return the record to keep of two, independent of their order."""
    return a if (canonical(a), repr(a)) <= (canonical(b), repr(b)) else b


def value_of(row: Windowed[Any, Any]) -> Any:
    """Return the record that was kept."""
    return row.value
