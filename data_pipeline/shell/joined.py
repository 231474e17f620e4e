"""Joins that Spark computes alone: both sides as columns, one join of Catalyst's, then the pairs.

SQL must give the result of the reference implementation (docs/decisions/spark-joins.md):

* keys are equal if their canonical encodings are: None equals None, 1 equals 1.0 and True, NaN equals NaN. Numbers of
  which some are fractional are compared as two columns, an integer and the rest. As doubles, 2**53 and 2**53 + 1 would
  be equal; as bits, 0.0 and -0.0 would differ;
* every record of both sides is checked, even if the other side is empty: one without an event time, or that does not
  fit its schema, ends the job. An inner or left join would then not read the other side. Spark therefore makes a full
  join, and a condition over both sides that its optimizer cannot split removes unwanted rows;
* columns keep their types through the join, so a record is the same as it would be before the join.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from data_pipeline.core.columns import NUMBERS
from data_pipeline.core.combine import Limits
from data_pipeline.core.plan import JoinSide, Reduction, Scan
from data_pipeline.shell import scan as scans
from data_pipeline.shell.tasks import Render, passed
from data_pipeline.shell.typed import FLOATS, Columns, starts_of
from heronry.streamlet.joins import Joined
from heronry.streamlet.program import Windowing

SIDES = ("left:", "right:")  # prefixes of the columns of each side's records
LEFT, RIGHT = 2, 1  # bits of ``there``
_WANTED = {"inner": "(3)", "left": "(2, 3)", "right": "(1, 3)"}
_WHOLE = "rint(key) = key AND key >= -9223372036854775808D AND key < 9223372036854775808D"


def joined(spark: SparkSession, tables: scans.Tables, reduction: Reduction, read: list[Scan]) -> DataFrame:
    """Return one row for each pair: (there, start, columns of the left record, columns of the right record).

    ``there`` tells which of the two records exist.
    """
    step, join = reduction.step, reduction.join
    assert join is not None
    assert step.windowing is not None
    sides = [Columns.of(spark, tables, scan, table, step) for scan, table in zip(read, reduction.tables, strict=True)]
    kinds = {columns.types[side.key] for columns, side in zip(sides, join.sides, strict=True)}
    left, right = (
        _side(columns, scan, side, number, kinds, step.windowing)
        for number, (columns, scan, side) in enumerate(zip(sides, read, join.sides, strict=True))
    )
    keys = [name.removesuffix("_0") for name in left.columns if name.startswith("key")]
    equal = [*(f"{key}_0 <=> {key}_1" for key in keys), "start_0 = start_1"]
    rows = left.join(right, sql.expr(" AND ".join(equal)), "full_outer")
    there = f"if(start_0 IS NULL, 0, {LEFT}) + if(start_1 IS NULL, 0, {RIGHT})"
    rows = rows.where(f"{there} IN {_WANTED[join.how]}") if join.how in _WANTED else rows
    values = [f"`{name}`" for name in rows.columns if name.startswith(SIDES)]
    return rows.selectExpr(f"{there} AS there", "coalesce(start_0, start_1) AS start", *values)


def _side(
    columns: Columns, scan: Scan, side: JoinSide, number: int, kinds: set[str], windowing: Windowing
) -> DataFrame:
    """Return the columns that a side is joined by, and its records. ``kinds`` are the types of both keys."""
    prefix = SIDES[number]
    time = columns.window_time(side.step if side.time is not None else scan.step, side.time, scan.event_time)
    key = f"{columns.held(side.key, scan.step)} AS key"
    values = [f"{columns.expression(name)} AS `{prefix}{name}`" for name in columns.types]
    rows = columns.within(scan).select(sql.expr(key), time.alias("time"), *map(sql.expr, values))
    compared = [
        f"{part} AS key{place}_{number}" for place, part in enumerate(_compared(columns.types[side.key], kinds))
    ]
    names = [f"`{prefix}{name}`" for name in columns.types]
    return rows.selectExpr(*compared, f"{starts_of(windowing.window)} AS start_{number}", *names)


def _compared(kind: str, kinds: set[str]) -> list[str]:
    """Return SQL for the columns by which a key of this type is compared."""
    if not kinds <= NUMBERS:
        return ["key"]
    if not kinds & set(FLOATS):
        return ["CAST(key AS bigint)"]
    if kind not in FLOATS:
        return ["CAST(key AS bigint)", "CAST(NULL AS double)"]
    rest = f"CASE WHEN {_WHOLE} THEN NULL WHEN isnan(key) THEN double('NaN') ELSE CAST(key AS double) END"
    return [f"CASE WHEN {_WHOLE} THEN CAST(key AS bigint) END", rest]


@dataclass(frozen=True)
class JoinedTask:
    """Task that turns the rows of ``joined`` into records of the join, and runs them through the downstream unit."""

    reduction: Reduction
    render: Render
    limits: Limits = field(default_factory=Limits)

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Convert batches; the function for ``mapInArrow``."""
        chunks = ((pairs, [pair.end - 1 for pair in pairs]) for pairs in map(self._pairs, batches))
        yield from passed(chunks, self.reduction.unit, self.render, self.limits)

    def records(self, batches: Iterable[Any]) -> list[Any]:
        """Return only the pairs."""
        return [pair for batch in batches for pair in self._pairs(batch)]

    def _pairs(self, batch: Any) -> list[Joined[Any, Any, Any]]:
        join, windowing = self.reduction.join, self.reduction.step.windowing
        assert join is not None
        assert windowing is not None
        (left_key, right_key), length = (side.key for side in join.sides), windowing.window.length_ms
        there, starts = batch.column(0).to_pylist(), batch.column(1).to_pylist()
        pairs = []
        for has, start, left, right in zip(there, starts, *(_records(batch, prefix) for prefix in SIDES), strict=True):
            key = left[left_key] if has & LEFT else right[right_key]
            one, other = left if has & LEFT else None, right if has & RIGHT else None
            pairs.append(Joined(key, start, start + length, one, other))
        return pairs


def _records(batch: Any, prefix: str) -> list[dict[str, Any]]:
    """Return the records of a side, including rows where the side has none."""
    import pyarrow as pa

    names = [name for name in batch.schema.names if name.startswith(prefix)]
    columns = [batch.column(name) for name in names]
    made: list[dict[str, Any]] = pa.RecordBatch.from_arrays(
        columns, names=[name.removeprefix(prefix) for name in names]
    ).to_pylist()
    return made
