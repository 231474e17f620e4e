"""Translation of a plan into DataFrames. Spark is lazy, so nothing runs until the sinks (sinks.py) trigger it.

Each unit becomes one ``mapInArrow``; its rows carry the tag of their output. The rows of a unit with several outputs
are kept on disk between its readers, so that the user's functions run once. A reducer repartitions its rows by
canonical key, sorts each partition by key and window, and merges in the next ``mapInArrow``.

Results may be read back into the driver (``records``). Results of SQL arrive as columns. The driver makes their records
with the code a worker would have used, and no Python worker runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce as fold
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from data_pipeline.core.combine import ASIDE, Limits
from data_pipeline.core.decode import Decoding
from data_pipeline.core.plan import Output, Plan, Reduction, Scan, Unit
from data_pipeline.core.render import (
    InFolders,
    Renderer,
    ToAccumulator,
    ToCells,
    ToServer,
    to_fields_pickle,
    to_json,
    to_pickle,
)
from data_pipeline.shell import catalyst
from data_pipeline.shell import scan as scans
from data_pipeline.shell.fields import fields_of, pairs_of
from data_pipeline.shell.joined import JoinedTask, joined
from data_pipeline.shell.tasks import ROW_SCHEMA, MergeTask, Render, ScanTask, Shipped
from heronry.streamlet.endpoints import COLUMNAR, FileSink, FileSource, ViewSink
from heronry.streamlet.server_sinks import ServerSink


class Execution:
    """DataFrames of one plan. ``close`` frees the cached ones."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        limits: Limits | None = None,
        collect: Renderer = to_pickle,
        tables: scans.Tables | None = None,
        aside: bool = False,
    ) -> None:
        """Prepare the DataFrames of a plan.

        Args:
            spark: The session.
            plan: The plan. With ``aside`` it must be one without SQL.
            limits: Limits of the combiners.
            collect: Renders the records of ``collect()`` sinks; by default they are pickled.
            tables: The rows of sources. With ``aside`` they must be numbered.
            aside: Turn failing records into letters (``letters``).
        """
        self._spark = spark
        self._tables = tables or scans.Tables(spark)
        self._limits = limits or Limits()
        self._aside = aside
        self._scans = {scan.step: scan for scan in plan.scans}
        self._reductions = {reduction.step.name: reduction for reduction in plan.reductions}
        self._units = {scan.step: scan.unit for scan in plan.scans if scan.unit is not None}
        self._units |= {reduction.step.name: reduction.unit for reduction in plan.reductions}
        self._sinks = {output.step: output for output in plan.outputs}
        self._render = {output.step: renderer(output, collect) for output in plan.outputs}
        self._frames: dict[str, DataFrame] = {}  # rows of units, by entry
        self._persisted: list[DataFrame] = []

    def output(self, step: str) -> DataFrame:
        """Return the rows of a sink."""
        return self._from(self._sinks[step].inputs)

    def rows(self, scan: str) -> DataFrame:
        """Return the rows of a scan and its unit, for all its readers."""
        return self._frame(scan)

    def ends(self) -> list[DataFrame]:
        """Return units that end in taps and logs: they have no readers but must run."""
        return [self._frame(entry) for entry, unit in self._units.items() if unit.nodes and not unit.outputs]

    def fields(self, step: str) -> DataFrame | None:
        """Return the records of a sink as columns of their fields; None if Spark alone cannot make them."""
        reduction, sink = self._in_front_of(step), self._sinks[step].sink
        if reduction is None or not reduction.sql:
            return None
        if isinstance(sink, ServerSink) or (isinstance(sink, FileSink) and (sink.fields or sink.partition_by)):
            return None
        as_lines = not (isinstance(sink, FileSink) and sink.format == "parquet")
        if reduction.join is not None:
            return pairs_of(self._added(reduction), reduction) if as_lines else None
        return fields_of(self._added(reduction), reduction.step, as_lines=as_lines)

    def records(self, step: str, load: Callable[[bytes], Any]) -> list[Any]:
        """Return the records of a ``collect()`` sink in this process; ``load`` is the inverse of ``collect``."""
        reduction = self._in_front_of(step)
        if reduction is not None:
            return self._results(reduction).records(self._added(reduction).toArrow().to_batches())
        data = self.output(step).select("data").toArrow().column("data")
        return [load(payload) for payload in data.to_pylist()]

    def _in_front_of(self, step: str) -> Reduction | None:
        """Return the reducer that feeds the sink directly, if SQL adds it up and it has no other reader."""
        inputs = self._sinks[step].inputs
        reduction = self._reductions.get(inputs[0][0]) if len(inputs) == 1 else None
        if reduction is None or not is_added_by_sql(reduction) or [n.kind for n in reduction.unit.nodes] != ["sink"]:
            return None
        return reduction

    def letters(self, most: int) -> list[bytes]:
        """Return at most ``most`` letters of records that were put aside by units that have run, whose rows are cached.

        Without ``aside`` the result is empty. A search would run everything again, as nothing is cached then.
        """
        if not self._aside:
            return []
        for entry in self._tables.made:  # including those that nothing reads
            self._frame(entry)
        frames = [frame.where(sql.col("tag") == ASIDE).select("data") for frame in self._frames.values()]
        return [bytes(row["data"]) for row in fold(DataFrame.union, frames).limit(most).collect()] if frames else []

    def close(self) -> None:
        """Free the cached rows on disk."""
        for frame in self._persisted:
            frame.unpersist()

    def _frame(self, entry: str) -> DataFrame:
        """Return the rows of a unit's outputs, made on first use, as Spark analyses every frame that is made."""
        if entry not in self._frames:
            unit = self._units[entry]
            if entry in self._tables.made:
                frame = self._tables.made[entry]
            elif entry in self._scans:
                frame = self.scanned(self._scans[entry])
            else:
                frame = self._reduction(self._reductions[entry])
            if self._is_mixed(unit):
                frame = frame.persist(StorageLevel.DISK_ONLY)
                self._persisted.append(frame)
            self._frames[entry] = frame
        return self._frames[entry]

    def _is_mixed(self, unit: Unit) -> bool:
        """Return True if the rows of the unit are for several readers."""
        return len(unit.outputs) > 1 or self._aside

    def _renderers(self, unit: Unit) -> Render:
        return {e.tag: self._render[e.step] for e in unit.outputs if e.kind in ("sink", "view")}

    def scanned(self, scan: Scan) -> DataFrame:
        """Return the rows of a scan and the unit downstream of it."""
        unit = self._units[scan.step]
        source = scan.source
        named = isinstance(source, FileSource) and (source.format in COLUMNAR or bool(source.partitions))
        rows = scans.for_python(self._tables.read(scan, named=named))
        bounded = scan.from_ms is not None or scan.to_ms is not None
        decoding = Decoding(
            scan.step, scan.source, scan.event_time, unit.timed or bounded, scan.from_ms, scan.to_ms,
            self._tables.headers(scan), self._tables.ranges(scan),
        )  # fmt: skip
        return rows.mapInArrow(
            Shipped(ScanTask(decoding, unit, self._renderers(unit), self._limits, self._aside)), ROW_SCHEMA
        )

    def _reduction(self, reduction: Reduction) -> DataFrame:
        if is_added_by_sql(reduction):
            return self._added(reduction).mapInArrow(Shipped(self._results(reduction)), ROW_SCHEMA)
        unit = reduction.unit
        rows = self._from(reduction.inputs).repartition("key").sortWithinPartitions("key", "start")
        task = MergeTask(reduction.step, unit, self._renderers(unit), self._limits, self._aside)
        return rows.mapInArrow(Shipped(task), ROW_SCHEMA)

    def _added(self, reduction: Reduction) -> DataFrame:
        """Return the accumulators or the pairs that SQL has made."""
        if reduction.step.name in self._tables.parts:
            return self._tables.parts[reduction.step.name]
        if not reduction.sql:
            return catalyst.counted(self._from(reduction.inputs))
        tables = [self._scans[table.scan] for table in reduction.tables]
        made = catalyst.reduced if reduction.join is None else joined
        return made(self._spark, self._tables, reduction, tables)

    def _results(self, reduction: Reduction) -> catalyst.ResultTask | JoinedTask:
        unit = reduction.unit
        if reduction.join is not None:
            return JoinedTask(reduction, self._renderers(unit), self._limits)
        return catalyst.ResultTask(
            reduction.step, unit, self._renderers(unit), self._limits, not reduction.sql, self._aside
        )

    def _from(self, inputs: tuple[tuple[str, int], ...]) -> DataFrame:
        """Return the rows of these outputs."""
        frames = []
        for entry, tag in inputs:
            frame = self._frame(entry)
            frames.append(frame.where(sql.col("tag") == tag) if self._is_mixed(self._units[entry]) else frame)
        return fold(DataFrame.union, frames) if frames else self._spark.createDataFrame([], ROW_SCHEMA)


def is_added_by_sql(reduction: Reduction) -> bool:
    """Return True if accumulators are numbers that SQL adds, so that they arrive as columns."""
    return reduction.sql or reduction.step.counts


def renderer(output: Output, collect: Renderer) -> Renderer:
    """Return the function that turns a sink's records into payloads."""
    if isinstance(output.sink, ViewSink):
        assert output.reduce is not None
        return ToAccumulator(output.reduce.name, output.reduce.monoid)
    if isinstance(output.sink, FileSink):
        sink = output.sink
        own: Renderer = to_json if sink.format == "json" else to_fields_pickle
        own = ToCells(sink.fields) if sink.format == "csv" else own
        return InFolders(own, sink.partition_by) if sink.partition_by else own
    if isinstance(output.sink, ServerSink):
        return ToServer(output.sink)
    return collect
