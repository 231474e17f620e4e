"""What no two readers of ORC agree on, and so is refused by name on every engine. Pure, but for pyarrow's types.

Theory of operation. A time of ORC is one of UTC, of the writer's zone or of the reader's, depending on who reads it; so
columns of times are refused, wherever they stand. A date is a number of days, but whether of the calendar that was in
use or of ours carried on into the past is said by few writers and asked by few readers; from 15 October 1582 on the two
are one. So a column may hold dates, all of which are looked at, and within other columns there are none.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

from heronry.streamlet.packed import ReadError

FIRST_DATE = dt.date(1582, 10, 15)
Leaves = list[str]  # the names of the types that a column's type is made of; one if it is not made of others


def leaves_of(kind: Any) -> Leaves:
    """Of a type of Arrow."""
    if not kind.num_fields:
        return [str(kind)]
    return ["nested", *(leaf for place in range(kind.num_fields) for leaf in leaves_of(kind.field(place).type))]


def refuse_times(columns: Iterable[tuple[str, Leaves]], where: str) -> None:
    """Raises ReadError for columns with times, or with dates inside."""
    for name, leaves in columns:
        if any(leaf.startswith("timestamp") for leaf in leaves):
            raise ReadError(
                f"{where} has times of ORC in column {name!r}, on whose zone its readers disagree: write them as whole "
                "numbers (milliseconds since 1970) or text, or write Parquet"
            )
        if len(leaves) > 1 and any(leaf.startswith("date") for leaf in leaves):
            raise ReadError(
                f"{where} has dates of ORC inside column {name!r}, on whose calendar its readers disagree: write them "
                "in columns of their own or as text, or write Parquet"
            )


def refuse_old_dates(rows: Any, where: str) -> None:
    """Raises ReadError for a batch of Arrow's in which a date is too old."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for field, column in zip(rows.schema, rows.columns, strict=True):
        if pa.types.is_date(field.type):
            least = pc.min(column.cast(pa.int32())).as_py()
            if least is not None and least < (FIRST_DATE - dt.date(1970, 1, 1)).days:
                raise ReadError(
                    f"{where} has a date of ORC before {FIRST_DATE} in column {field.name!r}, on whose calendar its "
                    "readers disagree: write it as text, or write Parquet"
                )
