"""Reading files: pieces of bytes at positions, and bytes to records. Shared by the reference and the online source.

Theory of operation. A file is read in *pieces*: whole lines (text, json, csv) or rows (parquet, archive), cut by size.
A piece has the number of its first line or row and the offset at which the next piece begins (bytes, or rows), so
whoever has the offset and the number can go on from there. A piece is bytes until ``decode`` makes records of it, which
the online engine does in another process than the reading. Numbers count every line, blank ones and a csv's header too.

An archive is read by its hour folders, each as if it were one file: its rows are those of all its files in the order of
their names, without those whose message id and index came before.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from heronry.streamlet.endpoints import FileSource, Schema

PIECE_BYTES = 128 * 1024
PIECE_ROWS = 4096
LINES = ("text", "json", "csv")
_MAX_FIELD = 2**31 - 1  # characters in a csv field; Python's own limit is 131072
ARCHIVE_COLUMNS = ("message_id", "index", "event_time", "value")


class ReadError(ValueError):
    """A file cannot be read as what it was declared. The text names the file and the line."""


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
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise RuntimeError(
            "Parquet needs pyarrow, which is not installed: pip install 'heronry[archive]' (in the topology's "
            "requirements.txt, if it is submitted)"
        ) from None
    return pyarrow


def list_files(source: FileSource) -> list[str]:
    """The files there are now, as paths below the source's, in order; ``""`` if the source is a file itself.

    For an archive: its hour folders. Raises FileNotFoundError if the path is not there and the source does not grow.
    """
    root = Path(source.path)
    if root.is_file():
        return [""]
    if not root.is_dir():
        if source.grows:
            return []
        raise FileNotFoundError(2, "there is no such file or folder to read", source.path)
    found = []
    for place, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        below = Path(place).relative_to(root)
        seen = [(below / name).as_posix() for name in names if not name.startswith((".", "_"))]
        found += seen if source.format != "archive" or not seen else [below.as_posix()]
    return sorted(found)


def path_of(source: FileSource, name: str) -> Path:
    """The file behind a name of ``list_files``."""
    return Path(source.path, name) if name else Path(source.path)


class LineReader:
    """Pieces of a text, json or csv file from an offset. A line without an end waits for it if the source grows."""

    def __init__(self, source: FileSource, name: str, offset: int = 0, number: int = 0) -> None:
        self._file = path_of(source, name).open("rb")
        self._grows = source.grows
        self._offset, self._number = offset, number
        self._header = b""
        self._csv = source.format == "csv"
        if self._csv and offset:
            self._header = self._file.readline()
        self._file.seek(offset)

    def read(self, size: int = PIECE_BYTES) -> Piece | None:
        """The next piece, of about this many bytes; None when there is none now."""
        if self._csv and not self._header and not self._read_header():
            return None
        data = self._file.read(size)
        cut = data.rfind(b"\n") + 1
        while len(data) == size and not cut:  # one line longer than a piece
            more = self._file.read(size)
            cut = more.rfind(b"\n") + 1
            cut = len(data) + cut if cut else 0
            data += more
            size = len(data) if more else -1
        if not cut and not self._grows:
            cut = len(data)  # the last line of all
        if not cut:
            self._file.seek(self._offset)
            return None
        data, first = data[:cut], self._number
        self._offset += cut
        self._number += data.count(b"\n") + (not data.endswith(b"\n"))
        self._file.seek(self._offset)
        return Piece(first, self._header, data, self._offset, self._number)

    def _read_header(self) -> bool:
        line = self._file.readline()
        if not line or (self._grows and not line.endswith(b"\n")):
            self._file.seek(0)
            return False
        self._header = line
        self._offset, self._number = len(line), 1
        return True

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class RowReader:
    """Pieces of a Parquet file, or of an archive's hour folder; offsets are rows."""

    def __init__(self, source: FileSource, name: str, offset: int = 0, number: int = 0) -> None:
        self._arrow = parquet_library()
        self._place = path_of(source, name)
        self._number = offset
        self._batches = self._skipped(self._archive() if source.format == "archive" else self._parquet())

    def _parquet(self) -> Iterator[Any]:
        yield from self._rows(self._place)

    def _rows(self, path: Path, columns: list[str] | None = None) -> Iterator[Any]:
        """Raises ReadError, since pyarrow does not say which file it is that it cannot read."""
        try:
            with self._arrow.parquet.ParquetFile(path) as file:
                yield from file.iter_batches(batch_size=PIECE_ROWS, columns=columns)
        except (FileNotFoundError, PermissionError):
            raise
        except (self._arrow.ArrowException, OSError) as error:
            raise ReadError(
                f"{path} cannot be read as Parquet ({error}); take it away, and give files their names when they are "
                "whole (names that begin with . or _ are not read)"
            ) from error

    def _archive(self) -> Iterator[Any]:
        files = [self._place] if self._place.is_file() else sorted(self._place.glob("*.parquet"))
        seen: set[tuple[str, str]] = set()
        for path in files:
            if path.name.startswith((".", "_")):
                continue
            for batch in self._rows(path, list(ARCHIVE_COLUMNS)):
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


