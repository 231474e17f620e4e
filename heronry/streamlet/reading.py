"""Reading files: pieces of bytes at positions. Shared by the reference and the online source.

Theory of operation. A file is read in *pieces*: whole lines (text, json, csv) or rows (parquet, orc, archive), cut by
size.
A piece has the number of its first line or row and the offset at which the next piece begins (bytes, or rows), so
whoever has the offset and the number can go on from there. A piece is bytes until ``Decoder`` (decoding.py) makes
records of it, which the online engine does in another process than the reading. Numbers count every line, blank ones
and a csv's header too. Compressed files are read as what they hold, and a byte order mark at a file's start is no part
of its first line (packed.py).

Where files are, on this machine or at a URL, is trees.py's.

An archive is read by its hour folders, each as if it were one file: its rows are those of all its files in the order of
their names, without those whose message id and index came before.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from heron_runtime.failures import listing
from heronry.connect.drivers import arrow_driver
from heronry.streamlet.endpoints import FileSource, is_url
from heronry.streamlet.orc import leaves_of, refuse_old_dates, refuse_times
from heronry.streamlet.packed import BYTE_ORDER_MARK, ReadError, go_to, is_packed, plain_of, refuse_unreadable
from heronry.streamlet.partitions import Folders
from heronry.streamlet.program import Program
from heronry.streamlet.trees import Listing, LocalTree, Seen, Tree, joined, tree_of, whole_name
from heronry.streamlet.url_tree import unreadable_here

PIECE_BYTES = 128 * 1024
PIECE_ROWS = 4096
MAX_HEADERS = 1000  # files whose headers are looked at when a program is submitted
MAX_NAMED = 10
LINES = ("text", "json", "csv")
ARCHIVE_COLUMNS = ("message_id", "index", "event_time", "value")


class Piece(NamedTuple):
    """``first``: number of the first line or row; ``next_offset``, ``next_number``: where the next piece begins."""

    first: int
    header: bytes  # of a csv
    data: bytes
    next_offset: int
    next_number: int


class Records(NamedTuple):
    """``numbers`` of the records in the file; ``times_ms`` and ``ids`` (message id, index) where the file has them."""

    records: list[Any]
    numbers: range | list[int]
    times_ms: list[int] | None = None
    ids: list[tuple[str, str]] | None = None


def parquet_library() -> Any:
    """pyarrow. Raises RuntimeError with the cure."""
    arrow, _ = arrow_driver("Parquet", "archive", RuntimeError)
    return arrow


def list_files(source: FileSource[Any], tree: Tree | None = None) -> list[str]:
    """The files there are now, as paths below the source's, in order; ``""`` if the source is a file itself.

    For an archive: its hour folders. Raises FileNotFoundError if the path is not there and the source does not grow,
    ReadError for files of lines that are compressed in a way that cannot be read here, and for files that do not lie in
    the folders that are fields; ConnectError.
    """
    with closing(tree_of(source)) if tree is None else nullcontext(tree) as there:
        return sorted(listing_of(source, there))


def listing_of(source: FileSource[Any], tree: Tree) -> Listing:
    """The same, with what is known of each."""
    found = tree.listed()
    if found is None:
        if source.grows:
            return {}
        raise FileNotFoundError(2, "there is no such file or folder to read", source.path)
    if source.format == "archive" and "" not in found:
        hours: dict[str, list[Seen]] = {}
        for name in sorted(found):
            hours.setdefault(name.rpartition("/")[0] or ".", []).append(found[name])
        found = {hour: joined(files) for hour, files in hours.items()}
    _refuse(source, found)
    return found


def _refuse(source: FileSource[Any], names: Iterable[str]) -> None:
    """Raises ReadError for files that cannot be read."""
    if source.format in LINES:
        refuse_unreadable(name or source.path for name in names)
    if source.partitions:
        Folders(source.partitions).refuse(whole_name(source, name) for name in names)


def local_files(source: FileSource[Any]) -> list[Path]:
    """Return the files of a source on this machine, in order; the same for every engine.

    Raises FileNotFoundError if the path does not exist, ReadError for files that cannot be read.
    """
    found = LocalTree(source).listed()
    if found is None:
        raise FileNotFoundError(2, "there is no such file or folder to read", source.path)
    _refuse(source, found)
    return [Path(whole_name(source, name)) for name in sorted(found)]


def refusals(program: Program) -> list[str]:
    """Files that are there and that no engine can read, for whoever submits, each with its step.

    Tasks may see another folder, or later more of it: then the task says so.
    """
    found = []
    for name, source in program.reads():
        if not isinstance(source, FileSource) or is_url(source.path):
            continue
        if source.format in LINES or source.partitions:
            try:
                list_files(source)
                found += [f"step {name!r}: {problem}" for problem in _header_problems(source)]
            except ReadError as error:
                found.append(f"step {name!r}: {error}")
            except OSError:
                continue
    return found


def skipped_files(source: FileSource[Any]) -> dict[str, str]:
    """Return what lies at the path of a source on this machine and is not read: path → why."""
    tree = LocalTree(source, quiet=True)
    tree.listed()
    return dict(islice(tree.skipped.items(), MAX_NAMED))


def _header_problems(source: FileSource[Any]) -> Iterator[str]:
    """Yield what is wrong with the headers of the csv files that are on this machine, and with the schema over them.

    Raises ReadError, OSError.
    """
    if source.format != "csv":
        return
    there: set[str] = set()
    names = list_files(source)[:MAX_HEADERS] if Path(source.path).exists() else []
    for name in names:
        path = whole_name(source, name)
        with plain_of(open(path, "rb"), path) as file:
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
    """Return the names in the first line of a csv file. Raises ValueError for a name that it has twice."""
    text = line.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
    names = next(csv.reader([text], delimiter=delimiter), [])
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"the header names {listing(twice)} twice; rename one of the columns")
    return names


def missing(program: Program) -> list[str]:
    """What is to be read and is not there on this machine, for whoever submits, each with its step; tasks may have it.
    A folder that grows may come later; of a URL it is what reads it. Also what lies there and is not read."""
    found = []
    for name, source in program.reads():
        if not isinstance(source, FileSource):
            continue
        if is_url(source.path):
            if why := unreadable_here(source):
                found.append(f"step {name!r}: {why}; a task that lacks it says so, and the topology fails")
        elif not source.grows and not Path(source.path).exists():
            found.append(
                f"step {name!r}: there is nothing to read at {source.path} on this machine; a task that does not find "
                "it where it runs says so, and the topology fails"
            )
        else:
            found += [f"step {name!r}: {path} is not read: it is {why}" for path, why in skipped_files(source).items()]
    return found


class LineReader:
    """Pieces of a text, json or csv file from an offset. A line without an end waits for it if the source grows.

    Reads forwards only: what is left of a read, part of a line, is kept for the next one.
    """

    def __init__(
        self, source: FileSource[Any], name: str, offset: int = 0, number: int = 0, tree: Tree | None = None,
        version: str = "",
    ) -> None:  # fmt: skip
        there = tree or tree_of(source)
        self._file = plain_of(there.open(name, version), whole_name(source, name))
        self._waits = grows_at(source, name, there)
        self._offset, self._number = offset, number
        self._header = self._rest = b""
        self._csv = source.format == "csv"
        if self._csv and offset:
            line = self._file.readline()
            self._header = line.removeprefix(BYTE_ORDER_MARK)
            go_to(self._file, offset if self._file.seekable() else offset - len(line))
        else:
            go_to(self._file, offset)

    def read(self, size: int = PIECE_BYTES) -> Piece | None:
        """The next piece, of about this many bytes; None when there is none now. Raises ReadError."""
        if self._csv and not self._header and not self._read_header():
            return None
        data = self._rest + self._file.read(max(0, size - len(self._rest)))
        cut = data.rfind(b"\n") + 1
        while len(data) >= size and not cut:  # one line longer than a piece
            more = self._file.read(size)
            cut = more.rfind(b"\n") + 1
            cut = len(data) + cut if cut else 0
            data += more
            size = len(data) if more else len(data) + 1
        if not cut and not self._waits:
            cut = len(data)  # the last line of all
        data, self._rest = data[:cut], data[cut:]
        if not data:
            return None
        first, at = self._number, self._offset
        self._offset += cut
        self._number += data.count(b"\n") + (not data.endswith(b"\n"))
        if not at:
            data = data.removeprefix(BYTE_ORDER_MARK)
        return Piece(first, self._header, data, self._offset, self._number)

    def _read_header(self) -> bool:
        self._rest += self._file.readline()
        if not self._rest or (self._waits and not self._rest.endswith(b"\n")):
            return False
        line, self._rest = self._rest, b""
        self._header = line.removeprefix(BYTE_ORDER_MARK)
        self._offset, self._number = len(line), 1
        return True

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def grows_at(source: FileSource[Any], name: str, tree: Tree) -> bool:
    """True for a file that may get new lines: not what is compressed, nor in a store that has no appends."""
    return source.grows and tree.appended and source.format in LINES and not is_packed(whole_name(source, name))


class RowReader:
    """Pieces of a file of Parquet or ORC, or of an archive's hour folder; offsets are rows."""

    def __init__(
        self, source: FileSource[Any], name: str, offset: int = 0, number: int = 0, tree: Tree | None = None,
        version: str = "",
    ) -> None:  # fmt: skip
        self._arrow = parquet_library()
        self._source, self._name, self._version = source, name, version
        self._tree = tree or tree_of(source)
        self._number = offset
        self._open: Callable[..., Iterator[Any]] = self._orc if source.format == "orc" else self._parquet
        self._batches = self._skipped(self._archive() if source.format == "archive" else self._rows(name, version))

    def _rows(self, name: str, version: str = "", columns: list[str] | None = None) -> Iterator[Any]:
        """Raises ReadError, since pyarrow does not say which file it is that it cannot read."""
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
        with self._arrow.parquet.ParquetFile(opened) as file:
            yield from file.iter_batches(batch_size=PIECE_ROWS, columns=columns)

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
                kept = batch if all(fresh) else batch.filter(self._arrow.array(fresh))
                if kept.num_rows:
                    yield kept

    def _skipped(self, batches: Iterator[Any]) -> Iterator[Any]:
        before = 0
        for batch in batches:
            rest = batch.slice(max(0, self._number - before))
            before += batch.num_rows
            if rest.num_rows:
                yield rest

    def read(self, size: int = PIECE_BYTES) -> Piece | None:
        """The next piece; None at the end."""
        batch = next(self._batches, None)
        if batch is None:
            return None
        sink = self._arrow.BufferOutputStream()
        with self._arrow.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        first, self._number = self._number, self._number + batch.num_rows
        return Piece(first, b"", sink.getvalue().to_pybytes(), self._number, self._number)

    def close(self) -> None:
        """Let go of the file."""
        self._batches.close()  # type: ignore[attr-defined]  # a generator


Reader = LineReader | RowReader


def open_reader(
    source: FileSource[Any], name: str, offset: int = 0, number: int = 0, tree: Tree | None = None, version: str = ""
) -> Reader:
    """Pieces from an offset on, of a file of this version. Raises OSError, RuntimeError (pyarrow is missing), ReadError
    (it has changed), ConnectError."""
    return (LineReader if source.format in LINES else RowReader)(source, name, offset, number, tree, version)
