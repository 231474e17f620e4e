"""From a plan to DataFrames. Nothing runs here: Spark is lazy, and the sinks (sinks.py) set it going.

Theory of operation. Each unit becomes one ``mapInArrow``; its rows carry the number of their exit. A unit with several
exits is kept on disk between its readers, so that the user's functions run once. A reducer repartitions its rows by
canonical key, sorts each partition by key and window and merges in the next ``mapInArrow``.

Results may be read back into the driver (``records``). Those of SQL come as the columns they are: their records are
made by the code a worker would have used, and no Python worker runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce as fold
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from data_pipeline.core.combine import Limits
from data_pipeline.core.decode import Decoding
from data_pipeline.core.plan import Output, Plan, Reduction, Scan, Unit
from data_pipeline.core.render import Renderer, ToAccumulator, to_fields_pickle, to_json, to_pickle
from data_pipeline.shell import catalyst
from data_pipeline.shell import scan as scans
from data_pipeline.shell.tasks import ROW_SCHEMA, MergeTask, Render, ScanTask, Shipped
from heronry.streamlet.endpoints import FileSink, ViewSink


class Execution:
    """The DataFrames of one plan; ``outputs`` has those of its sinks, by step. ``close`` lets go of what was kept."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        limits: Limits | None = None,
        collect: Renderer = to_pickle,
        tables: scans.Tables | None = None,
    ) -> None:
        """``collect``: what becomes of the records of ``collect()``; by default they can be unpickled here."""
        self._spark = spark
        self._tables = tables or scans.Tables(spark)
        self._plan = plan
        self._limits = limits or Limits()
        self._units: dict[str, DataFrame] = {}
        self._exits: dict[str, int] = {}
        self._kept: list[DataFrame] = []
        self._columns: dict[str, tuple[DataFrame, catalyst.ResultTask]] = {}  # SQL reducer → its results
        self._outputs = {output.step: output for output in plan.outputs}
        self._render = {output.step: renderer(output, collect) for output in plan.outputs}
        self._scans = {scan.step: scan for scan in plan.scans}
        for scan in plan.scans:
            if scan.unit is not None:
                self._add(scan.unit, self._scan(scan, scan.unit))
        for reduction in plan.reductions:
            self._add(reduction.unit, self._reduction(reduction))
        self.outputs = {output.step: self._from(output.inputs) for output in plan.outputs}
        self.ends = [self._units[unit.entry] for unit in self._all_units() if not unit.exits]

    def records(self, step: str, load: Callable[[bytes], Any]) -> list[Any]:
        """What a ``collect()`` sink gets, read back into this process; ``load`` undoes what ``collect`` did."""
        sources = [self._columns.get(entry) for entry, _ in self._outputs[step].inputs]
        if len(sources) == 1 and sources[0] is not None:
            found, task = sources[0]
            return task.records(found.toArrow().to_batches())
        data = self.outputs[step].select("data").toArrow().column("data")
        return [load(payload) for payload in data.to_pylist()]

    def close(self) -> None:
        """Free the disk."""
        for frame in self._kept:
            frame.unpersist()

    def _all_units(self) -> list[Unit]:
        scanned = [scan.unit for scan in self._plan.scans if scan.unit is not None]
        return [*scanned, *(reduction.unit for reduction in self._plan.reductions if reduction.unit.nodes)]

    def _add(self, unit: Unit, frame: DataFrame) -> None:
        if len(unit.exits) > 1:
            frame = frame.persist(StorageLevel.DISK_ONLY)
            self._kept.append(frame)
        self._units[unit.entry] = frame
        self._exits[unit.entry] = len(unit.exits)

    def _renderers(self, unit: Unit) -> Render:
        return {e.tag: self._render[e.step] for e in unit.exits if e.kind in ("sink", "view")}

    def _scan(self, scan: Scan, unit: Unit) -> DataFrame:
        rows = self._tables.read(scan)
        bounded = scan.from_ms is not None or scan.to_ms is not None
        csv = scan.source.kind == "files" and scan.source.format == "csv"
        decoding = Decoding(
            scan.step, scan.source, scan.event_time, unit.timed or bounded, scan.from_ms, scan.to_ms,
            scans.headers(self._spark, rows) if csv else (),
        )  # fmt: skip
        return rows.mapInArrow(Shipped(ScanTask(decoding, unit, self._renderers(unit), self._limits)), ROW_SCHEMA)

    def _reduction(self, reduction: Reduction) -> DataFrame:
        step, unit, render = reduction.step, reduction.unit, self._renderers(reduction.unit)
        if reduction.sql:
            tables = [self._scans[name] for name in reduction.tables]
            found = catalyst.reduced(self._spark, self._tables, reduction, tables)
        elif step.monoid.builtin == "count":
            found = catalyst.counted(self._from(reduction.inputs))
        else:
            rows = self._from(reduction.inputs).repartition("key").sortWithinPartitions("key", "start")
            return rows.mapInArrow(Shipped(MergeTask(step, unit, render, self._limits)), ROW_SCHEMA)
        task = catalyst.ResultTask(step, unit, render, self._limits, payloads=not reduction.sql)
        if [node.kind for node in unit.nodes] == ["sink"]:
            self._columns[step.name] = found, task
        return found.mapInArrow(Shipped(task), ROW_SCHEMA)

    def _from(self, inputs: tuple[tuple[str, int], ...]) -> DataFrame:
        """The rows of these exits."""
        frames = []
        for entry, tag in inputs:
            frame = self._units[entry]
            frames.append(frame.where(sql.col("tag") == tag) if self._exits[entry] > 1 else frame)
        return fold(DataFrame.union, frames) if frames else self._spark.createDataFrame([], ROW_SCHEMA)


def renderer(output: Output, collect: Renderer) -> Renderer:
    """How a sink's records become payloads."""
    if isinstance(output.sink, ViewSink):
        assert output.reduce is not None
        return ToAccumulator(output.reduce.name, output.reduce.monoid)
    if isinstance(output.sink, FileSink):
        return to_json if output.sink.format == "json" else to_fields_pickle
    return collect
