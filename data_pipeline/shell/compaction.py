"""Compaction of the history's raw files on Spark: ``core/compaction.py`` says which, a worker joins them, the driver
gives the result its name.

A worker streams the files of one container and day into one below the job's work folder, in row groups of
``history_rows.PIECE`` rows, so its memory is bounded whatever a day holds. The driver has it on disk, renames it, and
removes what it was made of. Rows are kept as they are: what adds up to one stays two.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from data_pipeline.core.compaction import Join, Raw, joins
from data_pipeline.shell import history_rows
from heron_runtime.files import sync_folder
from heron_runtime.history_folder import dates, files, places, superseded, taken
from heron_runtime.model.history import EVENTS, METRICS, RAW, ROLLED, day_folder

if TYPE_CHECKING:  # what gives files their names needs no Spark, and neither do its tests
    from pyspark.sql import SparkSession

AT_ONCE = 500  # joins in one query


def clear(root: Path) -> None:
    """Remove what a run that died has joined and not removed: before anything else looks at the files."""
    for place in places(root):
        for folder in (root / place.path / METRICS / RAW, root / place.path / EVENTS):
            for date in dates(folder):
                for file in superseded(folder, date):
                    file.unlink(missing_ok=True)


def found(root: Path, today: str) -> list[Join]:
    """What there is to do below ``root``."""
    return joins(_days(root), today)


def compact(spark: SparkSession, work: Path, todo: list[Join]) -> tuple[int, int]:
    """Join these; how many files became how many. ``work``: a folder on the same file system. Raises OSError."""
    before = after = 0
    for cut in range(0, len(todo), AT_ONCE):
        part = todo[cut : cut + AT_ONCE]
        for join, made in zip(part, _made(spark, work, part), strict=True):
            if made is not None and publish(join, made):
                before, after = before + len(join.files), after + 1
        shutil.rmtree(work, ignore_errors=True)
    return before, after


def publish(join: Join, made: Path) -> bool:
    """Put ``made`` in place of the files it was made of; False where the day has gone meanwhile."""
    folder = Path(join.folder, day_folder(join.date))
    descriptor = os.open(made, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)  # what it replaces goes for good
    finally:
        os.close(descriptor)
    try:
        os.rename(made, folder / join.name)
    except FileNotFoundError:
        return False
    sync_folder(folder)
    for name in join.files:
        with contextlib.suppress(FileNotFoundError):  # a metrics manager had no room for it any more
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
    """The joined file of each, in order; None where a file went before it was read."""
    work.mkdir(parents=True, exist_ok=True)
    paths = [[f"{join.folder}/{day_folder(join.date)}/{name}" for name in join.files] for join in todo]
    rows = [(number, json.dumps(each), str(work / f"{number}")) for number, each in enumerate(paths)]
    listed = spark.createDataFrame(rows, "number int, paths string, target string").repartition(len(rows), "number")
    answers = listed.mapInArrow(history_rows.joiner(), "number int, whole boolean").collect()
    whole = {row["number"] for row in answers if row["whole"]}
    return [work / f"{number}" if number in whole else None for number in range(len(todo))]
