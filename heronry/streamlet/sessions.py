"""Sessions of one key, in any order: the arithmetic that every engine shares. Pure.

Theory of operation. A session is a run of records of one key, none of them more than the gap after the one before. What
an engine holds of it is a window's start and, as its accumulator, the pair ``(last, acc)``: the time of its last record
and what the reducer's monoid has made of its values. Sessions of one key that lie no more than the gap apart are one,
so those that are held lie farther apart, and in order of time. To put one more beside them joins all it touches.

Which sessions come of it does not depend on the order, nor on what was joined before: they are the connected parts of
the records' times. So sets of sessions, put together, are a monoid where the values are, and may be added wherever they
meet: in front of the shuffle, behind it, between portions of a stream.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

Add = Callable[[Any, Any], Any]
_start, _last = attrgetter("start"), attrgetter("last")


class Session:
    """Times of its first and its last record, in ms, and the accumulator of its values."""

    __slots__ = ("acc", "last", "start")

    def __init__(self, start: int, last: int, acc: Any) -> None:
        self.start, self.last, self.acc = start, last, acc


def touching(sessions: list[Session], start: int, last: int, gap_ms: int) -> slice:
    """Those of a key's sessions that one from ``start`` to ``last`` would be joined with."""
    first = bisect_left(sessions, start - gap_ms, key=_last)
    return slice(first, bisect_right(sessions, last + gap_ms, lo=first, key=_start))


def put(sessions: list[Session], new: Session, gap_ms: int, add: Add) -> tuple[Session, list[Session]]:
    """Put a session beside those of its key: the one that it is part of now, and those that were joined to be it.

    Raises what ``add`` raises; the sessions are then as they were.
    """
    near = touching(sessions, new.start, new.last, gap_ms)
    joined = sessions[near]
    if joined:
        acc = joined[0].acc
        for other in joined[1:]:
            acc = add(acc, other.acc)
        start, last = min(new.start, joined[0].start), max(new.last, joined[-1].last)
        new = Session(start, last, add(acc, new.acc))
    sessions[near] = [new]
    return new, joined


def ended(sessions: list[Session], last_ms: int) -> int:
    """How many of a key's sessions have their last record at or before this time: the first ones."""
    return bisect_right(sessions, last_ms, key=_last)


class SessionTable(dict[Any, list[Session]]):
    """Sessions by key. ``size`` is how many there are."""

    size = 0

    def put(self, key: Any, new: Session, gap_ms: int, add: Add) -> None:
        """See above."""
        found = self.get(key)
        if found is None:
            self[key] = [new]
            self.size += 1
        else:
            self.size += 1 - len(put(found, new, gap_ms, add)[1])

    def rows(self) -> Iterator[tuple[Any, int, tuple[int, Any]]]:
        """(key, start, (last, accumulator)) of each."""
        return ((key, one.start, (one.last, one.acc)) for key, found in self.items() for one in found)
