"""Decoder of the bytes of a file's pieces. Shared by the reference evaluator, the online engine and the batch engine.

Theory of operation. A piece (reading.py) is decoded as a whole, in C where possible: one pass for all lines. If that
fails, it is decoded line by line, to identify the invalid one.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import msgspec

from heronry.connect.arrow_times import columns_in_utc
from heronry.streamlet.endpoints import FileSource, Schema
from heronry.streamlet.errors import shown
from heronry.streamlet.packed import ReadError
from heronry.streamlet.partitions import Folders
from heronry.streamlet.reading import (
    LINES,
    FilePiece,
    Records,
    header_names,
    listing_of,
    open_reader,
    parquet_library,
)
from heronry.streamlet.servers import ServerSource
from heronry.streamlet.trees import tree_of, whole_name

_MAX_FIELD = 2**31 - 1  # limit of characters in a csv field; Python's default limit is 131072
_json_value = msgspec.json.decode
NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # the second is raised for text that is not UTF-8


class Decoder:
    """Decoder of pieces of a file source."""

    def __init__(self, source: FileSource[Any]) -> None:
        self._decode: Callable[[FilePiece], Records] = getattr(self, f"_{source.format}")
        self._source = source
        self._folders = Folders(source.partitions) if source.partitions else None
        self._shape = _shape(source.schema, source.format == "csv") if source.schema else None
        if source.format == "csv":
            csv.field_size_limit(max(csv.field_size_limit(), _MAX_FIELD))

    def decode(self, name: str, piece: FilePiece) -> Records:
        """Return the records of a piece.

        Raises:
            ReadError: A record cannot be decoded. The message names the file and the line.
        """
        where = whole_name(self._source, name)
        try:
            records = self._decode(piece)
            return records if self._folders is None else self._placed(records, self._folders, where)
        except _BadLine as error:
            line = f", line {error.number + 1}" if self._source.format in LINES else f", row {error.number}"
            raise ReadError(f"{where}{line}: {error}", str(error)) from None
        except (ReadError, MemoryError, ImportError):
            raise
        except Exception as error:
            raise self._located(name, piece, error) from error

    def _located(self, name: str, piece: FilePiece, error: Exception) -> ReadError:
        """Return the error for the first record of a piece that cannot be decoded."""
        parts = singly(self._source, piece)
        if len(parts) == 1:
            said = f"{type(error).__name__}: {error}: {shown(decode_content(self._source, piece))}"
            return ReadError(f"{place_of(self._source, name, piece.first)}: {said}", said)
        for part in parts:
            try:
                self.decode(name, part)
            except ReadError as found:
                return found
        said = f"{type(error).__name__}: {error} (each of its records can be read separately)"
        return ReadError(f"{place_of(self._source, name, piece.first)} and those behind it: {said}", said)

    def _placed(self, records: Records, folders: Folders, path: str) -> Records:
        """Return the records with the fields of their folder added."""
        try:
            return records._replace(records=[folders.put(record, path) for record in records.records])
        except TypeError as error:
            for number, record in zip(records.numbers, records.records, strict=True):
                if not isinstance(record, dict):
                    raise _BadLine(number, f"{error}: {record!r}") from None
            raise

    def _text(self, piece: FilePiece) -> Records:
        lines = _lines(piece.data)
        return Records(lines, range(piece.first, piece.first + len(lines)))

    def _json(self, piece: FilePiece) -> Records:
        lines = piece.data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        numbers: range | list[int] = range(piece.first, piece.first + len(lines))
        if not all(lines) or any(map(bytes.isspace, lines)):
            numbered_lines = [(number, line) for number, line in zip(numbers, lines, strict=True) if line.strip()]
            numbers, lines = [number for number, _ in numbered_lines], [line for _, line in numbered_lines]
        try:
            records = list(map(_json_value, lines))
        except NO_JSON:
            records = [_json_line(number, line) for number, line in zip(numbers, lines, strict=True)]
        return Records(self._shaped(records, numbers), numbers)

    def _csv(self, piece: FilePiece) -> Records:
        lines = _lines(piece.data)
        delimiter = self._source.delimiter
        try:
            names = header_names(piece.header, delimiter)
        except ValueError as error:
            raise _BadLine(0, str(error)) from None
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

    def _parquet(self, piece: FilePiece) -> Records:
        records = columns_in_utc(_table(piece.data)).to_pylist()
        return Records(records, range(piece.first, piece.first + len(records)))

    _orc = _parquet

    def _archive(self, piece: FilePiece) -> Records:
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


def read_all(source: FileSource[Any]) -> Iterator[tuple[Any, int | None]]:
    """Yield every record of a finite source, in order, with its event time if the file has it.

    Raises:
        ReadError: A file cannot be read or decoded.
        OSError: A file cannot be opened.
        ConnectError: A store cannot be reached.
    """
    decoder = Decoder(source)
    for name, piece in _pieces(source):
        records = decoder.decode(name, piece)
        times: list[Any] = records.times_ms or [None] * len(records.records)
        yield from zip(records.records, times, strict=True)


def _pieces(source: FileSource[Any]) -> Iterator[tuple[str, FilePiece]]:
    """Yield all pieces of all files that exist at the start, with the name of their file."""
    with closing(tree_of(source)) as tree:
        listing = listing_of(source, tree)
        for name in sorted(listing):
            version = listing[name].version
            with closing(open_reader(source, name, tree=tree, version=version)) as reader:
                while (piece := reader.read()) is not None:
                    yield name, piece
            if version:
                tree.check(name, version)


UNREADABLE = (ValueError, msgspec.MsgspecError)  # errors that a decoder raises


def singly(source: FileSource[Any] | ServerSource, piece: FilePiece) -> list[FilePiece]:
    """Return the lines or rows of a piece, each as a piece of its own."""
    if isinstance(source, ServerSource):
        return [piece]
    if source.format not in LINES:
        table = _table(piece.data)
        return [FilePiece(piece.first + n, b"", _stream_of(table.slice(n, 1)), 0, 0) for n in range(table.num_rows)]
    lines = piece.data.split(b"\n")[: -1 if piece.data.endswith(b"\n") else None]
    return [FilePiece(piece.first + n, piece.header, line + b"\n", 0, 0) for n, line in enumerate(lines)]


def decode_content(source: FileSource[Any] | ServerSource, piece: FilePiece) -> Any:
    """Return the readable content of a piece of one record: its line, or the cells of its row."""
    if isinstance(source, ServerSource) or source.format in LINES:
        return piece.data.decode("utf-8", "replace")
    return cells_of(_table(piece.data))


def cells_of(row: Any) -> dict[str, Any]:
    """Return the cells of the only row of a table or batch, in readable form."""
    return {name: _cell(column) for name, column in zip(row.schema.names, row.columns, strict=True)}


def _cell(column: Any) -> Any:
    """Return the only value of a column. If Python cannot represent it, return the number in the file."""
    try:
        return column[0].as_py()
    except (ValueError, OverflowError):
        try:
            return f"{column.cast('int64')[0].as_py()} ({column.type})"
        except Exception:
            return f"({column.type})"


def _stream_of(table: Any) -> bytes:
    arrow = parquet_library()
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def place_of(source: FileSource[Any] | ServerSource, name: str, number: int) -> str:
    """Return the place of a record for messages, counted from 1."""
    if isinstance(source, ServerSource):
        return source.place_of(name, number)
    return f"{whole_name(source, name)}, {'line' if source.format in LINES else 'row'} {number + 1}"


def read_singly(
    source: FileSource[Any], aside: Callable[[str, Any, Exception], None]
) -> Iterator[tuple[Any, int | None, str]]:
    """Yield what ``read_all`` yields, with the place of each record.

    A record that cannot be read is passed to ``aside``, with its place.
    """
    decoder = Decoder(source)
    for name, piece in _pieces(source):
        for one in singly(source, piece):
            try:
                records = decoder.decode(name, one)
            except UNREADABLE as error:
                aside(place_of(source, name, one.first), decode_content(source, one), error)
                continue
            times: list[Any] = records.times_ms or [None] * len(records.records)
            for record, time_ms, number in zip(records.records, times, records.numbers, strict=True):
                yield record, time_ms, place_of(source, name, number)


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
    """Return a row for each line.

    Raises:
        csv.Error: A line is not a whole row.
    """
    # One line is added: a quoted field that is open at the end would swallow it.
    rows = list(csv.reader([*lines, "end"], delimiter=delimiter))
    if len(rows) != len(lines) + 1:
        raise csv.Error("a quoted field goes over the end of its line; a record must be one line")
    rows.pop()
    return rows


def _json_line(number: int, line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except NO_JSON as error:
        raise _BadLine(number, f"no JSON ({error}): {line[:200]!r}") from None


def _table(data: bytes) -> Any:
    arrow = parquet_library()
    with arrow.ipc.open_stream(data) as reader:
        return reader.read_all()


def _shape(schema: Schema, is_csv: bool) -> Callable[[Any], dict[str, Any]]:
    """Return a function that converts a record to exactly the fields of the schema."""
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
        raise TypeError(f"{value!r} is not a str")
    return value


def _as_int(value: Any) -> int:
    if isinstance(value, str):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError(f"{value!r} is not an int")


def _as_float(value: Any) -> float:
    if isinstance(value, str | float) or (isinstance(value, int) and not isinstance(value, bool)):
        return float(value)
    raise TypeError(f"{value!r} is not a float")


def _as_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    known = {"true": True, "1": True, "false": False, "0": False}
    if isinstance(value, str) and value.lower() in known:
        return known[value.lower()]
    raise TypeError(f"{value!r} is not a bool")


_CONVERT: dict[str, Callable[[Any], Any]] = {"str": _as_str, "int": _as_int, "float": _as_float, "bool": _as_bool}
