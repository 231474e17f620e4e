"""Compaction: which raw files of days that are over become one, and what that one is called.

Theory of operation. A container adds a file every few minutes. When the day is over, its files of a container, from the
first to the last, become one file whose name is that span (``heron_runtime.model.history``): one rename puts it in
their place, and only then they are removed. A run that dies before the rename has changed nothing; one that dies after
it leaves files that nobody looks at any more, and the next run removes them. A file that comes late for a day joins
what is there at the next run.

A level holds all of a compacted file or none of it. So only files that every level of the day holds are taken, and only
neighbours: a file in between that some level does not hold yet (it came while that level was made) parts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from heron_runtime.model.history import compacted_name, held_as, span_of

Span = tuple[int, int, int]  # container, first and last number


@dataclass(frozen=True, slots=True)
class Raw:
    """A day of one folder of files (rows of ten seconds, or events). ``files``: those that hold its rows; ``held``:
    each level that is there, to the files that it holds."""

    folder: str
    date: str
    files: tuple[str, ...]
    held: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Join:
    """These files of a day become one, in this order."""

    folder: str
    date: str
    files: tuple[str, ...]
    name: str


def joins(days: Iterable[Raw], today: str) -> list[Join]:
    """What there is to do for the days before ``today``, in order."""
    return [join for day in days if day.date < today for join in _of(day)]


def _of(day: Raw) -> list[Join]:
    spans = sorted((span, name) for name in day.files if (span := span_of(name)) is not None)
    found: list[Join] = []
    run: list[tuple[Span, str]] = []
    for span, name in [*spans, ((-1, 0, 0), "")]:
        ready = bool(name) and all(held_as(name) in held for held in day.held.values())
        if run and (not ready or span[0] != run[-1][0][0]):
            if len(run) > 1:
                (container, first, _), (_, _, last) = run[0][0], run[-1][0]
                names = tuple(name for _, name in run)
                found.append(Join(day.folder, day.date, names, compacted_name(container, first, last)))
            run = []
        if ready:
            run.append((span, name))
    return found
