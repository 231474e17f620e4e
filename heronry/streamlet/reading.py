"""Readers of files: pieces of bytes at positions. Shared by the reference evaluator and the online source.

Theory of operation. A file is read in *pieces*: whole lines (text, json, csv) or rows (parquet, orc, archive), cut by
size. A piece has the number of its first line or row and the offset at which the next piece begins (bytes, or rows).
Reading can continue from the offset and the number. A piece stays bytes until ``Decoder`` (decoding.py) makes records
of it, which the online engine does in another process. Numbers count every line, including blank ones and the header of
a csv. Compressed files are read as their decompressed contents. A byte order mark at the start of a file is not part of
its first line (packed.py).

trees.py locates files, on this machine or at a URL.

An archive is read by its hour folders, each as if it were one file. Its rows are those of all its files in the order of
their names, without rows whose message id and index occurred before.

ORC columns with values on which readers disagree are rejected on every engine, with the name of the column. Depending
on the reader, a time in ORC is in UTC, in the writer's zone or in the reader's zone. Columns of times are therefore
rejected, also nested ones. A date is a number of days, in the calendar in use at that date or in the proleptic
Gregorian calendar. Few writers state which, and few readers check. From 15 October 1582 on the two are identical. A
top-level column may therefore contain dates, all of which are checked. Dates nested in other columns are rejected.
"""

from __future__ import annotations

import csv
import datetime as dt
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from heron_runtime.failures import listing
from heronry.connect.arrow_times import mark_utc
from heronry.connect.settings import arrow_driver
from heronry.streamlet.endpoints import FileSource, is_url
from heronry.streamlet.packed import (
    BYTE_ORDER_MARK,
    ReadError,
    is_packed,
    open_decompressed,
    refuse_unreadable,
    skip_to,
)
from heronry.streamlet.partitions import Folders
from heronry.streamlet.program import Program
from heronry.streamlet.trees import FileTree, Listing, LocalFileTree, Seen, joined, tree_of, whole_name
from heronry.streamlet.url_tree import unreadable_here

PIECE_BYTES = 128 * 1024
PIECE_ROWS = 4096
MAX_HEADERS = 1000  # limit of files whose headers are checked when a program is submitted
MAX_NAMED = 10
LINES = ("text", "json", "csv")
ARCHIVE_COLUMNS = ("message_id", "index", "event_time", "value")


class FilePiece(NamedTuple):
    """Piece of a file.

    Attributes:
        first: Number of the first line or row.
        header: First line, of a csv.
        data: Whole lines, or rows as an Arrow stream.
        next_offset: Offset at which the next piece begins, in bytes or rows.
        next_number: Number of the first line or row of the next piece.
    """

    first: int
    header: bytes  # of a csv
    data: bytes
    next_offset: int
    next_number: int


class Records(NamedTuple):
    """Decoded records of a piece.

    ``numbers`` are those of the records in the file. ``times_ms`` and ``ids`` (message id, index) are set if the file
    contains them.
    """

    records: list[Any]
    numbers: range | list[int]
    times_ms: list[int] | None = None
    ids: list[tuple[str, str]] | None = None


def parquet_library() -> Any:
    """Return pyarrow.

    Raises:
        RuntimeError: It is not installed. The message suggests a remedy.
    """
    arrow, _ = arrow_driver("Parquet", "archive", RuntimeError)
    return arrow


def list_files(source: FileSource[Any], tree: FileTree | None = None) -> list[str]:
    """Return the current files, as paths below the source's path, in order.

    The name is ``""`` if the source is a file itself. For an archive, hour folders are returned.

    Raises:
        FileNotFoundError: The path does not exist, and the source does not grow.
        ReadError: A file of lines has an unsupported compression, or a file is not in the folders that are fields.
        ConnectError: A store cannot be reached.
    """
    with closing(tree_of(source)) if tree is None else nullcontext(tree) as there:
        return sorted(listing_of(source, there))


