"""Rolling up the history of topologies: which days have news, which files that is, and what may go.

Theory of operation. A day of a level is a folder that lists the raw files it holds. It is made anew when there are raw
files it does not hold: what it has and what is new are added up (rows of one key add up to one, in any order:
``heron_runtime.model.history``), and the folder is replaced by one rename. So a run that dies changes nothing or a
whole day; one that is repeated finds nothing new; and a file that comes late is news like any other. Each level takes
the raw files by itself, so no level needs what another one has let go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from heron_runtime.model.history import DAY_MS, ROLLED, date_of

#: Days that each level is kept. Raw files go when their own bound says so (the metrics manager's), or here.
KEEP_DAYS: Mapping[str, int] = {"10s": 14, "1m": 30, "10m": 180, "1h": 730, "1d": 3650}
KEEP_EVENTS = "1h"  # events and the record of the api server are kept as long as this level


@dataclass(frozen=True, slots=True)
class Day:
    """A day of a submission as it is found. ``held``: level to the names of raw files that it holds."""

    place: str
    date: str
    raw: frozenset[str]
    held: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Work:
    """A day of one level that is to be made anew: of what it has (``merges``: there is such a day) and ``files``."""

    place: str
    date: str
    level: str
    files: frozenset[str]
    merges: bool
    taken: frozenset[str]


def work(days: Iterable[Day]) -> list[Work]:
    """What there is to do, in order of levels, places and days."""
    found = []
    for day in days:
        for level in ROLLED:
            held = day.held.get(level)
            news = day.raw - (held or frozenset())
            if news:
                # A name that is gone never comes again (numbers grow), so it need not be remembered.
                taken = ((held or frozenset()) & day.raw) | news
                found.append(Work(day.place, day.date, level, news, held is not None, taken))
    return sorted(found, key=lambda w: (ROLLED.index(w.level), w.place, w.date))


def outdated(level: str, dates: Iterable[str], now_ms: int, keep_days: Mapping[str, int] = KEEP_DAYS) -> list[str]:
    """The days of a level that are kept no longer."""
    oldest = date_of(now_ms - keep_days[level] * DAY_MS)
    return [date for date in dates if date < oldest]
