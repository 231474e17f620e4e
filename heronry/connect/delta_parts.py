"""Partitions of Delta tables, as the format writes them (Delta's protocol, "Partition Value Serialization").

The log holds a partition's values as text, the data files do not have these columns, and folders are named as the
library names them: ``word=a%20b``. Moments are written with their zone: the form without one is read by Spark in the
zone of its session. What readers would not give back as it was is refused: by its column, bytes (read as the text they
are written as), floats (0.0 and -0.0 are one value and two partitions) and Decimals (``deltalake`` 1.6 reads -0.1 as
``0.-1``); by its value, the empty text, which the format reads as null.
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
    """What cannot be written of a table that has these columns as partitions."""
    for name in columns:
        column = column_of(schema.field(name))
        if column.python not in TEXT:
            yield f"the column {column} as a partition (the types are str, int, bool, date and datetime)"
        if "/" in name:
            yield f"the column {name} as a partition's folder"
    if columns and len(columns) == len(schema):
        yield "no column but those of partitions"


class DeltaPartitions(Partitions):
    """Of columns that none is refused of."""

    def __init__(self, columns: Sequence[str], schema: Any) -> None:
        super().__init__(", ".join(str(column_of(schema.field(name))) for name in columns), columns, schema)
        self.apart = frozenset(columns)

    def of(self, values: Sequence[Any]) -> Place:
        """Raises Unfit."""
        key: list[str | None] = []
        for name, value in zip(self.columns, values, strict=True):
            if value == "":
                raise Unfit(name, value, "the table is partitioned by this column, where the format reads it as null")
            try:
                key.append(None if value is None else TEXT[type(value)](value))
            except OverflowError:
                raise Unfit(name, value, "in UTC it is before the year 1, or behind 9999") from None
        named = (NULL if text is None else quote(text, safe="") for text in key)
        return Place("/".join(f"{name}={text}" for name, text in zip(self.columns, named, strict=True)), tuple(key))
