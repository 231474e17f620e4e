"""Rows for tables of lakes: what columns hold, a table of Arrow from tuples or records, and one commit for each
checkpoint, whatever dies.

::

    TABLE/_heronry/…                    what is staged; names that begin with ``_`` are not the table's
    TABLE/heronry-….parquet             linked there just before the table's log names it
    TABLE/word=a%20b/heronry-….parquet  of a table with partitions, one for each (``lake_parts.py``)

Theory of operation. A staged file waits until its checkpoint is complete. Then it is *added once* (``add_once``): if
the table's own mark says that the writer has committed this checkpoint, or a later one, there is nothing left to do;
otherwise the file, and those of other partitions with it, are linked into the table, and one commit of the table names
them and moves the mark. Only then the staged file goes. So as long as it is there it is that which counts, and the mark
tells whether its rows do already; a process that dies between any two of these steps leaves what the next one finishes.
Of two that commit the same at once the table lets one through: the other finds that somebody was faster (``Busy``),
looks again and sees the mark.

The writer is a task of a component in one life of its topology, a run of a batch, or a stream by micro-batches: its
checkpoints (the attempts of a batch or stream) are committed in order, so that one number is its mark. It stands in the
staged file's footer, for after a fault another task may commit, or another life.
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
from heronry.connect.attempts import attempts
from heronry.connect.lake_parts import Partitions, Staged, Unfit, read_staged, remove, stored
from heronry.connect.settings import ConnectError

STAGED = "_heronry"  # below a table
_NONE: type[Any] = type(None)


class Busy(ConnectError):
    """Somebody else has changed the table just now."""


class Added(NamedTuple):
    """A file of so many rows that its writer has written for a checkpoint; ``key``: of its partition."""

    file: Path
    rows: int
    writer: str
    checkpoint: int
    key: tuple[Any, ...] = ()


class Waiting(NamedTuple):
    """The first staged file, the name of files in the table, and the checkpoint they belong to."""

    staged: Path
    name: str
    checkpoint: int


class Table(Protocol):
    """A table as it is now."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def schema(self) -> Any:
        """Arrow's."""

    @property
    def root(self) -> Path:
        """Where its data files lie."""

    @property
    def partitions(self) -> Partitions | None:
        """None for a table that has none."""

    def committed(self, writer: str) -> int:
        """The last checkpoint that this writer has committed; -1: none."""

    def add(self, files: Sequence[Added]) -> None:
        """Commit files that lie in the table, and their marks, at once, to disk. Raises Busy, ConnectError."""


@dataclass(frozen=True, slots=True)
class Column:
    """``kind``: its type as people write it, "" for one that is not carried; ``python``: the type of its values."""

    name: str
    kind: str
    python: type[Any]
    arrow: Any
    optional: bool

    def __str__(self) -> str:
        return f"{self.name} {self.kind or self.arrow}{'?' if self.optional else ''}"

    @property
    def is_read(self) -> bool:
        """True if its values can be given to others; floats of 32 bits as those of 64, which they are then."""
        return bool(self.kind) or str(self.arrow) == "float"

    def why_not(self, value: Any) -> str:
        """Why a value (not None) cannot be held; empty if it can."""
        if type(value) is not self.python:
            return f"the column holds {self.kind}"
        if self.python is int and (value if value >= 0 else ~value).bit_length() >= self.arrow.bit_width:
            return f"the column holds {self.arrow.bit_width} bits"
        if self.python is str and not value.isascii() and any("\ud800" <= sign <= "\udfff" for sign in value):
            return "it is no text that UTF-8 can hold"
        if self.python is dt.datetime and (value.tzinfo is None) != (self.arrow.tz is None):
            return f"the column holds {self.kind}"
        if self.python is Decimal and not _holds(value, self.arrow):
            return f"the column holds {self.kind}, and nothing is rounded"
        return ""


def _holds(value: Decimal, of: Any) -> bool:
    """True if all digits of a Decimal have their place. (Arithmetic would round to those of the context.)"""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return False  # no number, or an infinite one
    significant = "".join(map(str, digits)).rstrip("0")
    behind = -(exponent + len(digits) - len(significant))
    return not significant.lstrip("0") or (behind <= of.scale and len(significant) - behind <= of.precision - of.scale)


def column_of(field: Any) -> Column:
    """The column of an Arrow field."""
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
    """The columns of an Arrow schema, for people."""
    return ", ".join(str(column_of(field)) for field in schema)


