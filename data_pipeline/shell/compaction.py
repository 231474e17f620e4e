"""Compaction of the history's raw files on Spark: workers join files, and the driver publishes the results.

``core/history.py`` selects the files. A worker streams the files of one container and day into one file below the
job's work folder, in row groups of ``history_rows.PIECE`` rows, so its memory is bounded whatever the size of a day.
The driver syncs the file to disk, renames it, and removes the originals. Rows are kept unchanged: rows of one key are
not added up.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from data_pipeline.core.history import Join, Raw, joins
from data_pipeline.shell import history_rows
from heron_runtime.files import sync_folder
from heron_runtime.history_folder import dates, files, places, superseded, taken
from heron_runtime.model.history import EVENTS, METRICS, RAW, ROLLED, day_folder

if TYPE_CHECKING:  # publishing files, and its tests, work without Spark
    from pyspark.sql import SparkSession

AT_ONCE = 500  # maximum number of joins in one query


def clear(root: Path) -> None:
    """Remove files that a dead run has joined but not removed; must run before the files are read."""
    for place in places(root):
        for folder in (root / place.path / METRICS / RAW, root / place.path / EVENTS):
            for date in dates(folder):
                for file in superseded(folder, date):
                    file.unlink(missing_ok=True)


def found(root: Path, today: str) -> list[Join]:
    """Return the joins to make below ``root``."""
    return joins(_days(root), today)


def compact(spark: SparkSession, work: Path, todo: list[Join]) -> tuple[int, int]:
    """Join files, and return how many files became how many. Raises OSError.

    ``work`` is a folder on the same file system.
    """
    before = after = 0
    for cut in range(0, len(todo), AT_ONCE):
        part = todo[cut : cut + AT_ONCE]
        for join, made in zip(part, _made(spark, work, part), strict=True):
            if made is not None and publish(join, made):
                before, after = before + len(join.files), after + 1
        shutil.rmtree(work, ignore_errors=True)
    return before, after


def publish(join: Join, made: Path) -> bool:
    """Put ``made`` in place of the files it was made of; return False if the day has been removed meanwhile."""
    folder = Path(join.folder, day_folder(join.date))
    descriptor = os.open(made, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)  # the files it replaces are removed permanently
    finally:
        os.close(descriptor)
    try:
        os.rename(made, folder / join.name)
    except FileNotFoundError:
        return False
    sync_folder(folder)
    for name in join.files:
        with contextlib.suppress(FileNotFoundError):  # the metrics manager may have removed it for space
            os.unlink(folder / name)
    return True


def _days(root: Path) -> Iterator[Raw]:
    for place in places(root):
        metrics = root / place.path / METRICS
        for date in dates(metrics / RAW):
            there = [level for level in ROLLED if (metrics / level / day_folder(date)).is_dir()]
            held = {level: taken(metrics / level, date) for level in there}
            yield Raw(str(metrics / RAW), date, _names(metrics / RAW, date), held)
        events = root / place.path / EVENTS
        for date in dates(events):
            yield Raw(str(events), date, _names(events, date), {})


def _names(folder: Path, date: str) -> tuple[str, ...]:
    return tuple(file.name for file in files(folder, date))


def _made(spark: SparkSession, work: Path, todo: list[Join]) -> Iterable[Path | None]:
    """Return the joined file of each join, in order; None where a file was removed before it was read."""
    work.mkdir(parents=True, exist_ok=True)
    paths = [[f"{join.folder}/{day_folder(join.date)}/{name}" for name in join.files] for join in todo]
    rows = [(number, json.dumps(each), str(work / f"{number}")) for number, each in enumerate(paths)]
    listed = spark.createDataFrame(rows, "number int, paths string, target string").repartition(len(rows), "number")
    answers = listed.mapInArrow(history_rows.joiner(), "number int, whole boolean").collect()
    whole = {row["number"] for row in answers if row["whole"]}
    return [work / f"{number}" if number in whole else None for number in range(len(todo))]
