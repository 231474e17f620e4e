"""Reducers Spark computes by itself: built-in monoids over plain columns become SQL, without any Python function.

Counts of what Python made are added by SQL, too: their accumulators cross the shuffle as numbers.

What SQL gives must be what the reference gives (docs/spark.md has the table):

* int sums are exact whatever their size: upper and lower 32 bits are summed apart and joined at the end;
* None values are left out by sum, min, max and mean, counted by count; NaN is greater than every number;
* a record without an event time is an error that names it, as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce as fold
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from data_pipeline.core.combine import Limits
from data_pipeline.core.decode import Decoding
from data_pipeline.core.failure import MARKER, failed
from data_pipeline.core.merge import Merged, result_of
from data_pipeline.core.payload import load
from data_pipeline.core.plan import Reduction, Scan, Unit
from data_pipeline.core.planner import INTEGERS, SCHEMA_TYPES
from data_pipeline.shell import scan as scans
from data_pipeline.shell.tasks import Render, Shipped, columns_of, results
from heronry.streamlet.endpoints import FileSource
from heronry.streamlet.extract import Extractor, Field
from heronry.streamlet.program import EventTime, ReduceStep
from heronry.streamlet.windows import MS_PER_UNIT

LOW_BITS = 32


def reduced(spark: SparkSession, tables: scans.Tables, reduction: Reduction, read: list[Scan]) -> DataFrame:
    """Rows (key, start, parts of the accumulator) of a reducer over the sources it reads."""
    step = reduction.step
    inputs = [_table(spark, tables, scan, step) for scan in read]
    rows = fold(DataFrame.unionByName, inputs)
    parts = [part.alias(f"acc{number}") for number, part in enumerate(_parts(step, dict(rows.dtypes)))]
    if step.windowing is not None:
        return rows.groupBy("key", "start").agg(*parts)
    names = [f"acc{number}" for number in range(len(parts))]
    return rows.groupBy("key").agg(*parts).select("key", sql.lit(0).cast("long").alias("start"), *names)


def counted(rows: DataFrame) -> DataFrame:
    """Rows (key as a payload, start, count) of a counting reducer; ``rows`` are those of its exits."""
    sums = rows.repartition("key").groupBy("key", "start").agg(sql.first("data").alias("payload"), sql.sum("count"))
    return sums.select("payload", "start", "sum(count)")


def _table(spark: SparkSession, tables: scans.Tables, scan: Scan, step: ReduceStep) -> DataFrame:
    """(key, start, value) for each record and window."""
    rows, types = _columns(spark, tables, scan)
    if scan.from_ms is not None or scan.to_ms is not None:
        assert scan.event_time is not None
        time = _time(scan.step, scan.event_time, types)
        low, high = sql.lit(scan.from_ms), sql.lit(scan.to_ms)
        rows = rows.where((low.isNull() | (time >= low)) & (high.isNull() | (time < high)))
    value = sql.lit(None).cast("int") if step.monoid.builtin == "count" else _of(step.value)
    if step.windowing is None:
        return rows.select(_of(step.key).alias("key"), value.alias("value"))
    own = step.windowing.event_time or scan.event_time
    assert own is not None
    time = _time(step.window_step or step.name, own, types)
    timed = rows.select(_of(step.key).alias("key"), time.alias("time"), value.alias("value"))
    length, every = step.windowing.window.length_ms, step.windowing.window.every_ms
    last = sql.expr(f"time - pmod(time, {every}L)")
    if step.windowing.window.is_tumbling:
        return timed.select("key", last.alias("start"), "value")
    first = f"time - pmod(time, {every}L) - ({length}L - 1 - pmod(time, {every}L)) div {every} * {every}"
    starts = sql.sequence(sql.expr(first), last, sql.lit(every).cast("long"))
    return timed.select("key", sql.explode(starts).alias("start"), "value")


def _columns(spark: SparkSession, tables: scans.Tables, scan: Scan) -> tuple[DataFrame, dict[str, str]]:
    """The source as a table of typed columns with ``file``, and the types."""
    source = scan.source
    assert isinstance(source, FileSource)
    rows = tables.read(scan)
    if source.format == "text":
        line = sql.make_valid_utf8(sql.regexp_replace(sql.col("value").cast("string"), "\r$", ""))
        return rows.select(line.alias("record"), "file"), {"record": "string"}
    if source.format == "parquet":
        return rows.withColumnRenamed(scans.FILE_COLUMN, "file"), dict(rows.dtypes)
    types = {name: SCHEMA_TYPES[kind] for name, kind in source.schema}
    headers = scans.headers(spark, rows) if source.format == "csv" else ()
    task = TypedTask(Decoding(scan.step, source, None, False, headers=headers), tuple(types.items()))
    shape = ", ".join(f"`{name}` {kind}" for name, kind in types.items())
    return rows.mapInArrow(Shipped(task), f"{shape}, file string"), types


def _of(extractor: Extractor) -> Column:
    return sql.col(f"`{extractor.name}`") if isinstance(extractor, Field) else sql.col("record")


def _time(step: str, time: EventTime, types: dict[str, str]) -> Column:
    """Event time in milliseconds; a record without one ends the job with its name."""
    name = str(time.extractor.name) if isinstance(time.extractor, Field) else "record"
    column, kind, unit = sql.col(f"`{name}`"), types[name], MS_PER_UNIT[time.unit]
    if kind in INTEGERS:
        ms, wrong = column.cast("long") * sql.lit(unit), column.isNull()
    elif kind in ("float", "double"):
        number = column.cast("double")
        ms = sql.rint(number * sql.lit(float(unit))).cast("long")
        wrong = column.isNull() | sql.isnan(column) | (sql.abs(number) == sql.lit(float("inf")))
    else:
        micros = f"unix_micros(cast(`{name}` as timestamp))"
        ms, wrong = sql.expr(f"({micros} - pmod({micros}, 1000L)) div 1000"), column.isNull()
    story = sql.to_json(
        sql.struct(
            sql.lit(step).alias("step"),
            sql.coalesce(column.cast("string"), sql.lit("None")).alias("value"),
            sql.lit(f"EventTimeError: the field {name!r} is no event time").alias("error"),
            sql.lit("").alias("traceback"),
            sql.col("file").alias("file"),
        )
    )
    return sql.when(wrong, sql.raise_error(sql.concat(sql.lit(MARKER), story)).cast("long")).otherwise(ms)


def _parts(step: ReduceStep, types: dict[str, str]) -> list[Column]:
    """The aggregates a monoid's accumulator is made of."""
    value, kind = sql.col("value"), types["value"]
    if step.monoid.builtin == "count":
        return [sql.count(sql.lit(1))]
    if step.monoid.builtin == "min":
        return [sql.min(value)]
    if step.monoid.builtin == "max":
        return [sql.max(value)]
    if kind in ("float", "double"):
        return [sql.sum(value.cast("double")), sql.count(value)]
    whole = value.cast("long")
    high, low = sql.shiftright(whole, LOW_BITS), whole.bitwiseAND(sql.lit((1 << LOW_BITS) - 1))
    return [sql.sum(high), sql.count(value), sql.sum(low)]


