"""Conversion of records to plain data, the same for every engine: fields by name, columns of a table, MessagePack."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

#: MessagePack of keys and accumulators in views. Decimals become numbers: as text they would be joined, not added.
pack = msgspec.msgpack.Encoder(decimal_format="number").encode


def fields_of(record: Any) -> Any:
    """Return a named tuple or a dataclass as a dict, and any other record unchanged."""
    if isinstance(record, tuple) and hasattr(record, "_fields"):
        return dict(zip(record._fields, record, strict=True))
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    return record


def named_fields(record: Any, what: str = "Parquet") -> dict[str, Any]:
    """Return the fields of a record as a dict. ``what`` is the target of the record, for the message.

    Raises:
        TypeError: The record has no named fields.
    """
    fields = fields_of(record)
    if not isinstance(fields, dict):
        raise TypeError(f"a record for {what} has named fields: a dict, a named tuple or a dataclass")
    return fields


def table_of(records: list[dict[str, Any]]) -> Any:
    """Return an Arrow table with a column for each name, and None where a record does not have the field.

    Errors of Arrow (ArrowException) are raised unchanged.
    """
    import pyarrow as pa

    names = dict.fromkeys(name for record in records for name in record)
    return pa.table({name: [record.get(name) for record in records] for name in names})
