"""Results of SQL reducers that Spark alone writes to files, without a Python worker between the sum and the disk.

This applies only where the file is the same as if a worker had written it: keys and values are text, integers or
booleans. Floating-point numbers are excluded (Spark writes 1.0E10 and "NaN"). Sums of integers may need more than 64
bits. Lines of JSON hold them as decimals of 38 digits, but a column of Parquet would have another type.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import BooleanType, IntegralType, StringType

from data_pipeline.core.plan import LOW_BITS, Reduction
from data_pipeline.shell.joined import LEFT, RIGHT, SIDES
from heronry.streamlet.joins import Joined
from heronry.streamlet.program import KeyValue, ReduceStep, Windowed


def fields_of(frame: DataFrame, step: ReduceStep, *, as_lines: bool) -> DataFrame | None:
    """Return the fields of the records that a reducer emits as columns; None if a worker has to make them.

    ``frame`` holds its rows from ``catalyst.reduced``. ``as_lines`` is True if they are written as lines of JSON.
    """
    is_sum = step.monoid.builtin == "sum" and as_lines and "acc2" in frame.columns  # of integers, in three parts
    if not is_sum and step.monoid.builtin not in ("count", "min", "max"):
        return None
    types = {field.name: field.dataType for field in frame.schema.fields}
    if not all(isinstance(types[name], StringType | BooleanType | IntegralType) for name in ("key", "acc0")):
        return None
    key, value = (
        sql.col(name).cast("bigint") if isinstance(types[name], IntegralType) else sql.col(name)
        for name in ("key", "acc0")
    )
    if is_sum:
        value = sql.expr(f"CAST(acc0 AS decimal(38, 0)) * {1 << LOW_BITS} + acc2")
    if step.windowing is None:
        return _named(frame, KeyValue._fields, key, value)
    end = sql.col("last" if step.merges else "start") + step.windowing.window.length_ms
    return _named(frame, Windowed._fields, key, sql.col("start"), end, value)


def pairs_of(frame: DataFrame, reduction: Reduction) -> DataFrame | None:
    """Return the fields of the records of a join as columns; None if a worker has to make them.

    ``frame`` holds its rows from ``joined.joined``, which are written as lines of JSON.
    """
    assert reduction.join is not None
    assert reduction.step.windowing is not None
    types = {field.name: field.dataType for field in frame.schema.fields}
    if not all(isinstance(kind, StringType | BooleanType | IntegralType) for kind in types.values()):
        return None
    keys = [f"{prefix}{side.key}" for prefix, side in zip(SIDES, reduction.join.sides, strict=True)]
    if types[keys[0]] != types[keys[1]]:
        return None  # the type of the key depends on the record
    has = [sql.col("there").bitwiseAND(number) > 0 for number in (LEFT, RIGHT)]
    left, right = (
        sql.when(there, sql.struct(*[_column(name).alias(name.removeprefix(prefix)) for name in types
                                     if name.startswith(prefix)]))
        for there, prefix in zip(has, SIDES, strict=True)
    )  # fmt: skip
    key = sql.when(has[0], _column(keys[0])).otherwise(_column(keys[1]))
    end = sql.col("start") + reduction.step.windowing.window.length_ms
    return _named(frame, Joined._fields, key, sql.col("start"), end, left, right)


def _column(name: str) -> sql.Column:
    return sql.col(f"`{name}`")


def as_json(rows: DataFrame) -> DataFrame:
    """Return one column: each row as a line of JSON, with None as null."""
    return rows.select(sql.to_json(sql.struct("*"), {"ignoreNullFields": "false"}).alias("data"))


def _named(rows: DataFrame, names: tuple[str, ...], *columns: sql.Column) -> DataFrame:
    return rows.select(*[column.alias(name) for name, column in zip(names, columns, strict=True)])
