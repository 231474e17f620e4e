"""File formats that every engine must write identically: lines of csv, and folders by the values of fields. Pure.

A csv cell is the text that ``files(…, "csv", schema=…)`` reads back: nothing for None, two quotes for the empty str,
``true`` and ``false``, numbers as Python formats them, dates in ISO 8601. A folder is ``NAME=VALUE``, as in the
partitions of Hive, Spark and others, with their escapes. Partitioning does not change the contents of the file's rows.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from heronry.streamlet.records import named_fields

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # the folder of None and "", as Hive names it
_QUOTED = re.compile(r'[",\r\n]')
MAX_FOLDER_BYTES = 255  # limit of file systems
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")


def cell(value: Any) -> str:
    """Return a value as the text of a csv cell.

    Raises:
        TypeError: The value is not a plain value.
        ValueError: The text contains a line break.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        if "\n" in value or "\r" in value:
            raise ValueError("a record of csv is a line, and this value has a line break: remove it in a map")
        return value
    if isinstance(value, int | float | Decimal):
        return str(value)
    if isinstance(value, dt.date | dt.time):  # includes datetime, a subclass of date
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} cannot be a csv cell: convert it to text or a number in a map")


def cells(record: Any, fields: Sequence[str]) -> list[str | None]:
    """Return a record's row, with None for None and for a missing field.

    A row of one cell has "" for None, because an empty line is not a record.

    Raises:
        TypeError: The record has no named fields, or a value is not a plain value.
        ValueError: A text contains a line break.
    """
    found = named_fields(record, "csv")
    values = [found.get(name) for name in fields]
    return [None if value is None and len(values) > 1 else cell(value) for value in values]


def csv_lines(rows: Iterable[Sequence[str | None]]) -> bytes:
    """Return rows as lines, quoted where necessary (RFC 4180, except for the line end)."""
    return "".join([",".join(map(_quoted, row)) + "\n" for row in rows]).encode()


def _quoted(text: str | None) -> str:
    if text is None:
        return ""
    if text and _QUOTED.search(text) is None:
        return text
    return '"' + text.replace('"', '""') + '"'


def folder_of(record: Any, names: Sequence[str]) -> str:
    """Return the folder of a record: ``day=2026-11-25/country=at``.

    Raises:
        TypeError: The record has no named fields, or a value is not a plain value.
        ValueError: A text contains a line break, or the name of a folder is too long.
    """
    found = named_fields(record, "partition_by")
    parts = [f"{_escaped(name)}={_escaped(cell(found.get(name))) or NO_VALUE}" for name in names]
    if any(len(part.encode()) > MAX_FOLDER_BYTES for part in parts):
        raise ValueError(f"the name of its folder is longer than {MAX_FOLDER_BYTES} bytes: {'/'.join(parts)[:80]}…")
    return "/".join(parts)


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
