"""Conversion of Arrow columns to types whose values are the same in Python on every engine and installation.

Zoned timestamps become UTC. Times and durations lose what is below a microsecond, which Python cannot hold; pyarrow
would return values of pandas for them where pandas is installed, and raise elsewhere.
"""

from __future__ import annotations

from typing import Any


def columns_in_utc(table: Any) -> Any:
    """Convert the times of an Arrow table or batch, including those nested in lists, structs and maps."""
    schema = table.schema
    if all(_plain(field.type) == field.type for field in schema):
        return table
    import pyarrow as pa

    columns = [
        column if _plain(field.type) == field.type else column.cast(_plain(field.type), safe=False)
        for field, column in zip(schema, table.columns, strict=True)
    ]
    names = schema.names
    return pa.RecordBatch.from_arrays(columns, names) if isinstance(table, pa.RecordBatch) else pa.table(columns, names)


def mark_utc(batch: Any, names: frozenset[str]) -> Any:
    """Return a batch whose columns with these names, of times without a zone, are instants in UTC."""
    import pyarrow as pa

    columns = [
        column.cast(pa.timestamp("us"), safe=False).cast(pa.timestamp("us", "UTC")) if name in names else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _plain(of: Any) -> Any:
    """Return the type to which a column is converted."""
    import pyarrow as pa

    if pa.types.is_timestamp(of):
        return pa.timestamp("us" if of.unit == "ns" else of.unit, None if of.tz is None else "UTC")
    if pa.types.is_duration(of):
        return pa.duration("us") if of.unit == "ns" else of
    if pa.types.is_time64(of):
        return pa.time64("us")
    if not of.num_fields:
        return of
    parts = [of.field(place).with_type(_plain(of.field(place).type)) for place in range(of.num_fields)]
    if pa.types.is_struct(of):
        return pa.struct(parts)
    if pa.types.is_map(of):
        return pa.map_(_plain(of.key_type), _plain(of.item_type))
    if pa.types.is_large_list(of):
        return pa.large_list(parts[0])
    if pa.types.is_fixed_size_list(of):
        return pa.list_(parts[0], of.list_size)
    return pa.list_(parts[0]) if pa.types.is_list(of) else of