def listing_of(source: FileSource[Any], tree: FileTree) -> Listing:
    """Return the current files as ``list_files`` does, with their sizes and versions."""
    files_by_hour = tree.listed()
    if files_by_hour is None:
        if source.grows:
            return {}
        raise FileNotFoundError(2, "no such file or directory", source.path)
    if source.format == "archive" and "" not in files_by_hour:
        hours: dict[str, list[Seen]] = {}
        for name in sorted(files_by_hour):
            hours.setdefault(name.rpartition("/")[0] or ".", []).append(files_by_hour[name])
        files_by_hour = {hour: joined(files) for hour, files in hours.items()}
    _refuse(source, files_by_hour)
    return files_by_hour


def _refuse(source: FileSource[Any], names: Iterable[str]) -> None:
    """Check that files can be read.

    Raises:
        ReadError: A file cannot be read.
    """
    if source.format in LINES:
        refuse_unreadable(name or source.path for name in names)
    if source.partitions:
        Folders(source.partitions).refuse(whole_name(source, name) for name in names)


def local_files(source: FileSource[Any]) -> list[Path]:
    """Return the files of a source on this machine, in order; the same for every engine.

    Raises:
        FileNotFoundError: The path does not exist.
        ReadError: A file cannot be read.
    """
    files = LocalFileTree(source).listed()
    if files is None:
        raise FileNotFoundError(2, "no such file or directory", source.path)
    _refuse(source, files)
    return [Path(whole_name(source, name)) for name in sorted(files)]


def refusals(program: Program) -> list[str]:
    """Return a message for each existing file that no engine can read, with its step. Called at submission.

    Tasks may see another folder, or more files later. In that case the task reports the error.
    """
    problems = []
    for name, source in program.reads():
        if not isinstance(source, FileSource) or is_url(source.path):
            continue
        if source.format in LINES or source.partitions:
            try:
                list_files(source)
                problems += [f"step {name!r}: {problem}" for problem in _header_problems(source)]
            except ReadError as error:
                problems.append(f"step {name!r}: {error}")
            except OSError:
                continue
    return problems


def skipped_files(source: FileSource[Any]) -> dict[str, str]:
    """Return paths below a source on this machine that are not read, with the reason."""
    tree = LocalFileTree(source, quiet=True)
    tree.listed()
    return dict(islice(tree.skipped.items(), MAX_NAMED))


def _header_problems(source: FileSource[Any]) -> Iterator[str]:
    """Yield problems of the headers of the csv files that are on this machine, and of the schema over them.

    Raises:
        ReadError: A file cannot be decompressed.
        OSError: A file cannot be opened.
    """
    if source.format != "csv":
        return
    there: set[str] = set()
    names = list_files(source)[:MAX_HEADERS] if Path(source.path).exists() else []
    for name in names:
        path = whole_name(source, name)
        with open_decompressed(open(path, "rb"), path) as file:
            line = file.readline().removeprefix(BYTE_ORDER_MARK)
        try:
            there.update(header_names(line, source.delimiter))
        except ValueError as error:
            yield f"{path}, line 1: {error}"
    absent = [name for name, _ in source.schema or () if name not in there]
    if absent and there:
        yield (
            f"no file at {source.path} has the field {listing(absent)} of the schema; their "
            f"headers have {listing(sorted(there)[:MAX_NAMED])}"
        )


def header_names(line: bytes, delimiter: str) -> list[str]:
    """Return the names in the first line of a csv file.

    Raises:
        ValueError: A name occurs twice.
    """
    text = line.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
    names = next(csv.reader([text], delimiter=delimiter), [])
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"the header names {listing(twice)} twice; rename one of the columns")
    return names