def _accumulator(builtin: str, parts: list[Any]) -> Any:
    if builtin in ("count", "min", "max"):
        return parts[0]
    total, count = parts[0], parts[1]
    if len(parts) == 3 and total is not None:
        total = (total << LOW_BITS) + parts[2]
    return (total or 0, count) if builtin == "mean" else total


@dataclass(frozen=True)
class TypedTask:
    """Lines with a declared schema to columns."""

    decoding: Decoding
    types: tuple[tuple[str, str], ...]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """``mapInArrow``'s function."""
        import pyarrow as pa

        arrow = {"string": pa.string(), "bigint": pa.int64(), "double": pa.float64(), "boolean": pa.bool_()}
        names = [name for name, _ in self.types]
        for columns in columns_of(self.decoding.source, batches):
            records, _, file = self.decoding.decode(columns)
            try:
                made = [pa.array([record[name] for record in records], arrow[kind]) for name, kind in self.types]
            except (OverflowError, pa.ArrowException):
                raise self._located(records, file) from None
            made.append(pa.array([file(index) for index in range(len(records))], pa.string()))
            yield pa.RecordBatch.from_arrays(made, names=[*names, "file"])

    def _located(self, records: list[Any], file: Any) -> Exception:
        for index, record in enumerate(records):
            for name, kind in self.types:
                value = record[name]
                if kind == "bigint" and value is not None and not -(1 << 63) <= value < 1 << 63:
                    error = OverflowError(
                        f"{name} does not fit 64 bits; declare it as str, or reduce it with a function"
                    )
                    return failed(self.decoding.step, record, error, file(index))
        return failed(self.decoding.step, records[:1], ValueError("a value does not fit its column"), file(0))


@dataclass(frozen=True)
class ResultTask:
    """What SQL gave to the records of the reducer, and through the unit behind it.

    ``payloads``: keys come in the payloads of the combine, not as plain columns.
    """

    step: ReduceStep
    unit: Unit
    render: Render
    limits: Limits = field(default_factory=Limits)
    payloads: bool = False

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """``mapInArrow``'s function."""
        yield from results(self.step, self._merged(batches), self.unit, self.render, self.limits)

    def records(self, batches: Iterable[Any]) -> list[Any]:
        """The records of the reducer alone."""
        return [result_of(self.step, found)[0] for found in self._merged(batches)]

    def _merged(self, batches: Iterable[Any]) -> Iterator[Merged]:
        builtin = self.step.monoid.builtin or ""
        for batch in batches:
            keys, starts, *parts = (column.to_pylist() for column in batch.columns)
            if self.payloads:
                keys = [load(payload)[0] for payload in keys]
            for key, start, *values in zip(keys, starts, *parts, strict=True):
                yield Merged(b"", key, start, _accumulator(builtin, values))  # each key is there once
