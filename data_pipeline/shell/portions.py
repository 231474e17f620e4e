"""The folder of portions (``core/portions.py``) of one stream: each appears whole, and is replaced whole.

``CHECKPOINT/portions-IDENTITY/FIRST-LAST/rows`` is Parquet: rows of units, as between any two units, and which scan
they are of. ``IDENTITY`` is the plan's, so that what another program has left there is not added to this one's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import reduce as fold
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from data_pipeline.core.plan import CannotPlan, Plan, Scan
from data_pipeline.core.portions import Portion, cover, identity
from data_pipeline.shell.output import MANIFEST, OutputFolder, spark_url
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

    def write(self, portion: Portion, rows: DataFrame) -> None:
        """Keep it; in place of one that is there."""
        with OutputFolder(self._spark, f"{self._folder}/{portion.name}", replace=True) as folder:
            first = next_stage(self._spark)
            rows.write.parquet(f"{folder.work}/rows")
            written = sum(stage.rows_written for stage in stages_from(self._spark, first))
            about = {"first": portion.first, "last": portion.last, "rows": written}
            folder.commit({"program": self._plan.program, **about})

    def rows(self, scans: list[Scan]) -> Mapping[str, DataFrame]:
        """What each scan has given so far."""
        paths = [f"{self._folder}/{portion.name}/rows" for portion in self.found()]
        schema = f"{ROW_SCHEMA}, {SCAN} string"
        all_rows = self._spark.read.schema(schema).parquet(*paths) if paths else self._spark.createDataFrame([], schema)
        return {scan.step: all_rows.where(sql.col(SCAN) == scan.step).drop(SCAN) for scan in scans}

    def join(self, scans: list[Scan]) -> None:
        """Make one of many: a key's accumulators are added up, so it grows with keys and results, not with input."""
        found = self.found()
        if len(found) <= MOST:
            return
        rows = self.rows(scans)
        joined = [marked(self._joined(scan, rows[scan.step]), scan) for scan in scans]
        whole = Portion(0, found[-1].last)
        self.write(whole, fold(DataFrame.union, joined))
        for portion in found:
            if portion != whole:
                path, files = file_system(self._spark, f"{self._folder}/{portion.name}")
                files.delete(path, True)

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
