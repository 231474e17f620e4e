"""Reducers that Spark computes alone: built-in monoids over plain columns become SQL, without any Python function.

SQL also adds up the counts of Python records, whose accumulators cross the shuffle as numbers.

SQL must give the result of the reference implementation (docs/explanation/spark.md has the table):

* sums of integers are exact whatever their size: upper and lower 32 bits are summed separately and joined at the end;
* sums of floating-point numbers are left to Python, since those of SQL depend on the order of the rows;
* a session continues while each record of its key is at most the gap after the previous one. Sessions are numbered by
  window functions over whole milliseconds, since the timestamps of Spark's own session windows have a smaller range;
* sum, min, max and mean ignore None, and count counts it; NaN is greater than every number;
* a record without an event time is an error that names it, as in the other engines.
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
from data_pipeline.shell.typed import Columns, column_of, starts_of
from heronry.streamlet.program import ReduceStep


def reduced(spark: SparkSession, tables: scans.Tables, reduction: Reduction, read: list[Scan]) -> DataFrame:
    """Return the accumulators of a reducer over its sources, which are those of its tables.

    The columns are the key, the start if there are windows, parts of the accumulator, and the last time of a session.
    """
    step = reduction.step
    pairs = zip(read, reduction.tables, strict=True)
    inputs = [_keyed(Columns.of(spark, tables, scan, table, step), scan, step) for scan, table in pairs]
    rows = fold(DataFrame.unionByName, inputs)
    parts = [sql.expr(part).alias(f"acc{number}") for number, part in enumerate(_parts(step.monoid.builtin or ""))]
    return grouped(rows, step, parts)


def grouped(rows: DataFrame, step: ReduceStep, aggregates: Sequence[Column], last: str = "start") -> DataFrame:
    """Return one row for each key, and window or session, of a reducer.

    ``last`` is the column with the time of a row's last record, if a row may stand for several records.
    """
    if step.windowing is None:
        return rows.groupBy("key").agg(*aggregates)
    if not step.merges:
        return rows.groupBy("key", "start").agg(*aggregates)
    began, ended = sql.min("start").alias("start"), sql.max(last).alias("last")
    numbered = _numbered(rows, step.windowing.window.length_ms, last)
    return numbered.groupBy("key", "session").agg(began, *aggregates, ended).drop("session")


def _numbered(rows: DataFrame, gap_ms: int, last: str) -> DataFrame:
    """Return the rows with the number of their session among those of the key.

    ``start`` is the time of a row's first record. A row that begins at most the gap after the last record of all
    previous rows continues their session.
    """
    if last == "start":
        over = "OVER (PARTITION BY key ORDER BY start"
        before = f"lag(start) {over})"
    else:
        over = f"OVER (PARTITION BY key ORDER BY start, {last}"
        before = f"max({last}) {over} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    within = f"try_subtract(start, {before}) <= {gap_ms}L"  # NULL for the first record, and on overflow
    fresh = rows.selectExpr("*", f"CASE WHEN {within} THEN 0 ELSE 1 END AS fresh")
    return fresh.selectExpr("* EXCEPT (fresh)", f"sum(fresh) {over} ROWS UNBOUNDED PRECEDING) AS session")


def counted(rows: DataFrame) -> DataFrame:
    """Return rows (key as a payload, start, count) of a counting reducer; ``rows`` are the rows of its inputs."""
    sums = rows.repartition("key").groupBy("key", "start").agg(sql.first("data").alias("payload"), sql.sum("count"))
    return sums.select("payload", "start", "sum(count)")


def _keyed(columns: Columns, scan: Scan, step: ReduceStep) -> DataFrame:
    """Return a row for each record and window.

    The columns are the key, the start if there are windows, and the value if it is read.
    """
    rows = columns.within(scan)
    key = f"{columns.checked(column_of(step.key))} AS key"
    value = f"{columns.expression(column_of(step.value))} AS value"
    wanted = [key] if step.monoid.builtin == "count" else [key, value]
    if step.windowing is None:
        return rows.selectExpr(*wanted)
    own = columns.window_time(step.window_step or step.name, step.windowing.event_time, scan.event_time)
    timed = rows.select(*map(sql.expr, wanted), own.alias("time"))
    return timed.selectExpr("* EXCEPT (time)", f"{starts_of(step.windowing.window)} AS start")


def _parts(builtin: str) -> list[str]:
    """Return the SQL aggregates that make up a monoid's accumulator."""
    if builtin == "count":
        return ["count(1)"]
    if builtin in ("min", "max"):
        return [f"{builtin}(value)"]
    whole = "CAST(value AS bigint)"
    return [f"sum(shiftright({whole}, {LOW_BITS}))", "count(value)", f"sum({whole} & {(1 << LOW_BITS) - 1}L)"]


def total_of(column: str) -> str:
    """Return SQL for the sum of floating-point totals, which earlier versions of Heronry have left in a checkpoint.

    SQL begins with 0.0, and 0.0 + -0.0 is 0.0, but the sum must be -0.0 if every value is.
    """
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
    """Task that turns the rows of SQL into records of the reducer, and runs them through the downstream unit.

    ``payloads`` is True if keys arrive in the payloads of the combine, not as plain columns.
    """

    step: ReduceStep
    unit: Unit
    render: Render
    limits: Limits = field(default_factory=Limits)
    payloads: bool = False
    aside: bool = False

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Convert batches; the function for ``mapInArrow``."""
        yield from results(self.step, self.merged(batches), self.unit, self.render, self.limits, self.aside)

    def records(self, batches: Iterable[Any]) -> list[Any]:
        """Return only the records of the reducer."""
        return [result_of(self.step, merged)[0] for merged in self.merged(batches)]

    def merged(self, batches: Iterable[Any]) -> Iterator[Merged]:
        """Yield the keys and their accumulators as Python values, without canonical encodings."""
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
            rows = made if lasts is None else zip(lasts, made, strict=True)
            for key, start, accumulator in zip(keys, starts, rows, strict=True):
                yield Merged(b"", key, start, accumulator)  # each key occurs once, or once for each window
