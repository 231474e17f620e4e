"""Staged files of one checkpoint: one Parquet file for each partition of the table that has rows.

::

    .STEP-open-TASK-x.parquet    .STEP-open-TASK-x.1.parquet  …   rows while they arrive
    .STEP-TOKEN.parquet          .STEP-TOKEN.1.parquet        …   prepared

Theory of operation. The first file represents the token: the batch is staged only if that file exists. Its footer
contains the writer, the table's partitioning, and the list of all files including itself. The other files are flushed
and renamed before the first one is, and removed before it is removed. A table without partitions has only the first
file. A partition consists of its folder in the table and its key, which is recorded in the table's log.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

COMPRESSION = "zstd"
WRITER, PARTS = "heronry.writer", "heronry.parts"  # keys in the first file's footer
LONGEST = 255  # maximum bytes of a folder's name


class Place(NamedTuple):
    """Partition of a table: its folder below the table, and its key, a JSON value for each partition column."""

    folder: str
    key: tuple[str | int | bool | None, ...]


WHOLE = Place("", ())  # the only partition of an unpartitioned table


class Unfit(ValueError):
    """Error of a value or record that the table's columns cannot hold. ``field`` is empty for a record."""

    def __init__(self, field: str, value: Any, why: str) -> None:
        super().__init__(f"field {field!r} is {value!r:.60} ({type(value).__name__}), and {why}" if field else why)
        self.field, self.value, self.why = field, value, why


class Partitions(ABC):
    """Partitioning of a table.

    Attributes:
        by: Description for messages, also used to detect that the table was altered.
        columns: Columns that the partition depends on, one for each level of folders.
        apart: Columns stored only in folders and the log, not in files.
    """

    apart: frozenset[str] = frozenset()

    def __init__(self, by: str, columns: Sequence[str], schema: Any) -> None:
        """Look up the partition columns in the table's schema.

        Args:
            by: Description of the partitioning.
            columns: Names of the partition columns.
            schema: Arrow schema of the table.
        """
        self.by, self.columns = by, tuple(columns)
        self._positions = [schema.names.index(name) for name in columns]
        self._cached_place = lru_cache(4096)(self._at)  # many rows share a partition

    def place(self, row: Sequence[Any]) -> Place:
        """Return the partition of a row that fits the table's columns. Raises Unfit."""
        return self._cached_place(*[row[position] for position in self._positions])

    def _at(self, *values: Any) -> Place:
        place = self.of(values)
        for column, value, name in zip(self.columns, values, place.folder.split("/"), strict=True):
            if len(os.fsencode(name)) > LONGEST:
                raise Unfit(
                    column, value, f"the folder of its partition would have a name of more than {LONGEST} bytes"
                )
        return place

    @abstractmethod
    def of(self, values: Sequence[Any]) -> Place:
        """Return the partition of the partition columns' values. Raises Unfit."""


def stored(schema: Any, partitions: Partitions | None) -> Any:
    """Return the part of a table's Arrow schema that is stored in data files."""
    apart = partitions.apart if partitions else ()
    return importlib.import_module("pyarrow").schema([field for field in schema if field.name not in apart])


class _Open(NamedTuple):
    writer: Any
    file: BinaryIO
    path: Path


class Parts:
    """Open files of a checkpoint. The methods raise OSError.

    Args:
        file: The first file.
        path: Path of the first file.
        schema: Arrow schema of the files.
        by: Description of the table's partitioning.
    """

    def __init__(self, file: BinaryIO, path: Path, schema: Any, by: str) -> None:
        self._parquet = importlib.import_module("pyarrow.parquet")
        self._first, self._path, self._schema, self._by = file, path, schema, by
        self._open: dict[Place, _Open] = {}
        self._rows: dict[Place, int] = {}

    def write(self, place: Place, table: Any) -> None:
        """Write rows of a partition as a row group."""
        if place not in self._open:
            path = beside(self._path, len(self._open))
            file = path.open("w+b") if self._open else self._first
            writer = self._parquet.ParquetWriter(file, self._schema, compression=COMPRESSION)
            self._open[place], self._rows[place] = _Open(writer, file, path), 0
        self._open[place].writer.write_table(table.select(self._schema.names))
        self._rows[place] += table.num_rows

    def finish(self, signed: str, hidden: Path) -> None:
        """Write the first file's footer, flush the other files, and rename them.

        Args:
            signed: Name of the writer.
            hidden: Later name of the first file, from which the names of the others are derived.
        """
        first, *others = self._open.values()
        for number, (writer, file, path) in enumerate(others, 1):
            writer.close()
            file.flush()
            os.fsync(file.fileno())
            os.replace(path, beside(hidden, number))
            file.close()
        parts = [[place.folder, list(place.key), rows] for place, rows in self._rows.items()]
        first.writer.add_key_value_metadata({WRITER: signed, PARTS: json.dumps({"by": self._by, "parts": parts})})
        first.writer.close()

    def drop(self) -> None:
        """Close the files and remove all but the first, which belongs to the caller."""
        for writer, file, path in self._open.values():
            with contextlib.suppress(OSError):
                writer.close()  # writes to the file, so it must still be open
            if file is not self._first:
                file.close()
                path.unlink(missing_ok=True)


class Part(NamedTuple):
    """Staged file, its later path below the table's root, and its partition key and number of rows."""

    staged: Path
    name: str
    key: tuple[Any, ...]
    rows: int


@dataclass(frozen=True)
class Staged:
    """Staged files of one checkpoint.

    Attributes:
        writer: Name of the writer.
        by: Description of the table's partitioning when the files were written.
        schema: Arrow schema of the files.
        parts: The files, beginning with the first one.
    """

    writer: str
    by: str
    schema: Any
    parts: tuple[Part, ...]


def read_staged(first: Path, name: str) -> Staged:
    """Return the staged files according to the first file's footer.

    Args:
        first: Path of the first file.
        name: Name of the first file in the table.

    Raises:
        FileNotFoundError: The first file does not exist.
    """
    parquet = importlib.import_module("pyarrow.parquet")
    about, schema = parquet.read_metadata(first), parquet.read_schema(first)
    footer: Mapping[bytes, bytes] = about.metadata
    footer_parts = json.loads(footer.get(PARTS.encode(), b'{"by": "", "parts": []}'))
    parts = footer_parts["parts"] or [["", [], about.num_rows]]  # written by a version without partitions
    staged_parts = []
    for number, (folder, key, rows) in enumerate(parts):
        own = Path(folder, beside(Path(name), number)).as_posix()
        staged_parts.append(Part(beside(first, number), own, tuple(key), rows))
    return Staged(footer[WRITER.encode()].decode(), footer_parts["by"], schema, tuple(staged_parts))


def beside(first: Path, number: int) -> Path:
    """Return the path of the file with the given number; the first file has number 0."""
    return first.with_suffix(f".{number}{first.suffix}") if number else first


def token_in(middle: str) -> str:
    """Return the token in the middle of a file name, of the first or another file."""
    begin, dot, number = middle.rpartition(".")
    return begin if dot and number.isdecimal() else middle


def remove(first: Path, *others: Path) -> None:
    """Remove staged files, the first one last, because its existence counts.

    Raises:
        FileNotFoundError: The first file does not exist.
    """
    for other in others:
        other.unlink(missing_ok=True)
    first.unlink()
