"""How file sinks write what every engine must write alike: lines of csv, and folders by the values of fields. Pure.

A cell of csv is the text that ``files(…, "csv", schema=…)`` reads back: nothing for None, two quotes for the empty
str, ``true`` and ``false``, numbers as Python writes them, dates in ISO 8601. A folder is ``NAME=VALUE``, as Hive,
Spark and others name partitions, with their escapes; what a row of the file holds is not changed by it.
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
MAX_FOLDER_BYTES = 255  # what file systems take
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")


def cell(value: Any) -> str:
    """A value as text. Raises TypeError for what is no plain value, ValueError for a line break."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        if "\n" in value or "\r" in value:
            raise ValueError("a record of csv is a line, and this value has a line break: take it out in a map")
        return value
    if isinstance(value, int | float | Decimal):
        return str(value)
    if isinstance(value, dt.date | dt.time):  # a datetime is a date
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} does not go into a cell of csv: make it text or a number in a map")


def cells(record: Any, fields: Sequence[str]) -> list[str | None]:
    """Return a record's row, with None for None and for a field that it does not have. Raises TypeError, ValueError.

    A row of one cell has "" for None, for a line with nothing in it is not a record.
    """
    found = named_fields(record, "csv")
    values = [found.get(name) for name in fields]
    return [None if value is None and len(values) > 1 else cell(value) for value in values]


def csv_lines(rows: Iterable[Sequence[str | None]]) -> bytes:
    """Return rows as lines, quoted where they must be (RFC 4180, but for the end of a line)."""
    return "".join([",".join(map(_quoted, row)) + "\n" for row in rows]).encode()


def _quoted(text: str | None) -> str:
    if text is None:
        return ""
    if text and _QUOTED.search(text) is None:
        return text
    return '"' + text.replace('"', '""') + '"'


def folder_of(record: Any, names: Sequence[str]) -> str:
    """``day=2026-11-25/country=at``: where a record lies. Raises TypeError, ValueError for one that has no place."""
    found = named_fields(record, "partition_by")
    parts = [f"{_escaped(name)}={_escaped(cell(found.get(name))) or NO_VALUE}" for name in names]
    if any(len(part.encode()) > MAX_FOLDER_BYTES for part in parts):
        raise ValueError(f"the name of its folder is longer than {MAX_FOLDER_BYTES} bytes: {'/'.join(parts)[:80]}…")
    return "/".join(parts)


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
