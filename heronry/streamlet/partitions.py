"""Folders ``NAME=VALUE`` and cells of csv, read and written the same by every engine. Pure.

Theory of operation. Hive, Spark and ``to_files(…, partition_by=…)`` put records into folders named after
the values of fields. A source that declares such names restores them. Each record of a file gets the values in its
path. If several folders have the same name, the innermost applies. If the record itself has the field, the folder takes
precedence, as in Spark.

``%XX`` is the character with that number, as in Hive (an invalid escape stands for itself), and
``__HIVE_DEFAULT_PARTITION__`` is None. Folders that are not declared are ignored. A file without a folder of a declared
name is rejected, and so is a value that is not of the declared type.

A csv cell is the text that ``files(…, "csv", schema=…)`` reads back: nothing for None, two quotes for the empty str,
``true`` and ``false``, numbers as Python formats them, dates in ISO 8601. A folder is ``NAME=VALUE``, as in the
partitions of Hive, Spark and others, with their escapes. Partitioning does not change the contents of the file's rows.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

from heron_runtime.failures import listing
from heronry.streamlet.packed import ReadError
from heronry.streamlet.records import named_fields

PARTITION_TYPES = ("str", "int")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_INT = re.compile(r"[+-]?[0-9]{1,4000}")
_MAX_NAMED = 5


class Folders:
    """Parser of the folder names of a source, from (name, type) of each declared field."""

    def __init__(self, declared: Iterable[tuple[str, str]]) -> None:
        self._declared = tuple(declared)
        self._known: dict[str, dict[str, Any]] = {}  # by folder

    def of(self, path: str) -> Mapping[str, Any]:
        """Return the fields that the path of a file gives its records.

        Raises:
            ReadError: A folder is missing, or a value has the wrong type. The message names the file.
        """
        folder = path.rpartition("/")[0]
        cells = self._known.get(folder)
        if cells is None:
            cells = self._known[folder] = self._read(path, folder)
        return cells

    def put(self, record: Any, path: str) -> dict[str, Any]:
        """Return the record with the fields of its path added.

        Raises:
            ReadError: A folder is missing, or a value has the wrong type.
            TypeError: The record has no fields.
        """
        fields = self.of(path)
        if not isinstance(record, dict):
            raise TypeError("the record has no fields, so it cannot have those of its folder")
        return {**record, **fields}

    def refuse(self, paths: Iterable[str]) -> None:
        """Check the paths of files.

        Raises:
            ReadError: Files lack a folder, or a value has the wrong type. The message names them.
        """
        wrong = []
        for path in paths:
            try:
                self.of(path)
            except ReadError as error:
                wrong.append(str(error))
        if wrong:
            raise ReadError(listing(wrong[:_MAX_NAMED]) + (f" and {more} more" if (more := len(wrong[5:])) else ""))

    def _read(self, path: str, folder: str) -> dict[str, Any]:
        there = {}
        for part in PurePosixPath(folder).parts:
            name, equals, value = part.partition("=")
            if equals:
                there[unescaped(name)] = None if value == NO_VALUE else unescaped(value)
        missing = [name for name, _ in self._declared if name not in there]
        if missing:
            raise ReadError(
                f"{path} is not in a folder {'/'.join(f'{name}=…' for name in missing)}, as partitions= says; take it "
                "away, or name its folder so"
            )
        return {name: _typed(path, name, kind, there[name]) for name, kind in self._declared}


def unescaped(text: str) -> str:
    """Return a name or value as it was before it was escaped for a path."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def _typed(path: str, name: str, kind: str, value: str | None) -> Any:
    if kind == "str" or value is None:
        return value
    if not _INT.fullmatch(value):
        raise ReadError(f"{path}: {value!r} in {name}={value} is not an int, the type that partitions= gives")
    return int(value)


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
    named = named_fields(record, "csv")
    values = [named.get(name) for name in fields]
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
    fields = named_fields(record, "partition_by")
    parts = [f"{_escaped(name)}={_escaped(cell(fields.get(name))) or NO_VALUE}" for name in names]
    if any(len(part.encode()) > MAX_FOLDER_BYTES for part in parts):
        raise ValueError(f"the name of its folder is longer than {MAX_FOLDER_BYTES} bytes: {'/'.join(parts)[:80]}…")
    return "/".join(parts)


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)
