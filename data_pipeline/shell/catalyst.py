"""Reducers Spark computes by itself: built-in monoids over plain columns become SQL, without any Python function.

Counts of what Python made are added by SQL, too: their accumulators cross the shuffle as numbers.

What SQL gives must be what the reference gives (docs/explanation/spark.md has the table):

* int sums are exact whatever their size: upper and lower 32 bits are summed apart and joined at the end;
* a session goes on while no record of its key is more than the gap after the one before: numbered by window functions
  over whole milliseconds, since Spark's own session windows hold timestamps, which have fewer of them;
* None values are left out by sum, min, max and mean, counted by count; NaN is greater than every number;
* a record without an event time is an error that names it, as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce as fold
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from data_pipeline.core.combine import Limits
from data_pipeline.core.merge import Merged, result_of
from data_pipeline.core.payload import load
from data_pipeline.core.plan import LOW_BITS, Reduction, Scan, Unit
from data_pipeline.shell import scan as scans
from data_pipeline.shell.tasks import Render, results
from data_pipeline.shell.typed import FLOATS, Columns, column_of, starts_of
from heronry.streamlet.program import ReduceStep


def reduced(spark: SparkSession, tables: scans.Tables, reduction: Reduction, read: list[Scan]) -> DataFrame:
    """Rows (key, start if there are windows, parts of the accumulator, the last time of a session) of a reducer over
    the sources it reads, which are those of its tables."""
    step = reduction.step
    found = zip(read, reduction.tables, strict=True)
    inputs = [_keyed(Columns.of(spark, tables, scan, table, step), scan, step) for scan, table in found]
    rows = fold(DataFrame.unionByName, [table for table, _ in inputs])
    parts = [
        sql.expr(part).alias(f"acc{number}")
        for number, part in enumerate(_parts(step.monoid.builtin or "", any(kind in FLOATS for _, kind in inputs)))
    ]
    return grouped(rows, step, parts)


def grouped(rows: DataFrame, step: ReduceStep, aggregates: Sequence[Column], last: str = "start") -> DataFrame:
    """A row for each key, and window or session, of a reducer's. ``last``: the column with the time of a row's last
    record, if a row may be several."""
    if step.windowing is None:
        return rows.groupBy("key").agg(*aggregates)
    if not step.merges:
        return rows.groupBy("key", "start").agg(*aggregates)
    began, ended = sql.min("start").alias("start"), sql.max(last).alias("last")
    numbered = _numbered(rows, step.windowing.window.length_ms, last)
    return numbered.groupBy("key", "session").agg(began, *aggregates, ended).drop("session")


def _numbered(rows: DataFrame, gap_ms: int, last: str) -> DataFrame:
    """With the number of the session each row belongs to, among those of its key; ``start`` is the time of its first
    record. One that begins no more than the gap behind the last record of all before it goes on with their session."""
    if last == "start":
        over = "OVER (PARTITION BY key ORDER BY start"
        before = f"lag(start) {over})"
    else:
        over = f"OVER (PARTITION BY key ORDER BY start, {last}"
        before = f"max({last}) {over} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    within = f"try_subtract(start, {before}) <= {gap_ms}L"  # NULL for the first, and where it overflows
    fresh = rows.selectExpr("*", f"CASE WHEN {within} THEN 0 ELSE 1 END AS fresh")
    return fresh.selectExpr("* EXCEPT (fresh)", f"sum(fresh) {over} ROWS UNBOUNDED PRECEDING) AS session")


def counted(rows: DataFrame) -> DataFrame:
    """Rows (key as a payload, start, count) of a counting reducer; ``rows`` are those of its exits."""
    sums = rows.repartition("key").groupBy("key", "start").agg(sql.first("data").alias("payload"), sql.sum("count"))
    return sums.select("payload", "start", "sum(count)")


def _keyed(columns: Columns, scan: Scan, step: ReduceStep) -> tuple[DataFrame, str]:
    """(key, start if there are windows, value if it is read) for each record and window; the type of the value."""
    rows = columns.within(scan)
    key = f"{columns.checked(column_of(step.key))} AS key"
    value = f"{columns.expression(column_of(step.value))} AS value"
    wanted = [key] if step.monoid.builtin == "count" else [key, value]
    kind = columns.types.get(column_of(step.value), "")
    if step.windowing is None:
        return rows.selectExpr(*wanted), kind
    own = columns.window_time(step.window_step or step.name, step.windowing.event_time, scan.event_time)
    timed = rows.select(*map(sql.expr, wanted), own.alias("time"))
    return timed.selectExpr("* EXCEPT (time)", f"{starts_of(step.windowing.window)} AS start"), kind


def _parts(builtin: str, is_float: bool) -> list[str]:
    """The aggregates a monoid's accumulator is made of."""
    if builtin == "count":
        return ["count(1)"]
    if builtin in ("min", "max"):
        return [f"{builtin}(value)"]
    if is_float:
        return ["sum(CAST(value AS double))" if builtin == "mean" else total_of("value"), "count(value)"]
    whole = "CAST(value AS bigint)"
    return [f"sum(shiftright({whole}, {LOW_BITS}))", "count(value)", f"sum({whole} & {(1 << LOW_BITS) - 1}L)"]


def total_of(column: str) -> str:
    """The sum of fractions. SQL begins with 0.0, and 0.0 + -0.0 is 0.0: a sum is -0.0 if every value is."""
    negative = f"{column} IS NULL OR ({column} = 0 AND CAST({column} AS string) = '-0.0')"
    total = f"sum(CAST({column} AS double))"
    return f"CASE WHEN bool_and({negative}) THEN -abs({total}) ELSE {total} END"


def _accumulator(builtin: str, parts: Sequence[Any]) -> Any:
    if builtin in ("count", "min", "max"):
        return parts[0]
    total, count = parts[0], parts[1]
    if len(parts) == 3 and total is not None:
        total = (total << LOW_BITS) + parts[2]
    return (total or 0, count) if builtin == "mean" else total


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
        yield from results(self.step, self.merged(batches), self.unit, self.render, self.limits, self.aside)

    def records(self, batches: Iterable[Any]) -> list[Any]:
        """The records of the reducer alone."""
        return [result_of(self.step, found)[0] for found in self.merged(batches)]

    def merged(self, batches: Iterable[Any]) -> Iterator[Merged]:
        """The keys and their accumulators, as Python has them; without canonical encodings."""
        builtin = self.step.monoid.builtin or ""
        for batch in batches:
            columns = [column.to_pylist() for column in batch.columns]
            keys = columns[0]
            starts = columns.pop(1) if self.payloads or self.step.windowing is not None else [0] * len(keys)
            parts = columns[1:]
            lasts = parts.pop() if self.step.merges else None
            if self.payloads:
                keys = [load(payload)[0] for payload in keys]
            made = [_accumulator(builtin, values) for values in zip(*parts, strict=True)]
            found = made if lasts is None else zip(lasts, made, strict=True)
            for key, start, accumulator in zip(keys, starts, found, strict=True):
                yield Merged(b"", key, start, accumulator)  # each key is there once, or once for each window