def open_reader(source: FileSource, name: str, offset: int = 0, number: int = 0) -> Reader:
    """Pieces from an offset on. Raises OSError, RuntimeError (pyarrow is missing)."""
    return (LineReader if source.format in LINES else RowReader)(source, name, offset, number)


class Decoder:
    """Bytes of a piece to records."""

    def __init__(self, source: FileSource) -> None:
        self._decode: Callable[[Piece], Records] = getattr(self, f"_{source.format}")
        self._source = source
        self._shape = _shape(source.schema, source.format == "csv") if source.schema else None
        if source.format == "csv":
            csv.field_size_limit(max(csv.field_size_limit(), _MAX_FIELD))

    def decode(self, name: str, piece: Piece) -> Records:
        """Raises ReadError, naming the file and the line."""
        try:
            return self._decode(piece)
        except _BadLine as error:
            where = path_of(self._source, name)
            line = f", line {error.number + 1}" if self._source.format in LINES else f", row {error.number}"
            raise ReadError(f"{where}{line}: {error}") from None

    def _text(self, piece: Piece) -> Records:
        lines = _lines(piece.data)
        return Records(lines, range(piece.first, piece.first + len(lines)))

    def _json(self, piece: Piece) -> Records:
        lines = piece.data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        numbers: range | list[int] = range(piece.first, piece.first + len(lines))
        if not all(lines) or any(map(bytes.isspace, lines)):
            kept = [(number, line) for number, line in zip(numbers, lines, strict=True) if line.strip()]
            numbers, lines = [number for number, _ in kept], [line for _, line in kept]
        try:
            records = list(map(_json_value, lines))
        except msgspec.DecodeError:
            records = [_json_line(number, line) for number, line in zip(numbers, lines, strict=True)]
        return Records(self._shaped(records, numbers), numbers)

    def _csv(self, piece: Piece) -> Records:
        lines = _lines(piece.data)
        delimiter = self._source.delimiter
        (names,) = csv.reader(_lines(piece.header.removeprefix(b"\xef\xbb\xbf")), delimiter=delimiter)
        numbers: range | list[int] = range(piece.first, piece.first + len(lines))
        if not all(lines):
            numbers = [number for number, line in zip(numbers, lines, strict=True) if line]
            lines = [line for line in lines if line]
        try:
            rows = _csv_rows(lines, delimiter)
        except csv.Error:
            for number, line in zip(numbers, lines, strict=True):
                try:
                    _csv_rows([line], delimiter)
                except csv.Error as error:
                    raise _BadLine(number, f"{error}: {line[:200]!r}") from None
            raise
        for number, row in zip(numbers, rows, strict=True):
            if len(row) != len(names):
                raise _BadLine(number, f"{len(row)} fields where the header has {len(names)}")
        return Records(self._shaped([dict(zip(names, row, strict=True)) for row in rows], numbers), numbers)

    def _parquet(self, piece: Piece) -> Records:
        records = _table(piece.data).to_pylist()
        return Records(records, range(piece.first, piece.first + len(records)))

    def _archive(self, piece: Piece) -> Records:
        columns = [column.to_pylist() for column in _table(piece.data).columns]
        ids, indexes, times, values = columns
        records = [msgspec.json.decode(value) for value in values]
        numbers = range(piece.first, piece.first + len(records))
        return Records(records, numbers, times, list(zip(ids, indexes, strict=True)))

    def _shaped(self, records: list[Any], numbers: Any) -> list[Any]:
        shape = self._shape
        if shape is None:
            return records
        try:
            return list(map(shape, records))
        except (TypeError, ValueError, AttributeError):
            for number, record in zip(numbers, records, strict=True):
                try:
                    shape(record)
                except (TypeError, ValueError, AttributeError) as error:
                    raise _BadLine(number, f"{record!r} does not fit the schema: {error}") from None
            raise


