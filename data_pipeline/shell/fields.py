"""Results of SQL reducers that Spark writes to files by itself, without a Python worker between the sum and the disk.

Only where the file says what it would say if a worker had written it: keys and values are text, whole numbers or truth
values. Fractions are not among them (Spark writes 1.0E10 and "NaN"), nor sums (they may need more than 64 bits).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import BooleanType, IntegralType, StringType

from heronry.streamlet.program import KeyValue, ReduceStep, Windowed


def fields_of(found: DataFrame, step: ReduceStep) -> DataFrame | None:
    """The fields of the records a reducer emits as columns; None if a worker has to make them. ``found``: its rows as
    ``catalyst.reduced`` gives them."""
    if step.monoid.builtin not in ("count", "min", "max"):
        return None
    types = {field.name: field.dataType for field in found.schema.fields}
    if not all(isinstance(types[name], StringType | BooleanType | IntegralType) for name in ("key", "acc0")):
        return None
    key, value = (
        sql.col(name).cast("bigint") if isinstance(types[name], IntegralType) else sql.col(name)
        for name in ("key", "acc0")
    )
    if step.windowing is None:
        return _named(found, KeyValue._fields, key, value)
    end = sql.col("last" if step.merges else "start") + step.windowing.window.length_ms
    return _named(found, Windowed._fields, key, sql.col("start"), end, value)


def as_json(rows: DataFrame) -> DataFrame:
    """One column: each row as a line of JSON, None as null."""
    return rows.select(sql.to_json(sql.struct("*"), {"ignoreNullFields": "false"}).alias("data"))


def _named(rows: DataFrame, names: tuple[str, ...], *columns: sql.Column) -> DataFrame:
    return rows.select(*[column.alias(name) for name, column in zip(names, columns, strict=True)])
