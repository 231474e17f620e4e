"""Compaction of raw files: which files of past days become one, and the name of the resulting file.

A container adds a file every few minutes. When the day is over, the day's files of a container become one file, named
after the span from the first to the last (``heron_runtime.model.history``). One rename puts it in place, and only then
the originals are removed. A run that dies before the rename has changed nothing. A run that dies after it leaves files
that are ignored, and the next run removes them. A file that arrives late is joined with the existing one at the next
run.

A level holds all of a compacted file or none of it. Only files that every level of the day holds are therefore
compacted, and only neighbours: a file in between that some level does not hold yet (it arrived while that level was
rolled up) separates them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from heron_runtime.model.history import compacted_name, held_as, span_of

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