class Shape:
    """The columns of a table, and rows that fit them. ``table``: its name. Raises ConnectError for a table with columns
    that cannot be written."""

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
        """Why records of these fields do not fit; empty if they do."""
        given = list(fields)
        more = [name for name in given if name not in self._names]
        less = [c.name for c in self._columns if not c.optional and c.name not in given]
        refused = [str(column) for column in self._refused if column.name in given]
        if refused:
            return f"column {', '.join(refused)} of {self._table} has a type that is not carried"
        if not more and not less:
            return ""
        why = f"there is no column {', '.join(more)}" if more else f"{', '.join(less)} may not be left out"
        return (
            f"records have the fields {', '.join(given)}, and {self._table} the columns {listed(self.schema)}: {why}; "
            "bring the records into the columns in a step before, or alter the table"
        )

    def row(self, record: Mapping[str, Any]) -> list[Any]:
        """Its values in the order of the columns; what a record lacks is None. Raises Unfit."""
        if not record.keys() <= self._names:
            raise Unfit("", None, self.problem(record))
        row = []
        for column in self._columns:
            value = record.get(column.name)
            if value is None:
                if not column.optional:
                    raise Unfit(column.name, None, "the column may not be null")
            elif type(value) is int and column.python is float and abs(value) <= 2**53:
                value = float(value)
            else:
                why = column.why_not(value) if column.kind else "the column's type is not carried"
                if why:
                    raise Unfit(column.name, value, why)
            row.append(value)
        return row

    def table(self, rows: list[list[Any]]) -> Any:
        """An Arrow table of rows that fit."""
        pa = importlib.import_module("pyarrow")
        columns = zip(*rows, strict=True) if rows else [()] * len(self._columns)
        arrays = [pa.array(column, c.arrow) for column, c in zip(columns, self._columns, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self.schema)


def writer_name(who: str, task: str) -> str:
    """Of a task; ``who``: its step, in one life of its topology, or for all of a stream."""
    return f"heronry {who} {task}"


def marks_of(files: Iterable[Added]) -> dict[str, int]:
    """The last checkpoint of each writer."""
    marks: dict[str, int] = {}
    for file in files:
        marks[file.writer] = max(file.checkpoint, marks.get(file.writer, -1))
    return marks


def data_name(step: str, token: str) -> str:
    """Of a token's file in the table: ASCII, for the logs of tables quote all else."""
    return f"heronry-{hashlib.blake2b(step.encode(), digest_size=6).hexdigest()}-{token}.parquet"


def add_once(open_table: Callable[[], Table], waiting: Sequence[Waiting], tries: int) -> None:
    """The rows of staged files are in the table, once, all with one commit, and are staged no more. Raises
    ConnectError, and FileNotFoundError if one is not staged (any more)."""
    read = [(read_staged(each.staged, each.name), each.checkpoint) for each in waiting]
    for attempt in attempts(tries):
        table = open_table()
        owed = [(staged, number) for staged, number in read if table.committed(staged.writer) < number]
        if not owed:
            os.sync()  # who committed it has died just then: nobody knows whether the table's log is on disk
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
            again = open_table()  # it goes when it is committed, perhaps by another just now
            if any(again.committed(staged.writer) < number for staged, number in owed):
                raise ConnectError(
                    f"{error.filename} was staged for {table.name} and is gone, and was never committed: give all "
                    "hosts the same folder, and let nobody else remove hidden files there"
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
    """Their names are on disk, too. Raises FileNotFoundError for one that is staged no more."""
    folders = {file.file.parent for file in files}
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    for source, file in zip(staged, files, strict=True):
        _link(source, file.file)
    for folder in sorted({above for at in folders for above in (at, *at.parents) if above.is_relative_to(root)}):
        sync_folder(folder)


def _link(staged: Path, whole: Path) -> None:
    """Raises FileNotFoundError if it is staged no more."""
    try:
        os.link(staged, whole)
    except FileExistsError:
        pass  # by whoever died here, or is here at the same time
    except FileNotFoundError:
        raise
    except OSError:  # a file system without links
        beside = whole.with_name(f".{whole.name}.{os.getpid()}")
        shutil.copyfile(staged, beside)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(beside, whole)


def _still_fits(staged: Staged, table: Table) -> None:
    """Raises ConnectError if the table's columns, or partitions, are others than when the files were staged."""
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
