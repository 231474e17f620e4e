"""Exactly-once writing to lake tables: column types, conversion of rows to Arrow, and one commit for each checkpoint.

::

    TABLE/_heronry/…                    staged files; names that begin with ``_`` are not part of the table
    TABLE/heronry-….parquet             linked there just before the table's log names it
    TABLE/word=a%20b/heronry-….parquet  the same for a partitioned table, one for each partition (``lake_parts.py``)

Theory of operation. A staged file waits until its checkpoint is complete. Then ``add_once`` adds it to the table. If
the table's own mark shows that the writer has committed this checkpoint or a later one, nothing remains to be done.
Otherwise the file and those of other partitions are linked into the table, and one commit of the table names them and
advances the mark. The staged file is removed after that. So a staged file remains until its rows are committed, and the
mark shows whether they are. If a process dies between any two of these steps, the next one completes them. Of two
concurrent commits of the same files the table accepts one. The other one fails with ``Busy``, checks again and finds
the mark.

The writer is a task of a component in one life of its topology, a run of a batch, or a stream of micro-batches. Its
checkpoints (the attempts of a batch or stream) are committed in order, so one number is a sufficient mark. The writer's
name is stored in the staged file's footer, because another task or another life may commit the file after a fault.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import importlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from heron_runtime.files import sync_folder
from heronry.connect.lake_parts import Partitions, Staged, Unfit, read_staged, remove, stored
from heronry.connect.seats import attempts
from heronry.connect.settings import ConnectError

STAGED = "_heronry"  # staging folder below a table
_NONE: type[Any] = type(None)


class Busy(ConnectError):
    """Error of a commit that conflicts with another writer's change."""


class Added(NamedTuple):
    """Data file that a writer adds to a table for a checkpoint; ``key`` is that of its partition."""

    file: Path
    rows: int
    writer: str
    checkpoint: int
    key: tuple[Any, ...] = ()


class Waiting(NamedTuple):
    """First staged file, the name of its files in the table, and their checkpoint."""

    staged: Path
    name: str
    checkpoint: int


class Table(Protocol):
    """Interface of a lake table in its present state."""

    @property
    def name(self) -> str:
        """Return the table's description for messages."""

    @property
    def schema(self) -> Any:
        """Return the Arrow schema."""

    @property
    def root(self) -> Path:
        """Return the folder of the data files."""

    @property
    def partitions(self) -> Partitions | None:
        """Return the partitions, or None if the table is not partitioned."""

    def committed(self, writer: str) -> int:
        """Return the last checkpoint that the writer committed, or -1."""

    def add(self, files: Sequence[Added]) -> None:
        """Commit files in the table's folder and their marks atomically and durably. Raises Busy, ConnectError."""


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a lake table.

    Attributes:
        name: Name of the column.
        kind: Name of its type for messages; "" if the type is not supported.
        python: Python type of its values.
        arrow: Arrow type.
        optional: Whether it may be null.
    """

    name: str
    kind: str
    python: type[Any]
    arrow: Any
    optional: bool

    def __str__(self) -> str:
        return f"{self.name} {self.kind or self.arrow}{'?' if self.optional else ''}"

    @property
    def is_read(self) -> bool:
        """Return True if its values can be read. 32-bit floats are read as 64-bit floats."""
        return bool(self.kind) or str(self.arrow) == "float"

    def why_not(self, value: Any) -> str:
        """Return why the column cannot hold a value other than None, or the empty string if it can."""
        if type(value) is not self.python:
            return f"the column holds {self.kind}"
        if self.python is int and (value if value >= 0 else ~value).bit_length() >= self.arrow.bit_width:
            return f"the column holds {self.arrow.bit_width} bits"
        if self.python is str and not value.isascii() and any("\ud800" <= sign <= "\udfff" for sign in value):
            return "UTF-8 cannot encode it"
        if self.python is dt.datetime and (value.tzinfo is None) != (self.arrow.tz is None):
            return f"the column holds {self.kind}"
        if self.python is Decimal and not _holds(value, self.arrow):
            return f"the column holds {self.kind}, and nothing is rounded"
        return ""


def _holds(value: Decimal, of: Any) -> bool:
    """Return True if an Arrow decimal type holds all digits of a value. Arithmetic would round to the context."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return False  # NaN or infinite
    significant = "".join(map(str, digits)).rstrip("0")
    behind = -(exponent + len(digits) - len(significant))
    return not significant.lstrip("0") or (behind <= of.scale and len(significant) - behind <= of.precision - of.scale)


