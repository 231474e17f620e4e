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
from data_pipeline.shell.lines import line_of
from data_pipeline.shell.tasks import Render, Shipped, columns_of, results
from heronry.streamlet.endpoints import FileSource
from heronry.streamlet.extract import Extractor, Field
from heronry.streamlet.program import EventTime, ReduceStep
from heronry.streamlet.windows import MS_PER_UNIT

LOW_BITS = 32
FLOATS = ("float", "double")


def reduced(spark: SparkSession, tables: scans.Tables, reduction: Reduction, read: list[Scan]) -> DataFrame:
    """Rows (key, start if there are windows, parts of the accumulator) of a reducer over the sources it reads."""
    step = reduction.step
    inputs = [_table(spark, tables, scan, step) for scan in read]
    rows = fold(DataFrame.unionByName, [table for table, _ in inputs])
    parts = [
        sql.expr(part).alias(f"acc{number}")
        for number, part in enumerate(_parts(step.monoid.builtin or "", any(kind in FLOATS for _, kind in inputs)))
    ]
    return rows.groupBy("key", "start").agg(*parts) if step.windowing is not None else rows.groupBy("key").agg(*parts)


def counted(rows: DataFrame) -> DataFrame:
    """Rows (key as a payload, start, count) of a counting reducer; ``rows`` are those of its exits."""
    sums = rows.repartition("key").groupBy("key", "start").agg(sql.first("data").alias("payload"), sql.sum("count"))
    return sums.select("payload", "start", "sum(count)")


def _table(spark: SparkSession, tables: scans.Tables, scan: Scan, step: ReduceStep) -> tuple[DataFrame, str]:
    """(key, start if there are windows, value if it is read) for each record and window; the type of the value."""
    bounded = scan.from_ms is not None or scan.to_ms is not None
    rows, types = _columns(spark, tables, scan, timed=bounded or step.windowing is not None)
    if bounded:
        assert scan.event_time is not None
        time = _time(scan.step, scan.event_time, types)
        low, high = sql.lit(scan.from_ms), sql.lit(scan.to_ms)
        rows = rows.where((low.isNull() | (time >= low)) & (high.isNull() | (time < high)))
    key, value = f"`{_column(step.key)}` AS key", f"`{_column(step.value)}` AS value"
    wanted = [key] if step.monoid.builtin == "count" else [key, value]
    kind = types.get(_column(step.value), "")
    if step.windowing is None:
        return rows.selectExpr(*wanted), kind
    own = step.windowing.event_time or scan.event_time
    assert own is not None
    timed = rows.select(*map(sql.expr, wanted), _time(step.window_step or step.name, own, types).alias("time"))
    length, every = step.windowing.window.length_ms, step.windowing.window.every_ms
    last = f"time - pmod(time, {every}L)"
    if not step.windowing.window.is_tumbling:
        first = f"time - pmod(time, {every}L) - ({length}L - 1 - pmod(time, {every}L)) div {every} * {every}"
        last = f"explode(sequence({first}, {last}, {every}L))"
    return timed.selectExpr("* EXCEPT (time)", f"{last} AS start"), kind


def _columns(spark: SparkSession, tables: scans.Tables, scan: Scan, timed: bool) -> tuple[DataFrame, dict[str, str]]:
    """The source as a table of typed columns, and the types; with FILE_COLUMN if event times are read (``timed``)."""
    source = scan.source
    assert isinstance(source, FileSource)
    rows = tables.read(scan, named=timed)
    if source.format == "text":
        return rows.selectExpr(f"{line_of('value')} AS record"), {"record": "string"}
    if source.format == "parquet":
        return rows, tables.columns(scan)
    types = {name: SCHEMA_TYPES[kind] for name, kind in source.schema}
    task = TypedTask(
        Decoding(scan.step, source, None, False, headers=tables.headers(scan)), tuple(types.items()), timed
    )
    shape = ", ".join(f"`{name}` {kind}" for name, kind in types.items())
    return rows.mapInArrow(Shipped(task), f"{shape}, {scans.FILE_COLUMN} string" if timed else shape), types


