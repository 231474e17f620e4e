"""Roll-up of the history of all topologies below a folder on Spark: ``heron pipeline roll-up``.

``core/history.py`` decides; this module reads, adds up and names the days. The rows of all topologies go through one
query for each level. Arrow adds up each file where it is read (``history_rows.py``), which leaves a sixth of the rows.
Catalyst adds up the rest. It treats the bins of sketches as separate rows (exploded, added up, collected again), and
spills to disk what does not fit into memory. A level is computed from the previous one where both have the same new
files, which is the common case. It is read from the files just written, since keeping it in Spark costs more.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from data_pipeline.core.history import KEEP_DAYS, KEEP_EVENTS, Day, Work, outdated, work
from data_pipeline.shell import audit, compaction, history_rows
from data_pipeline.shell.output import OutputFolder, spark_url
from data_pipeline.shell.session import SessionOptions, session
from heron_control.schedulers.identity import HostLock
from heron_runtime.failures import Failure, NotFound
from heron_runtime.history_folder import dates, files, places, taken
from heron_runtime.model.history import (
    AUDIT_FOLDER,
    EVENTS,
    LEVEL_MS,
    METRICS,
    RAW,
    ROLLED,
    TAKEN,
    date_of,
    day_folder,
    held_as,
)

cloudpickle.register_pickle_by_value(history_rows)  # executors on a cluster may lack this module

LOCK = ".roll-up.lock"
WORK = ".roll-up.tmp"
KEY = ("day", *history_rows.KEY)
SCHEMA = (
    "start_ms long, container int, component string, instance string, metric string, kind string, count double, "
    "sum double, low double, high double, last double, last_ms long, bins array<int>, counts array<double>"
)
DAYS_AT_ONCE = 500  # maximum number of days of a level in one query
TASKS_PER_CORE = 4  # maximum number of reading tasks per core


@dataclass(frozen=True)
class RollUp:
    """Options of a roll-up from the command line."""

    root: Path
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    keep_days: Mapping[str, int] = field(default_factory=lambda: KEEP_DAYS)
    records: tuple[Path, ...] = ()  # audit.jsonl files of API servers


def run(request: RollUp, out: TextIO) -> str:
    """Roll up, compact and prune the history, and return the text to print at the end.

    Raises:
        NotFound: The folder holds no history.
        Failure: Another roll-up is running. Errors of Spark are raised unchanged.
    """
    if request.records:
        request.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not request.root.is_dir():
        raise NotFound(f"no history in {request.root}", "Submit with --config-property heron.history.enabled=true.")
    lock = HostLock(request.root / LOCK)
    if not lock.acquire("roll-up"):
        raise Failure(f"another roll-up is at work in {request.root}", "Wait for it to end.")
    try:
        shutil.rmtree(request.root / WORK, ignore_errors=True)  # left by a run that was killed
        compaction.clear(request.root)
        for record in request.records:
            new, strange = audit.take(request.root, record)
            out.write(f"{record}: {new} new lines" + f", {strange} invalid lines skipped" * bool(strange) + "\n")
        now_ms, made, joined = round(time.time() * 1000), 0, (0, 0)
        # Skip days that would be removed at once: raw files may be kept longer than a level.
        todo = [w for w in work(found_days(request.root)) if not outdated(w.level, [w.date], now_ms, request.keep_days)]
        today = date_of(now_ms)
        if todo or compaction.found(request.root, today):
            with session(SessionOptions("history", request.master, request.conf), out) as spark:
                made = roll_up(spark, request.root, todo, out)
                gone = retain(request.root, now_ms, request.keep_days)
                # After the roll-up, as a file is compacted only when all levels hold it.
                joins = compaction.found(request.root, today)
                joined = compaction.compact(spark, request.root / WORK / "joined", joins)
        else:
            gone = retain(request.root, now_ms, request.keep_days)
    finally:
        shutil.rmtree(request.root / WORK, ignore_errors=True)
        lock.release()
    return (
        f"rolled up {made} days of levels in {request.root}; {gone} days were too old and are removed; "
        f"{joined[0]} files of days that are over became {joined[1]}"
    )


def found_days(root: Path) -> Iterable[Day]:
    """Yield every day of raw files below ``root``, with the files that the levels hold of it."""
    for place in places(root):
        metrics = root / place.path / METRICS
        for date in dates(metrics / RAW):
            raw = frozenset(held_as(file.name) for file in files(metrics / RAW, date))
            there = [level for level in ROLLED if (metrics / level / day_folder(date)).is_dir()]
            yield Day(place.path, date, raw, {level: taken(metrics / level, date) for level in there})


def roll_up(spark: SparkSession, root: Path, todo: list[Work], out: TextIO) -> int:
    """Roll up these days and return their number."""
    groups: dict[frozenset[tuple[str, str, frozenset[str]]], list[str]] = {}
    for level in ROLLED:
        mine = frozenset((w.place, w.date, w.files) for w in todo if w.level == level)
        if mine:
            groups.setdefault(mine, []).append(level)
    for news, levels in groups.items():
        ordered = sorted(news, key=lambda item: item[:2])
        for cut in range(0, len(ordered), DAYS_AT_ONCE):
            part = ordered[cut : cut + DAYS_AT_ONCE]
            _roll_up_group(spark, root, part, levels, {(w.level, w.place, w.date): w for w in todo}, out)
    return len(todo)


def _roll_up_group(
    spark: SparkSession, root: Path, news: list[tuple[str, str, frozenset[str]]], levels: list[str],
    todo: Mapping[tuple[str, str, str], Work], out: TextIO,
) -> None:  # fmt: skip
    raw = [
        (number, str(file))
        for number, (place, date, names) in enumerate(news)
        for file in files(root / place / METRICS / RAW, date)
        if held_as(file.name) in names
    ]
    finer = raw
    for level in levels:
        began = time.monotonic()
        mine = [todo[level, place, date] for place, date, _ in news]
        finer = _written(added_up(_read(spark, finer, level), level), root / WORK / level)
        _publish(spark, root, level, mine, finer)
        out.write(f"{level}: {len(mine)} days of {len({w.place for w in mine})} topologies, ")
        out.write(f"{time.monotonic() - began:.1f} s\n")
        out.flush()


def added_up(rows: DataFrame, level: str) -> DataFrame:
    """Return the rows of a level from rows of finer levels: ``heron_runtime.model.history.roll_up`` on Spark."""
    length = LEVEL_MS[level]
    cut = rows.withColumn("start_ms", F.col("start_ms") - F.col("start_ms") % length)
    plain = (
        cut.where("kind <> 'latency'")
        .groupBy(*KEY)
        .agg(
            F.sum("count").alias("count"), F.sum("sum").alias("sum"), F.min("low").alias("low"),
            F.max("high").alias("high"), F.max(F.struct("last_ms", "last")).alias("newest"),
        )
        .select(
            *KEY, "count", "sum", "low", "high", F.col("newest.last").alias("last"),
            F.col("newest.last_ms").alias("last_ms"), F.expr("cast(array() as array<int>)").alias("bins"),
            F.expr("cast(array() as array<double>)").alias("counts"),
        )
    )  # fmt: skip
    sketches = (
        cut.where("kind = 'latency'")
        .select(*KEY, F.explode(F.arrays_zip("bins", "counts")).alias("pair"))
        .groupBy(*KEY, F.col("pair.bins").alias("bin"))
        .agg(F.sum("pair.counts").alias("n"))
        .groupBy(*KEY)
        .agg(F.sum("n").alias("count"), F.array_sort(F.collect_list(F.struct("bin", "n"))).alias("pairs"))
        .select(
            *KEY, "count", F.lit(0.0).alias("sum"),
            *(F.lit(None).cast("double").alias(name) for name in ("low", "high", "last")),
            F.lit(None).cast("long").alias("last_ms"), F.col("pairs.bin").alias("bins"),
            F.col("pairs.n").alias("counts"),
        )
    )  # fmt: skip
    return plain.unionByName(sketches)


def _read(spark: SparkSession, numbered: list[tuple[int, str]], level: str) -> DataFrame:
    """Return the rows of files with the number of the file's day as ``day``; each file is added up to this level."""
    tasks = min(len(numbered), TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    listed = spark.createDataFrame(numbered, "day int, path string").repartition(max(1, tasks))
    return listed.mapInArrow(history_rows.reader(LEVEL_MS[level]), f"day int, {SCHEMA}")


def _written(rows: DataFrame, place: Path) -> list[tuple[int, str]]:
    """Write the rows below ``place``, in a folder for each day, and return each day's number and file.

    The rows are needed twice, so they are written first.
    """
    shutil.rmtree(place, ignore_errors=True)
    ordered = rows.repartition("day").sortWithinPartitions("day", "component", "metric", "instance", "start_ms")
    ordered.write.partitionBy("day").option("compression", "zstd").parquet(spark_url(str(place)))
    return sorted((int(f.parent.name.removeprefix("day=")), str(f)) for f in place.glob("day=*/part-*.parquet"))


def _publish(spark: SparkSession, root: Path, level: str, mine: list[Work], fresh: list[tuple[int, str]]) -> None:
    """Add the rows to those the days already hold, and publish each day. ``fresh`` are the files of ``_written``."""
    there = [
        (number, str(file))
        for number, w in enumerate(mine)
        if w.merges
        for file in files(root / w.place / METRICS / level, w.date)
    ]
    merged = root / WORK / f"{level}-merged"
    have = {number for number, _ in there}
    if there:
        changed = [(number, file) for number, file in fresh if number in have]
        _written(added_up(_read(spark, changed + there, level), level), merged)
    for number, w in enumerate(mine):
        made = (merged if number in have else root / WORK / level) / f"day={number}"
        with OutputFolder(spark, str(root / w.place / METRICS / level / day_folder(w.date)), replace=True) as folder:
            for file in sorted(made.glob("part-*.parquet")) if made.is_dir() else ():
                os.link(file, Path(_path_of(folder)) / file.name)  # a link, as the next level reads the original
            folder.commit({TAKEN: sorted(w.taken), "level": level})


def _path_of(folder: OutputFolder) -> str:
    return folder.work.removeprefix("file://")


def retain(root: Path, now_ms: int, keep_days: Mapping[str, int]) -> int:
    """Remove days beyond their retention, and return their number.

    The folder of a submission is removed when nothing is left in it.
    """
    gone = 0
    for place in places(root):
        folder, before = root / place.path, gone
        retention = {Path(METRICS, level): level for level in LEVEL_MS} | {Path(EVENTS): KEEP_EVENTS}
        for kind, level in retention.items():
            for date in outdated(level, dates(folder / kind), now_ms, keep_days):
                shutil.rmtree(folder / kind / day_folder(date))
                gone += 1
        if gone > before and not any(dates(folder / kind) for kind in retention):
            shutil.rmtree(folder)
    for date in outdated(KEEP_EVENTS, dates(root / AUDIT_FOLDER), now_ms, keep_days):
        shutil.rmtree(root / AUDIT_FOLDER / day_folder(date))
        gone += 1
    return gone
