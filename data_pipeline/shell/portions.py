"""The folder of portions (``core/portions.py``) of one stream: each appears whole, and is replaced whole.

``CHECKPOINT/portions-IDENTITY/FIRST-LAST/rows`` is Parquet: rows of units, as between any two units, and which scan
they are of. Beside them lies ``parts/N`` for the N-th reducer, if there are parts of it (parts.py); the manifest says
of which there are, and in which columns. ``IDENTITY`` is the plan's, so that what another program has left there is not
added to this one's.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import reduce as fold
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from data_pipeline.core.plan import CannotPlan, Plan, Reduction, Scan
from data_pipeline.core.portions import Kept, Portion, columns_of_parts, cover, identity
from data_pipeline.shell.output import MANIFEST, OutputFolder, spark_url
from data_pipeline.shell.parts import PartsTask, added_up
from data_pipeline.shell.progress import next_stage, stages_from
from data_pipeline.shell.scan import file_system
from data_pipeline.shell.tasks import ROW_SCHEMA, JoinTask, Shipped
from heronry.streamlet.program import ReduceStep

SCAN = "scan"  # beside the columns of ROW_SCHEMA
MOST = 16  # portions; more are joined
_PREFIX = "portions-"


class Size(NamedTuple):
    """How many portions, and what is in them: accumulators by key (and window), and records that wait for more."""

    portions: int
    length: int  # bytes
    rows: int


class Made(NamedTuple):
    """What is to be kept of a micro-batch: what units gave (None if none had anything to give), parts by reducer, and
    the reducers whose accumulators are among the rows."""

    rows: DataFrame | None
    parts: Mapping[str, DataFrame]
    merged: Collection[str]


class Portions:
    """Of one plan in one checkpoint folder."""

    def __init__(self, spark: SparkSession, checkpoint: str, plan: Plan) -> None:
        """Raises CannotPlan if the folder is another program's."""
        self._spark = spark
        self._plan = plan
        self._root = spark_url(checkpoint.rstrip("/"))
        self._folder = f"{self._root}/{_PREFIX}{identity(plan)}"
        others = [name for name in self._names(self._root) if name.startswith(_PREFIX)]
        if others and not self._folder.endswith(f"/{others[0]}"):
            raise CannotPlan(
                f"{checkpoint} has what another program, or an earlier form of this one, has counted: its steps, "
                "sources and sinks must stay the same. Name another --checkpoint, and all input is read again"
            )

    def found(self) -> list[Portion]:
        """Those to be read."""
        return cover(self._names(self._folder))

    def size(self) -> Size:
        """Of those that are to be read."""
        length, rows, found = 0, 0, self.found()
        for portion in found:
            place = f"{self._folder}/{portion.name}"
            path, files = file_system(self._spark, place)
            length += int(files.getContentSummary(path).getLength())
            rows += int(_manifest(self._spark, place).get("rows", 0))
        return Size(len(found), length, rows)

    def write(self, portion: Portion, made: Made) -> None:
        """Keep it; in place of one that is there."""
        with OutputFolder(self._spark, f"{self._folder}/{portion.name}", replace=True) as folder:
            first = next_stage(self._spark)
            if made.rows is not None:
                made.rows.write.parquet(f"{folder.work}/rows")
            for name, parts in made.parts.items():
                parts.write.parquet(f"{folder.work}/parts/{self._number(name)}")
            written = sum(stage.rows_written for stage in stages_from(self._spark, first))
            about = {"first": portion.first, "last": portion.last, "rows": written}
            columns = {name: _columns(parts) for name, parts in made.parts.items()}
            folder.commit({"program": self._plan.program, "parts": columns, "merged": sorted(made.merged), **about})

    def rows(self, scans: list[Scan]) -> Mapping[str, DataFrame]:
        """What each scan has given so far, but for reducers that have parts everywhere (``parts``)."""
        kept = self._kept()
        paths = [f"{self._folder}/{name}/rows" for name, (_, has_rows) in kept.items() if has_rows]
        schema = f"{ROW_SCHEMA}, {SCAN} string"
        all_rows = self._spark.read.schema(schema).parquet(*paths) if paths else self._spark.createDataFrame([], schema)
        frames = [all_rows]
        everywhere = columns_of_parts(found for found, _ in kept.values())
        for name, (found, _) in kept.items():
            frames += [
                self._as_rows(f"{self._folder}/{name}", reducer, columns)
                for reducer, columns in found.parts.items()
                if reducer not in everywhere
            ]
        all_rows = fold(DataFrame.union, frames)
        return {scan.step: all_rows.where(sql.col(SCAN) == scan.step).drop(SCAN) for scan in scans}

    def parts(self) -> Mapping[str, DataFrame]:
        """Of the reducers that have them everywhere, added up."""
        kept, found = self._kept(), {}
        for name, columns in columns_of_parts(known for known, _ in kept.values()).items():
            folders = [folder for folder, (known, _) in kept.items() if name in known.parts]
            places = [self._place_of_parts(f"{self._folder}/{folder}", name) for folder in folders]
            read = self._spark.read.schema(columns).parquet(*places)
            found[name] = added_up(read, self._plan_of(name).step)
        return found

    def join(self, scans: list[Scan]) -> None:
        """Make one of many: a key's accumulators are added up, so it grows with keys and results, not with input."""
        found = self.found()
        if len(found) <= MOST:
            return
        rows, parts = self.rows(scans), self.parts()
        kept = [known for known, _ in self._kept().values()]
        merged = {name for known in kept for name in (*known.parts, *known.merged)} - {*parts}
        joined = [marked(self._joined(scan, rows[scan.step]), scan) for scan in scans]
        whole = Portion(0, found[-1].last)
        self.write(whole, Made(fold(DataFrame.union, joined), parts, merged))
        for portion in found:
            if portion != whole:
                path, files = file_system(self._spark, f"{self._folder}/{portion.name}")
                files.delete(path, True)

    def _kept(self) -> dict[str, tuple[Kept, bool]]:
        """Of each portion that is to be read: what it says of its reducers, and whether it has rows. One that says
        nothing is of a release that knew no parts."""
        found, every = {}, [reduction.step.name for reduction in self._plan.reductions]
        for portion in self.found():
            place = f"{self._folder}/{portion.name}"
            about = _manifest(self._spark, place)
            path, files = file_system(self._spark, f"{place}/rows")
            found[portion.name] = (Kept(about.get("parts", {}), about.get("merged", every)), bool(files.exists(path)))
        return found

    def _as_rows(self, place: str, reducer: str, columns: str) -> DataFrame:
        """Parts as the accumulators that a unit would have given: that of the first input of the reducer."""
        reduction = self._plan_of(reducer)
        scan, tag = reduction.inputs[0]
        parts = self._spark.read.schema(columns).parquet(self._place_of_parts(place, reducer))
        rows = parts.mapInArrow(Shipped(PartsTask(tag, reduction.step)), ROW_SCHEMA)
        return rows.withColumn(SCAN, sql.lit(scan))

    def _place_of_parts(self, place: str, reducer: str) -> str:
        return f"{place}/parts/{self._number(reducer)}"

    def _number(self, reducer: str) -> int:
        return [reduction.step.name for reduction in self._plan.reductions].index(reducer)

    def _plan_of(self, reducer: str) -> Reduction:
        return self._plan.reductions[self._number(reducer)]

    def _joined(self, scan: Scan, rows: DataFrame) -> DataFrame:
        steps: dict[int, ReduceStep] = {}
        for reduction in self._plan.reductions:
            steps |= {tag: reduction.step for entry, tag in reduction.inputs if entry == scan.step}
        others = rows.where(~sql.col("tag").isin(list(steps))) if steps else rows
        frames = [others]
        for tag, step in steps.items():
            sorted_rows = rows.where(sql.col("tag") == tag).repartition("key").sortWithinPartitions("key", "start")
            frames.append(sorted_rows.mapInArrow(Shipped(JoinTask(tag, step)), ROW_SCHEMA))
        return fold(DataFrame.union, frames)

    def _names(self, folder: str) -> list[str]:
        path, files = file_system(self._spark, folder)
        return [status.getPath().getName() for status in files.listStatus(path)] if files.exists(path) else []


def _columns(parts: DataFrame) -> str:
    """As SQL declares them."""
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in parts.schema.fields)


def marked(rows: DataFrame, scan: Scan) -> DataFrame:
    """With the scan's name."""
    return rows.withColumn(SCAN, sql.lit(scan.step))


def is_of(spark: SparkSession, url: str, checkpoint: str) -> bool:
    """True for a result that the stream of this checkpoint has written."""
    return bool(_manifest(spark, url.rstrip("/")).get("checkpoint") == checkpoint)


def _manifest(spark: SparkSession, folder: str) -> dict[str, Any]:
    """What stands in it; nothing of a folder without one that can be read."""
    try:
        found = json.loads(_read_text(spark, f"{folder}/{MANIFEST}") or "null")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _read_text(spark: SparkSession, url: str) -> str | None:
    """A small file on any file system; None if it is not there."""
    path, files = file_system(spark, spark_url(url))
    if not files.exists(path):
        return None
    jvm: Any = spark._jvm
    stream = files.open(path)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