def _column(extractor: Extractor) -> str:
    """The name of the column an extractor reads. (The planner keeps names with a "`" from here.)"""
    return str(extractor.name) if isinstance(extractor, Field) else "record"


def _time(step: str, time: EventTime, types: dict[str, str]) -> Column:
    """Event time in milliseconds; a record without one ends the job with its name."""
    name = _column(time.extractor)
    column, kind, unit = sql.col(f"`{name}`"), types[name], MS_PER_UNIT[time.unit]
    if kind in INTEGERS:
        ms, wrong = column.cast("long") * sql.lit(unit), column.isNull()
    elif kind in FLOATS:
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
            sql.col(scans.FILE_COLUMN).alias("file"),
        )
    )
    return sql.when(wrong, sql.raise_error(sql.concat(sql.lit(MARKER), story)).cast("long")).otherwise(ms)


def _parts(builtin: str, is_float: bool) -> list[str]:
    """The aggregates a monoid's accumulator is made of."""
    if builtin == "count":
        return ["count(1)"]
    if builtin in ("min", "max"):
        return [f"{builtin}(value)"]
    if is_float:
        # SQL begins with 0.0, and 0.0 + -0.0 is 0.0: a sum is -0.0 if every value is.
        negative = "value IS NULL OR (value = 0 AND CAST(value AS string) = '-0.0')"
        total = "sum(CAST(value AS double))"
        total = total if builtin == "mean" else f"CASE WHEN bool_and({negative}) THEN -abs({total}) ELSE {total} END"
        return [total, "count(value)"]
    whole = "CAST(value AS bigint)"
    return [f"sum(shiftright({whole}, {LOW_BITS}))", "count(value)", f"sum({whole} & {(1 << LOW_BITS) - 1}L)"]


def _accumulator(builtin: str, parts: list[Any]) -> Any:
    if builtin in ("count", "min", "max"):
        return parts[0]
    total, count = parts[0], parts[1]
    if len(parts) == 3 and total is not None:
        total = (total << LOW_BITS) + parts[2]
    return (total or 0, count) if builtin == "mean" else total


@dataclass(frozen=True)
class TypedTask:
    """Lines with a declared schema to columns, and FILE_COLUMN if they are ``named``."""

    decoding: Decoding
    types: tuple[tuple[str, str], ...]
    named: bool

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """``mapInArrow``'s function."""
        import pyarrow as pa

        arrow = {"string": pa.string(), "bigint": pa.int64(), "double": pa.float64(), "boolean": pa.bool_()}
        names = [name for name, _ in self.types]
        for columns in columns_of(self.decoding.step, self.decoding.source, batches):
            records, _, file = self.decoding.decode(columns)
            try:
                made = [pa.array([record[name] for record in records], arrow[kind]) for name, kind in self.types]
            except (OverflowError, pa.ArrowException):
                raise self._located(records, file) from None
            if self.named:
                made.append(pa.array([file(index) for index in range(len(records))], pa.string()))
            yield pa.RecordBatch.from_arrays(made, names=[*names, scans.FILE_COLUMN] if self.named else names)

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
    aside: bool = False

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """``mapInArrow``'s function."""
        yield from results(self.step, self._merged(batches), self.unit, self.render, self.limits, self.aside)

    def records(self, batches: Iterable[Any]) -> list[Any]:
        """The records of the reducer alone."""
        return [result_of(self.step, found)[0] for found in self._merged(batches)]

    def _merged(self, batches: Iterable[Any]) -> Iterator[Merged]:
        builtin = self.step.monoid.builtin or ""
        for batch in batches:
            columns = [column.to_pylist() for column in batch.columns]
            keys = columns[0]
            starts = columns.pop(1) if self.payloads or self.step.windowing is not None else [0] * len(keys)
            parts = columns[1:]
            if self.payloads:
                keys = [load(payload)[0] for payload in keys]
            for key, start, *values in zip(keys, starts, *parts, strict=True):
                yield Merged(b"", key, start, _accumulator(builtin, values))  # each key is there once
