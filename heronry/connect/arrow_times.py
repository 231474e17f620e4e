"""Conversion of zoned timestamps in Arrow columns to UTC, so that every engine reads the same values."""

from __future__ import annotations

from typing import Any


def columns_in_utc(table: Any) -> Any:
    """Convert zoned timestamps of an Arrow table or batch to UTC, including those nested in lists, structs and maps."""
    schema = table.schema
    if not any(_is_elsewhere(field.type) for field in schema):
        return table
    import pyarrow as pa

    columns = [
        column.cast(_in_utc(field.type)) if _is_elsewhere(field.type) else column
        for field, column in zip(schema, table.columns, strict=True)
    ]
    names = schema.names
    return pa.RecordBatch.from_arrays(columns, names) if isinstance(table, pa.RecordBatch) else pa.table(columns, names)


def _is_elsewhere(of: Any) -> bool:
    zone = getattr(of, "tz", None)
    if zone is not None:
        return bool(zone != "UTC")
    return any(_is_elsewhere(of.field(place).type) for place in range(of.num_fields))


def _in_utc(of: Any) -> Any:
    import pyarrow as pa

    if getattr(of, "tz", None) is not None:
        return pa.timestamp(of.unit, "UTC")
    parts = [of.field(place).with_type(_in_utc(of.field(place).type)) for place in range(of.num_fields)]
    if pa.types.is_struct(of):
        return pa.struct(parts)
    if pa.types.is_map(of):
        return pa.map_(_in_utc(of.key_type), _in_utc(of.item_type))
    if pa.types.is_large_list(of):
        return pa.large_list(parts[0])
    if pa.types.is_fixed_size_list(of):
        return pa.list_(parts[0], of.list_size)
    return pa.list_(parts[0]) if pa.types.is_list(of) else of
