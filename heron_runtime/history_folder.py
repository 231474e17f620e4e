"""Folders of history (`heron_runtime.model.history`): their files, selected by name while others write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from heron_runtime.files import entries
from heron_runtime.model.history import (
    ABOUT,
    DAY_MS,
    MANIFEST,
    METRICS,
    RAW,
    SUFFIX,
    TAKEN,
    SubmissionPath,
    TopologySummary,
    covering,
    date_of,
    day_folder,
    held_as,
)

_DAY = day_folder("")
FAR_MS = 4_102_444_800_000  # the year 2100


def read_about(folder: Path) -> TopologySummary | None:
    """Return the summary of the topology, or None if the file is missing or damaged."""
    try:
        return TopologySummary.from_json((folder / ABOUT).read_text())
    except (OSError, ValueError, KeyError, TypeError):
        return None


def places(root: Path) -> Iterator[SubmissionPath]:
    """Yield every submission that has a history below ``root``, in order of names."""
    folders = [root]
    for _ in range(5):
        folders = [below for folder in folders for below in entries(folder) if not below.name.startswith(".")]
    for folder in folders:
        if folder.is_dir():
            yield SubmissionPath(*folder.parts[-5:])


def dates(folder: Path) -> list[str]:
    """Return the dates of the day folders in a folder of rows or events, in order."""
    return [day.name.removeprefix(_DAY) for day in entries(folder) if day.name.startswith(_DAY)]


def files(folder: Path, date: str) -> list[Path]:
    """Return the complete Parquet files that together hold each row of a day once."""
    names = [file.name for file in _whole(folder, date)]
    return [folder / day_folder(date) / name for name in covering(names)]


def superseded(folder: Path, date: str) -> list[Path]:
    """Return the files of a day whose rows are in a compacted file, left over from an interrupted compaction."""
    current = set(files(folder, date))
    return [file for file in _whole(folder, date) if file not in current]


def _whole(folder: Path, date: str) -> list[Path]:
    paths = entries(folder / day_folder(date))
    return [file for file in paths if file.suffix == SUFFIX and not file.name.startswith(".")]


def files_between(folder: Path, from_ms: int, to_ms: int) -> list[Path]:
    """Return the files in a folder of days that may hold rows of this time span (milliseconds since 1970)."""
    return [file for date in _between(dates(folder), from_ms, to_ms) for file in files(folder, date)]


def _between(days: list[str], from_ms: int, to_ms: int) -> list[str]:
    # A file may be a day later than its rows. Dates beyond FAR_MS have no files.
    first, last = date_of(min(from_ms, FAR_MS)), date_of(min(to_ms, FAR_MS) + DAY_MS)
    return [date for date in days if first <= date <= last]


def taken(folder: Path, date: str) -> frozenset[str]:
    """Return the names of the raw files in a rolled-up day; empty if the day does not exist."""
    try:
        return frozenset(json.loads((folder / day_folder(date) / MANIFEST).read_text())[TAKEN])
    except FileNotFoundError:
        return frozenset()


def files_of(folder: Path, level: str, from_ms: int, to_ms: int) -> list[Path]:
    """Return the files that hold all rows of a submission for a time span.

    These are the files of the level, and the raw files that the level does not include yet.

    Args:
        folder: The submission's folder.
        level: ``RAW`` or the name of a rolled-up level.
        from_ms: Start of the span, in milliseconds since 1970.
        to_ms: End of the span, in milliseconds since 1970.

    Raises:
        OSError: A file or folder cannot be read.
        ValueError: A manifest is damaged.
    """
    raw, rolled = folder / METRICS / RAW, folder / METRICS / level
    days = _between(sorted({*dates(raw), *dates(rolled)}), from_ms, to_ms)
    if level == RAW:
        return [file for date in days for file in files(raw, date)]
    paths: list[Path] = []
    for date in days:
        held = taken(rolled, date)
        paths += files(rolled, date)
        paths += [file for file in files(raw, date) if held_as(file.name) not in held]
    return paths