def missing(program: Program) -> list[str]:
    """Return a message for each input that does not exist on this machine, with its step. Called at submission.

    Tasks may have the input. A folder that grows may be created later. For a URL, the library that reads it is checked.
    Paths that exist and are not read are reported as well.
    """
    problems = []
    for name, source in program.reads():
        if not isinstance(source, FileSource):
            continue
        if is_url(source.path):
            if why := unreadable_here(source):
                problems.append(f"step {name!r}: {why}; a task that lacks it says so, and the topology fails")
        elif not source.grows and not Path(source.path).exists():
            problems.append(
                f"step {name!r}: there is nothing to read at {source.path} on this machine; a task that does not find "
                "it where it runs says so, and the topology fails"
            )
        else:
            problems += [
                f"step {name!r}: {path} is not read: it is {why}" for path, why in skipped_files(source).items()
            ]
    return problems


class LineReader:
    """Reader of pieces of a text, json or csv file from an offset.

    If the source grows, a line without an end is left until it is complete. The file is only read forwards: the
    remainder of a read, part of a line, is kept for the next one.
    """

    def __init__(
        self, source: FileSource[Any], name: str, offset: int = 0, number: int = 0, tree: FileTree | None = None,
        version: str = "",
    ) -> None:  # fmt: skip
        there = tree or tree_of(source)
        self._file = open_decompressed(there.open(name, version), whole_name(source, name))
        self._waits = grows_at(source, name, there)
        self._offset, self._number = offset, number
        self._header = self._rest = b""
        self._csv = source.format == "csv"
        if self._csv and offset:
            line = self._file.readline()
            self._header = line.removeprefix(BYTE_ORDER_MARK)
            skip_to(self._file, offset if self._file.seekable() else offset - len(line))
        else:
            skip_to(self._file, offset)

    def read(self, size: int = PIECE_BYTES) -> FilePiece | None:
        """Return the next piece, of about this many bytes. None if there is none now.

        Raises:
            ReadError: The file cannot be decompressed, or has changed.
        """
        if self._csv and not self._header and not self._read_header():
            return None
        data = self._rest + self._file.read(max(0, size - len(self._rest)))
        cut = data.rfind(b"\n") + 1
        while len(data) >= size and not cut:  # one line that is longer than a piece
            more = self._file.read(size)
            cut = more.rfind(b"\n") + 1
            cut = len(data) + cut if cut else 0
            data += more
            size = len(data) if more else len(data) + 1
        if not cut and not self._waits:
            cut = len(data)  # the last line of the file
        data, self._rest = data[:cut], data[cut:]
        if not data:
            return None
        first, at = self._number, self._offset
        self._offset += cut
        self._number += data.count(b"\n") + (not data.endswith(b"\n"))
        if not at:
            data = data.removeprefix(BYTE_ORDER_MARK)
        return FilePiece(first, self._header, data, self._offset, self._number)

    def head(self, size: int) -> bytes:
        """Return the first bytes that the file has now. It must not be compressed, and be on this machine."""
        return os.pread(self._file.fileno(), size, 0)

    def _read_header(self) -> bool:
        self._rest += self._file.readline()
        if not self._rest or (self._waits and not self._rest.endswith(b"\n")):
            return False
        line, self._rest = self._rest, b""
        self._header = line.removeprefix(BYTE_ORDER_MARK)
        self._offset, self._number = len(line), 1
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def grows_at(source: FileSource[Any], name: str, tree: FileTree) -> bool:
    """Return True for a file that may get new lines.

    Compressed files, and files in a store without appends, do not.
    """
    return source.grows and tree.appended and source.format in LINES and not is_packed(whole_name(source, name))


