"""Restrictions on ORC columns.

Values on which readers disagree are rejected on every engine, with the name of the column. Pure, except for pyarrow's
types.

Theory of operation. Depending on the reader, a time in ORC is in UTC, in the writer's zone or in the reader's zone.
Columns of times are therefore rejected, also nested ones. A date is a number of days, in the calendar in use at that
date or in the proleptic Gregorian calendar. Few writers state which, and few readers check. From 15 October 1582 on the
two are identical. A top-level column may therefore contain dates, all of which are checked. Dates nested in other
columns are rejected.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

from heronry.streamlet.packed import ReadError

FIRST_DATE = dt.date(1582, 10, 15)
Leaves = list[str]  # names of the types that a column's type consists of; one if it is not nested


def leaves_of(kind: Any) -> Leaves:
    """Return the leaves of an Arrow type."""
    if not kind.num_fields:
        return [str(kind)]
    return ["nested", *(leaf for place in range(kind.num_fields) for leaf in leaves_of(kind.field(place).type))]


def refuse_times(columns: Iterable[tuple[str, Leaves]], where: str) -> None:
    """Check that columns contain neither times nor nested dates.

    Raises:
        ReadError: A column contains them.
    """
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
    """Check that the dates in an Arrow batch are not before 15 October 1582.

    Raises:
        ReadError: A date is earlier.
    """
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