def read_all(source: FileSource) -> Iterator[tuple[Any, int | None]]:
    """Every record of a finite source, in order, with its event time if the file has it. Raises ReadError, OSError."""
    decoder = Decoder(source)
    for name in list_files(source):
        reader = open_reader(source, name)
        try:
            while (piece := reader.read()) is not None:
                found = decoder.decode(name, piece)
                times: list[Any] = found.times_ms or [None] * len(found.records)
                yield from zip(found.records, times, strict=True)
        finally:
            reader.close()


_json_value = msgspec.json.decode


class _BadLine(ValueError):
    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number


def _lines(data: bytes) -> list[str]:
    lines = data.decode("utf-8", "replace").split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines] if b"\r" in data else lines


def _csv_rows(lines: list[str], delimiter: str) -> list[list[str]]:
    """A row for each line. Raises csv.Error if there is one that is no whole row."""
    # One line more: a quoted field that is open at the end would take it in.
    rows = list(csv.reader([*lines, "end"], delimiter=delimiter))
    if len(rows) != len(lines) + 1:
        raise csv.Error("a quoted field goes over the end of its line; a record must be one line")
    rows.pop()
    return rows


def _json_line(number: int, line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise _BadLine(number, f"no JSON ({error}): {line[:200]!r}") from None


def _table(data: bytes) -> Any:
    arrow = parquet_library()
    with arrow.ipc.open_stream(data) as reader:
        return reader.read_all()


def _shape(schema: Schema, is_csv: bool) -> Callable[[Any], dict[str, Any]]:
    """A record to exactly the fields of the schema."""
    converters = [(name, _CONVERT[kind], is_csv and kind != "str") for name, kind in schema]

    def shape(record: Any) -> dict[str, Any]:
        get = record.get
        made = {}
        for name, convert, empty_is_none in converters:
            value = get(name)
            if value is not None:
                value = None if empty_is_none and value == "" else convert(value)
            made[name] = value
        return made

    return shape


def _as_str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no str")
    return value


def _as_int(value: Any) -> int:
    if isinstance(value, str):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError(f"{value!r} is no int")


def _as_float(value: Any) -> float:
    if isinstance(value, str | float) or (isinstance(value, int) and not isinstance(value, bool)):
        return float(value)
    raise TypeError(f"{value!r} is no float")


def _as_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    known = {"true": True, "1": True, "false": False, "0": False}
    if isinstance(value, str) and value.lower() in known:
        return known[value.lower()]
    raise TypeError(f"{value!r} is no bool")


_CONVERT: dict[str, Callable[[Any], Any]] = {"str": _as_str, "int": _as_int, "float": _as_float, "bool": _as_bool}
