"""Roll-up of the history of topologies: which days have new raw files or are outdated, which raw files become one.

A day of a level is a folder that lists the raw files it holds. It is rebuilt when there are raw files that it does not
hold: the existing rows and the new ones are added up, and one rename replaces the folder. Rows of one key add up to
one, in any order (``heron_runtime.model.history``). A run that dies therefore changes nothing or a whole day. A
repeated run finds nothing new, and a late file is treated like any other new file. Each level reads the raw files
directly, so a level does not depend on data that another level has deleted.

*Compaction*: a container adds a file every few minutes. When the day is over, the day's files of a container become one
file, named after the span from the first to the last (``heron_runtime.model.history``). One rename puts it in place,
and only then the originals are removed. A run that dies before the rename has changed nothing. A run that dies after it
leaves files that are ignored, and the next run removes them. A file that arrives late is joined with the existing one
at the next run.

A level holds all of a compacted file or none of it. Only files that every level of the day holds are therefore
compacted, and only neighbours: a file in between that some level does not hold yet (it arrived while that level was
rolled up) separates them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from heron_runtime.model.history import DAY_MS, ROLLED, compacted_name, date_of, held_as, span_of

#: Days that each level is kept. Raw files are deleted at the metrics manager's own limit, or here.
KEEP_DAYS: Mapping[str, int] = {"10s": 14, "1m": 30, "10m": 180, "1h": 730, "1d": 3650}
KEEP_EVENTS = "1h"  # events and the audit log of the API server are kept as long as this level


@dataclass(frozen=True, slots=True)
class Day:
    """State of one day of a submission. ``held`` maps each level to the names of the raw files that it holds."""

    place: str
    date: str
    raw: frozenset[str]
    held: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Work:
    """Day of one level to rebuild from ``files``, and from its existing rows if ``merges`` is set."""

    place: str
    date: str
    level: str
    files: frozenset[str]
    merges: bool
    taken: frozenset[str]


def work(days: Iterable[Day]) -> list[Work]:
    """Return the days to rebuild, ordered by level, place and date."""
    joins = []
    for day in days:
        for level in ROLLED:
            held = day.held.get(level)
            news = day.raw - (held or frozenset())
            if news:
                # The name of a deleted file never recurs (numbers grow), so it need not be remembered.
                taken = ((held or frozenset()) & day.raw) | news
                joins.append(Work(day.place, day.date, level, news, held is not None, taken))
    return sorted(joins, key=lambda w: (ROLLED.index(w.level), w.place, w.date))


def outdated(level: str, dates: Iterable[str], now_ms: int, keep_days: Mapping[str, int] = KEEP_DAYS) -> list[str]:
    """Return the dates of a level that are older than its retention."""
    oldest = date_of(now_ms - keep_days[level] * DAY_MS)
    return [date for date in dates if date < oldest]


Span = tuple[int, int, int]  # container, first and last number


@dataclass(frozen=True, slots=True)
class Raw:
    """Day of one folder of files (rows of ten seconds, or events).

    ``files`` are the files that hold its rows. ``held`` maps each existing level to the files that it holds.
    """

    folder: str
    date: str
    files: tuple[str, ...]
    held: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Join:
    """Files of a day to join into one, in this order."""

    folder: str
    date: str
    files: tuple[str, ...]
    name: str


def joins(days: Iterable[Raw], today: str) -> list[Join]:
    """Return the joins to make for the days before ``today``, in order."""
    return [join for day in days if day.date < today for join in _of(day)]


def _of(day: Raw) -> list[Join]:
    spans = sorted((span, name) for name in day.files if (span := span_of(name)) is not None)
    joins: list[Join] = []
    run: list[tuple[Span, str]] = []
    for span, name in [*spans, ((-1, 0, 0), "")]:
        ready = bool(name) and all(held_as(name) in held for held in day.held.values())
        if run and (not ready or span[0] != run[-1][0][0]):
            if len(run) > 1:
                (container, first, _), (_, _, last) = run[0][0], run[-1][0]
                names = tuple(name for _, name in run)
                joins.append(Join(day.folder, day.date, names, compacted_name(container, first, last)))
            run = []
        if ready:
            run.append((span, name))
    return joins
