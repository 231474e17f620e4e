"""Arithmetic of the sessions of one key, in any order of records. Shared by all engines. Pure.

Theory of operation. A session is a run of records of one key in which the time between two successive records is at
most the gap. An engine stores a session as a window's start and, as its accumulator, the pair ``(last, acc)``: the time
of its last record, and the accumulator of its values. Sessions of one key whose distance is at most the gap are merged,
so stored sessions are farther apart, and in order of time. Adding a session merges all sessions that it touches.

The resulting sessions depend neither on the order of records nor on earlier merges: they are the connected components
of the records' times. Sets of sessions therefore form a monoid if their values do, and may be combined anywhere: before
the shuffle, after it, and between portions of a stream.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

Add = Callable[[Any, Any], Any]
_start, _last = attrgetter("start"), attrgetter("last")


class Session:
    """Times of the first and the last record, in ms since 1970 UTC, and the accumulator of the values."""

    __slots__ = ("acc", "last", "start")

    def __init__(self, start: int, last: int, acc: Any) -> None:
        self.start, self.last, self.acc = start, last, acc


def touching(sessions: list[Session], start: int, last: int, gap_ms: int) -> slice:
    """Return the slice of a key's sessions that a session from ``start`` to ``last`` would be merged with."""
    first = bisect_left(sessions, start - gap_ms, key=_last)
    return slice(first, bisect_right(sessions, last + gap_ms, lo=first, key=_start))


def put(sessions: list[Session], new: Session, gap_ms: int, add: Add) -> tuple[Session, list[Session]]:
    """Add a session to those of its key. Errors of ``add`` are raised; the sessions are unchanged then.

    Returns:
        The session that it is now part of, and the sessions that were merged into that one.
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
    """Return the number of a key's sessions whose last record is at or before this time. These are the first ones."""
    return bisect_right(sessions, last_ms, key=_last)


class SessionTable(dict[Any, list[Session]]):
    """Sessions by key. ``size`` is the number of sessions."""

    size = 0

    def put(self, key: Any, new: Session, gap_ms: int, add: Add) -> None:
        """Add a session to those of its key, as the function ``put``."""
        found = self.get(key)
        if found is None:
            self[key] = [new]
            self.size += 1
        else:
            self.size += 1 - len(put(found, new, gap_ms, add)[1])

    def rows(self) -> Iterator[tuple[Any, int, tuple[int, Any]]]:
        """Yield (key, start, (last, accumulator)) of each session."""
        return ((key, one.start, (one.last, one.acc)) for key, found in self.items() for one in found)