def column_of(field: Any) -> Column:
    """Return the column of an Arrow field."""
    pa = importlib.import_module("pyarrow")
    of, kind, python = field.type, "", _NONE
    if pa.types.is_signed_integer(of):
        kind, python = "int" if of.bit_width == 64 else f"int{of.bit_width}", int
    elif pa.types.is_decimal128(of):
        kind, python = f"Decimal({of.precision}, {of.scale})", Decimal
    else:
        kind, python = {
            pa.string(): ("str", str), pa.large_string(): ("str", str), pa.float64(): ("float", float),
            pa.bool_(): ("bool", bool), pa.binary(): ("bytes", bytes), pa.large_binary(): ("bytes", bytes),
            pa.date32(): ("date", dt.date), pa.timestamp("us", "UTC"): ("datetime with a time zone", dt.datetime),
            pa.timestamp("us"): ("datetime without a time zone", dt.datetime),
        }.get(of, ("", _NONE))  # fmt: skip
    return Column(field.name, kind, python, of, field.nullable)


def listed(schema: Any) -> str:
    """Return the columns of an Arrow schema as text for messages."""
    return ", ".join(str(column_of(field)) for field in schema)


class Shape:
    """Converter of records to the columns of a table.

    Args:
        schema: Arrow schema of the table.
        table: Description of the table, for messages.

    Raises:
        ConnectError: A required column has an unsupported type.
    """

    def __init__(self, schema: Any, table: str) -> None:
        self.schema, self._table = schema, table
        self._columns = [column_of(field) for field in schema]
        self._names = {column.name for column in self._columns}
        self._refused = [column for column in self._columns if not column.kind]
        needed = [column for column in self._refused if not column.optional]
        if needed:
            raise ConnectError(
                f"{table}: column {needed[0]} must be written, and has a type that is not carried: the types are str, "
                "int (8 to 64 bits), float (64 bits), bool, bytes, date, datetime and Decimal"
            )

    def problem(self, fields: Iterable[str]) -> str:
        """Return why records with these fields do not fit the table, or the empty string if they do."""
        given = list(fields)
        more = [name for name in given if name not in self._names]
        less = [c.name for c in self._columns if not c.optional and c.name not in given]
        refused = [str(column) for column in self._refused if column.name in given]
        if refused:
            return f"column {', '.join(refused)} of {self._table} has a type that is not carried"
        if not more and not less:
            return ""
        why = f"unknown column {', '.join(more)}" if more else f"{', '.join(less)} must not be missing"
        return (
            f"records have the fields {', '.join(given)}, and {self._table} the columns {listed(self.schema)}: {why}; "
            "bring the records into the columns in a step before, or alter the table"
        )

    def row(self, record: Mapping[str, Any]) -> list[Any]:
        """Return a record's values in the order of the columns; missing ones are None. Raises Unfit."""
        if not record.keys() <= self._names:
            raise Unfit("", None, self.problem(record))
        row = []
        for column in self._columns:
            value = record.get(column.name)
            if value is None:
                if not column.optional:
                    raise Unfit(column.name, None, "the column must not be null")
            elif type(value) is int and column.python is float and abs(value) <= 2**53:
                value = float(value)
            else:
                why = column.why_not(value) if column.kind else "the column's type is not carried"
                if why:
                    raise Unfit(column.name, value, why)
            row.append(value)
        return row

    def table(self, rows: list[list[Any]]) -> Any:
        """Return an Arrow table of rows that ``row`` has returned."""
        pa = importlib.import_module("pyarrow")
        columns = zip(*rows, strict=True) if rows else [()] * len(self._columns)
        arrays = [pa.array(column, c.arrow) for column, c in zip(columns, self._columns, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self.schema)


def writer_name(who: str, task: str) -> str:
    """Return the writer's name of a task. ``who`` is its step in one life of its topology, or the name of a stream."""
    return f"heronry {who} {task}"


def marks_of(files: Iterable[Added]) -> dict[str, int]:
    """Return the last checkpoint of each writer."""
    marks: dict[str, int] = {}
    for file in files:
        marks[file.writer] = max(file.checkpoint, marks.get(file.writer, -1))
    return marks


def data_name(step: str, token: str) -> str:
    """Return the name of a token's file in the table. It is ASCII, as table logs quote all other characters."""
    return f"heronry-{hashlib.blake2b(step.encode(), digest_size=6).hexdigest()}-{token}.parquet"


def add_once(open_table: Callable[[], Table], waiting: Sequence[Waiting], tries: int) -> None:
    """Add staged files to the table exactly once, with one commit, and remove them from the staging folder.

    Args:
        open_table: Function that opens the table in its present state.
        waiting: Staged files to add.
        tries: Number of attempts while other writers change the table.

    Raises:
        ConnectError: The table cannot be written or was altered, or staged files are missing.
        FileNotFoundError: A file is not staged, or is not staged any more.
    """
    read = [(read_staged(each.staged, each.name), each.checkpoint) for each in waiting]
    for attempt in attempts(tries):
        table = open_table()
        owed = [(staged, number) for staged, number in read if table.committed(staged.writer) < number]
        if not owed:
            os.sync()  # the committing process may have died before it flushed the log
            break
        for staged, _ in owed:
            _still_fits(staged, table)
        files = [
            Added(table.root / part.name, part.rows, staged.writer, number, part.key)
            for staged, number in owed
            for part in staged.parts
        ]
        try:
            _link_all(table.root, [part.staged for staged, _ in owed for part in staged.parts], files)
        except FileNotFoundError as error:
            again = open_table()  # another process may have committed and removed it
            if any(again.committed(staged.writer) < number for staged, number in owed):
                raise ConnectError(
                    f"{error.filename} was staged for {table.name} and is missing, and was never committed: give all "
                    "hosts the same folder, and let no other program remove hidden files there"
                ) from None
            break
        try:
            table.add(files)
            break
        except Busy:
            if attempt.last:
                raise
    for staged, _ in read:
        remove(*(part.staged for part in staged.parts))


def _link_all(root: Path, staged: Sequence[Path], files: Sequence[Added]) -> None:
    """Link staged files into the table and flush the folders.

    Raises:
        FileNotFoundError: A file is not staged any more.
    """
    folders = {file.file.parent for file in files}
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    for source, file in zip(staged, files, strict=True):
        _link(source, file.file)
    for folder in sorted({above for at in folders for above in (at, *at.parents) if above.is_relative_to(root)}):
        sync_folder(folder)


def _link(staged: Path, whole: Path) -> None:
    """Link a staged file, or copy it where links are not supported. Raises FileNotFoundError if it does not exist."""
    try:
        os.link(staged, whole)
    except FileExistsError:
        pass  # linked by an earlier or a concurrent attempt
    except FileNotFoundError:
        raise
    except OSError:  # a file system without links
        beside = whole.with_name(f".{whole.name}.{os.getpid()}")
        shutil.copyfile(staged, beside)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(beside, whole)


def _still_fits(staged: Staged, table: Table) -> None:
    """Check that the table's columns and partitions match those of the staged files. Raises ConnectError if not."""
    schema, by = staged.schema, table.partitions.by if table.partitions else ""
    there = {field.name: field for field in stored(table.schema, table.partitions)}
    changed = [
        field.name
        for field in schema
        if field.name not in there
        or there[field.name].type != field.type
        or (field.nullable and not there[field.name].nullable)
    ]
    changed += [name for name, field in there.items() if not field.nullable and name not in schema.names]
    if by != staged.by:
        raise ConnectError(
            f"{table.name} has the partitions {by or 'of no column'}, and what waits for it was written for "
            f"{staged.by or 'no partitions'}: it was altered in between. The rows are safe; alter the table back"
        )
    if changed:
        raise ConnectError(
            f"{table.name} has the columns {listed(table.schema)}, and what waits for it was written for "
            f"{listed(schema)}: {', '.join(changed)} was altered in between. The rows are safe; alter the table back"
        )
