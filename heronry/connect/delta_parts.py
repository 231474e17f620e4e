"""Partition values of Delta tables (Delta's protocol, "Partition Value Serialization").

The log holds partition values as text, data files do not contain partition columns, and folders are named as the
library names them: ``word=a%20b``. Timestamps with a zone are written with it, because Spark would read the form
without a zone in the zone of its session.

Values that readers would not return unchanged are rejected. Rejected column types: bytes (readers return the text
form), floats (0.0 and -0.0 are equal but would be two partitions) and Decimals (``deltalake`` 1.6 reads -0.1 as
``0.-1``). The empty string is rejected as a value, because the format reads it as null.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from heronry.connect.lake import column_of
from heronry.connect.lake_parts import Partitions, Place, Unfit

NULL = "__HIVE_DEFAULT_PARTITION__"


def _moment(value: dt.datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat(" ", "microseconds")
    return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat("T", "microseconds") + "Z"


TEXT: dict[type[Any], Callable[[Any], str]] = {
    str: str, int: str, bool: lambda value: str(value).lower(), dt.date: dt.date.isoformat, dt.datetime: _moment,
}  # fmt: skip


def refused(columns: Sequence[str], schema: Any) -> Iterator[str]:
    """Yield the reasons why a table with these partition columns cannot be written."""
    for name in columns:
        column = column_of(schema.field(name))
        if column.python not in TEXT:
            yield f"the column {column} as a partition (the types are str, int, bool, date and datetime)"
        if "/" in name:
            yield f"the column {name} as a partition's folder"
    if columns and len(columns) == len(schema):
        yield "no column but those of partitions"


class DeltaPartitions(Partitions):
    """Partitions of a Delta table whose partition columns were accepted by ``refused``."""

    def __init__(self, columns: Sequence[str], schema: Any) -> None:
        super().__init__(", ".join(str(column_of(schema.field(name))) for name in columns), columns, schema)
        self.apart = frozenset(columns)

    def of(self, values: Sequence[Any]) -> Place:
        """Return the partition of the columns' values. Raises Unfit."""
        key: list[str | None] = []
        for name, value in zip(self.columns, values, strict=True):
            if value == "":
                raise Unfit(name, value, "the table is partitioned by this column, where the format reads it as null")
            try:
                key.append(None if value is None else TEXT[type(value)](value))
            except OverflowError:
                raise Unfit(name, value, "in UTC it is before the year 1, or after 9999") from None
        named = (NULL if text is None else quote(text, safe="") for text in key)
        return Place("/".join(f"{name}={text}" for name, text in zip(self.columns, named, strict=True)), tuple(key))