class ColumnReader:
    """Reader of pieces of a Parquet or ORC file, or of an archive's hour folder. Offsets are rows."""

    def __init__(
        self, source: FileSource[Any], name: str, offset: int = 0, number: int = 0, tree: FileTree | None = None,
        version: str = "",
    ) -> None:  # fmt: skip
        self._arrow = parquet_library()
        self._source, self._name, self._version = source, name, version
        self._tree = tree or tree_of(source)
        self._number = offset
        self._open: Callable[..., Iterator[Any]] = self._orc if source.format == "orc" else self._parquet
        self._batches = self._skipped(self._archive() if source.format == "archive" else self._rows(name, version))

    def _rows(self, name: str, version: str = "", columns: list[str] | None = None) -> Iterator[Any]:
        """Yield batches of rows. Errors of pyarrow do not name the file, so they are converted.

        Raises:
            ReadError: The file cannot be read in its format.
        """
        path = whole_name(self._source, name)
        try:
            yield from self._open(self._tree.columns(name, version), path, columns)
        except (FileNotFoundError, PermissionError):
            raise
        except (self._arrow.ArrowException, OSError) as error:
            form = "ORC" if self._open == self._orc else "Parquet"
            raise ReadError(
                f"{path} cannot be read as {form} ({error}); take it away, and give files their names when they are "
                "whole (names that begin with . or _ are not read)"
            ) from error

    def _parquet(self, opened: Any, path: str, columns: list[str] | None) -> Iterator[Any]:
        with self._arrow.parquet.ParquetFile(opened, coerce_int96_timestamp_unit="us") as file:
            names = file.schema_arrow.names
            if len(set(names)) < len(names):
                twice = sorted({name for name in names if names.count(name) > 1})
                raise ReadError(f"{path} has several columns named {listing(twice)}; rename one of them")
            footer = [file.schema.column(number) for number in range(len(file.schema))]
            int96 = frozenset(column.path for column in footer if column.physical_type == "INT96")
            for batch in file.iter_batches(batch_size=PIECE_ROWS, columns=columns):
                yield mark_utc(batch, int96) if int96 else batch

    def _orc(self, opened: Any, path: str, columns: list[str] | None) -> Iterator[Any]:
        import pyarrow.orc

        with opened if hasattr(opened, "read") else opened.open("rb") as bytes_of:
            file = pyarrow.orc.ORCFile(bytes_of)
            refuse_times(((field.name, leaves_of(field.type)) for field in file.schema), path)
            for number in range(file.nstripes):
                stripe = file.read_stripe(number, columns)
                refuse_old_dates(stripe, path)
                for first in range(0, stripe.num_rows, PIECE_ROWS):
                    yield stripe.slice(first, PIECE_ROWS)

    def _archive(self) -> Iterator[Any]:
        seen: set[tuple[str, str]] = set()
        if self._version:
            self._tree.check(self._name, self._version)
        for name in self._tree.inside(self._name):
            if not name.endswith(".parquet") and name != self._name:
                continue
            for batch in self._rows(name, columns=list(ARCHIVE_COLUMNS)):
                ids = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
                fresh = [identity not in seen and not seen.add(identity) for identity in ids]  # type: ignore[func-returns-value]  # add gives None
                fresh_batch = batch if all(fresh) else batch.filter(self._arrow.array(fresh))
                if fresh_batch.num_rows:
                    yield fresh_batch

    def _skipped(self, batches: Iterator[Any]) -> Iterator[Any]:
        before = 0
        for batch in batches:
            rest = batch.slice(max(0, self._number - before))
            before += batch.num_rows
            if rest.num_rows:
                yield rest

    def read(self, size: int = PIECE_BYTES) -> FilePiece | None:
        """Return the next piece. None at the end."""
        batch = next(self._batches, None)
        if batch is None:
            return None
        sink = self._arrow.BufferOutputStream()
        with self._arrow.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        first, self._number = self._number, self._number + batch.num_rows
        return FilePiece(first, b"", sink.getvalue().to_pybytes(), self._number, self._number)

    def close(self) -> None:
        """Close the file."""
        self._batches.close()  # type: ignore[attr-defined]  # a generator


Reader = LineReader | ColumnReader


def open_reader(
    source: FileSource[Any],
    name: str,
    offset: int = 0,
    number: int = 0,
    tree: FileTree | None = None,
    version: str = "",
) -> Reader:
    """Return a reader of a file of this version, from an offset on.

    Raises:
        OSError: The file cannot be opened.
        RuntimeError: pyarrow is not installed.
        ReadError: The file has changed.
        ConnectError: A store cannot be reached.
    """
    return (LineReader if source.format in LINES else ColumnReader)(source, name, offset, number, tree, version)


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
