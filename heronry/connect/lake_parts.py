"""What is staged of one checkpoint: a Parquet file for each partition of the table that has rows in it.

::

    .STEP-open-TASK-x.parquet    .STEP-open-TASK-x.1.parquet  …   rows as they come
    .STEP-TOKEN.parquet          .STEP-TOKEN.1.parquet        …   prepared

Theory of operation. The first file *is* the token: only if it is there something is staged. Its footer says whose rows
these are, how the table was partitioned, and which files there are with it, the first included; so the others are on
disk and have their names before it has its own, and go before it goes. A table without partitions has the first alone.
A partition is its folder in the table and its key, which is what the table's log says of it.
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
WRITER, PARTS = "heronry.writer", "heronry.parts"  # of the first file, in its footer
LONGEST = 255  # bytes that a folder's name may have


class Place(NamedTuple):
    """A partition: ``folder`` below the table, and ``key``, a value that JSON holds for each of its columns."""

    folder: str
    key: tuple[str | int | bool | None, ...]


WHOLE = Place("", ())  # the one of a table without partitions


class Unfit(ValueError):
    """A value, or a record, that the table's columns do not hold. ``field`` is empty for a record."""

    def __init__(self, field: str, value: Any, why: str) -> None:
        super().__init__(f"field {field!r} is {value!r:.60} ({type(value).__name__}), and {why}" if field else why)
        self.field, self.value, self.why = field, value, why


class Partitions(ABC):
    """How a table is partitioned. ``by``: for people, and to see that it was altered; ``apart``: the columns that are
    in folders and the log only, and not in files; ``columns``: those it depends on, one for each level of folders."""

    apart: frozenset[str] = frozenset()

    def __init__(self, by: str, columns: Sequence[str], schema: Any) -> None:
        """``schema``: of the table."""
        self.by, self.columns = by, tuple(columns)
        self._positions = [schema.names.index(name) for name in columns]
        self._found = lru_cache(4096)(self._at)  # most rows are where others were

    def place(self, row: Sequence[Any]) -> Place:
        """Of a row that fits the table's columns. Raises Unfit."""
        return self._found(*[row[position] for position in self._positions])

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
        """Of the values of its columns. Raises Unfit."""


def stored(schema: Any, partitions: Partitions | None) -> Any:
    """The part of a table's Arrow schema that its files have."""
    apart = partitions.apart if partitions else ()
    return importlib.import_module("pyarrow").schema([field for field in schema if field.name not in apart])


class _Open(NamedTuple):
    writer: Any
    file: BinaryIO
    path: Path


class Parts:
    """The files of a checkpoint while they are written. ``file``: the first, at ``path``. What it raises is OSError."""

    def __init__(self, file: BinaryIO, path: Path, schema: Any, by: str) -> None:
        self._parquet = importlib.import_module("pyarrow.parquet")
        self._first, self._path, self._schema, self._by = file, path, schema, by
        self._open: dict[Place, _Open] = {}
        self._rows: dict[Place, int] = {}

    def write(self, place: Place, table: Any) -> None:
        """Rows of a partition, as a group."""
        if place not in self._open:
            path = beside(self._path, len(self._open))
            file = path.open("w+b") if self._open else self._first
            writer = self._parquet.ParquetWriter(file, self._schema, compression=COMPRESSION)
            self._open[place], self._rows[place] = _Open(writer, file, path), 0
        self._open[place].writer.write_table(table.select(self._schema.names))
        self._rows[place] += table.num_rows

    def finish(self, signed: str, hidden: Path) -> None:
        """All but the first are on disk, named after ``hidden``, which the first will be; it has its footer."""
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
        """They are not kept; the first is its owner's."""
        for writer, file, path in self._open.values():
            with contextlib.suppress(OSError):
                writer.close()  # while it has its file
            if file is not self._first:
                file.close()
                path.unlink(missing_ok=True)


class Part(NamedTuple):
    """A staged file, where it will be below the table's root, and what is in it."""

    staged: Path
    name: str
    key: tuple[Any, ...]
    rows: int


@dataclass(frozen=True)
class Staged:
    """What waits of one checkpoint of a writer; ``by``: how the table was partitioned, ``parts``: the first first."""

    writer: str
    by: str
    schema: Any
    parts: tuple[Part, ...]


def read_staged(first: Path, name: str) -> Staged:
    """As its footer says; ``name``: of a file in the table. Raises FileNotFoundError."""
    parquet = importlib.import_module("pyarrow.parquet")
    about, schema = parquet.read_metadata(first), parquet.read_schema(first)
    footer: Mapping[bytes, bytes] = about.metadata
    told = json.loads(footer.get(PARTS.encode(), b'{"by": "", "parts": []}'))
    parts = told["parts"] or [["", [], about.num_rows]]  # of a version that knew no partitions
    found = []
    for number, (folder, key, rows) in enumerate(parts):
        own = Path(folder, beside(Path(name), number)).as_posix()
        found.append(Part(beside(first, number), own, tuple(key), rows))
    return Staged(footer[WRITER.encode()].decode(), told["by"], schema, tuple(found))


def beside(first: Path, number: int) -> Path:
    """The name of the file of that number, the first being 0."""
    return first.with_suffix(f".{number}{first.suffix}") if number else first


def token_in(middle: str) -> str:
    """What a file is named after, the first as others."""
    begin, dot, number = middle.rpartition(".")
    return begin if dot and number.isdecimal() else middle


def remove(first: Path, *others: Path) -> None:
    """The first goes last: as long as it is there it counts. Raises FileNotFoundError if it is not."""
    for other in others:
        other.unlink(missing_ok=True)
    first.unlink()
