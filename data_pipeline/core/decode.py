"""A batch of a source's rows to records and event times, in a Python worker. Pure: columns in, lists out.

Lines are joined again and decoded by ``heronry.streamlet.reading``, as online, so a record is the same
on both sides. When a batch cannot be decoded it is tried row by row, to name the row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from data_pipeline.core.failure import RecordFailed, failed
from heronry.connect.polling import Range
from heronry.streamlet.aside import MAX_FAILED_ON_CHARACTERS, letter
from heronry.streamlet.decoding import Decoder
from heronry.streamlet.endpoints import FileSource, SequenceSource, Source
from heronry.streamlet.errors import shown
from heronry.streamlet.extract import column
from heronry.streamlet.packed import ReadError
from heronry.streamlet.partitions import Folders
from heronry.streamlet.program import EventTime
from heronry.streamlet.reading import LINES, Piece
from heronry.streamlet.windows import to_ms

_SPECIAL = re.compile(r"[.`%]")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
Columns = dict[str, Any]  # lists by name, as Spark hands them over; the file's may be made when it is asked for


@dataclass(frozen=True)
class Decoding:
    """How rows of one source become records. ``wants_time``: event times are needed behind it, or for the range."""

    step: str
    source: Source[Any]
    event_time: EventTime | None
    wants_time: bool
    from_ms: int | None = None
    to_ms: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()  # file → first line, of csv
    ranges: tuple[Range, ...] = ()  # of a server: what the numbers that come stand for

    def decode(self, columns: Columns) -> tuple[list[Any], list[int] | None, Callable[[int], str]]:
        """Records, their times, and a function that names the file of record i. Raises RecordFailed."""
        try:
            records, times, rows = self._decoded(columns)
        except Exception as error:
            raise self._located(columns, error) from error
        files = columns.get("file")
        return records, times, lambda index: plain_path(files[rows[index]]) if files else ""

    def singly(self, columns: Columns) -> tuple[list[Any], list[int] | None, list[str], list[bytes]]:
        """Records, their times and places, and the letters of those that cannot be read (``streamlet/aside.py``)."""
        try:
            records, times, rows = self._decoded(columns)
        except Exception:
            pass
        else:
            return records, times, [_place(columns, row) for row in rows], []
        records, times, places, letters = [], [], [], []
        for row in range(len(next(iter(columns.values())))):
            one = {name: values[row : row + 1] for name, values in columns.items()}
            place = _place(columns, row)
            try:
                found, at, kept = self._decoded(one)
            except Exception as error:
                letters.append(self._letter(one, place, error))
                continue
            records += found
            times += at or []
            places += [place] * len(kept)
        return records, times if self.wants_time else None, places, letters

    def _letter(self, one: Columns, place: str, error: Exception) -> bytes:
        record: Any
        try:
            (record,) = self._records(one)[0]  # it can be read: it has no event time
        except Exception:
            record = next(one[name][0] for name in ("value", "record", "id") if name in one)
            record = record.decode("utf-8", "replace") + "\n" if isinstance(record, bytes) else record
        if isinstance(error, ReadError):
            error = ReadError(f"{place}: {error.reason}")  # the decoder knows neither the file nor the line
        return letter(self.step, place, record, shown(record, MAX_FAILED_ON_CHARACTERS), error)

    def _decoded(self, columns: Columns) -> tuple[list[Any], list[int] | None, Sequence[int]]:
        """Records, their times, and the row each is from."""
        records, rows = self._records(columns)
        times = self._times(records, columns) if self.wants_time else None
        if times is not None and (self.from_ms is not None or self.to_ms is not None):
            kept = [i for i, time in enumerate(times) if self._in_range(time)]
            records, times, rows = [records[i] for i in kept], [times[i] for i in kept], [rows[i] for i in kept]
        return records, times, rows

    def _in_range(self, time: int) -> bool:
        return (self.from_ms is None or time >= self.from_ms) and (self.to_ms is None or time < self.to_ms)

    def _records(self, columns: Columns) -> tuple[list[Any], Sequence[int]]:
        """The records, and the row each is from. Raises ReadError, TypeError."""
        records, rows = self._of_rows(columns)
        if not isinstance(self.source, FileSource) or not self.source.partitions:
            return records, rows
        folders, files = Folders(self.source.partitions), columns["file"][:]
        placed = [folders.put(record, plain_path(files[row])) for record, row in zip(records, rows, strict=True)]
        return placed, rows

    def _of_rows(self, columns: Columns) -> tuple[list[Any], Sequence[int]]:
        """The same, as they are in the rows."""
        for error in columns.get("unreadable", ()):  # there only where a row cannot be read
            if error is not None:
                raise error
        if "record" in columns:  # of Parquet and servers, or lines that need no decoding
            return columns["record"], range(len(columns["record"]))
        if isinstance(self.source, SequenceSource):
            numbers, make = columns["id"], self.source.make
            return (numbers if make is None else [make(number) for number in numbers]), range(len(numbers))
        assert isinstance(self.source, FileSource)
        if self.source.format in LINES:
            return self._lines(columns, Decoder(replace(self.source, partitions=())))
        return list(map(msgspec.json.decode, columns["value"])), range(len(columns["value"]))

    def _lines(self, columns: Columns, decoder: Decoder) -> tuple[list[Any], Sequence[int]]:
        lines = columns["value"]
        if self.source.kind == "files" and self.source.format != "csv":
            found = decoder.decode("", Piece(0, b"", _joined(lines), 0, 0))
            return found.records, found.numbers
        headers = dict(self.headers)
        records: list[Any] = []
        rows: list[int] = []
        for file, first, end in _runs(columns["file"]):
            begins = _header_at(columns, first)
            found = decoder.decode("", Piece(begins, headers[plain_path(file)], _joined(lines[begins:end]), 0, 0))
            records += found.records
            rows += found.numbers
        return records, rows

    def _times(self, records: list[Any], columns: Columns) -> list[int]:
        if self.event_time is not None:
            unit = self.event_time.unit
            return [to_ms(value, unit) for value in column(self.event_time.extractor, records)]
        times: list[int] = columns["event_time"]
        return times

    def _located(self, columns: Columns, error: Exception) -> RecordFailed:
        count = len(next(iter(columns.values())))
        for row in range(count):
            one = {name: values[row : row + 1] for name, values in columns.items()}
            value = next(one[name][0] for name in ("value", "record", "id") if name in one)
            try:
                records, _ = self._records(one)
                if self.wants_time:
                    self._times(records, one)
            except Exception as cause:  # what decode or the user's function raises
                if isinstance(cause, ReadError):
                    cause = ReadError(cause.reason)  # the decoder does not know the file, nor the line in it
                return failed(self.step, value, cause, plain_path(one["file"][0]) if "file" in one else "")
        return failed(self.step, "(not found: the same rows pass when they are tried one by one)", error)


def _place(columns: Columns, row: int) -> str:
    """The file of a row, and its line where that is known."""
    file = plain_path(columns["file"][row]) if "file" in columns else ""
    return f"{file}, line {columns['number'][row] + 1}" if "number" in columns else file


def shipped_name(name: str) -> str:
    """Return a column's name as a Python stage can take it; PySpark takes a dot for a field of a column."""
    return quote(name, safe="").replace(".", "%2E") if _SPECIAL.search(name) else name


def own_name(name: str) -> str:
    """Return the name that ``shipped_name`` was given."""
    return unquote(name)


def plain_path(url: str) -> str:
    """A file as people write it: Spark quotes characters, and has ``file:`` with one slash, or three.

    What is no URL stays as it is, whatever characters it has.
    """
    if not _URL.match(url):
        return url
    found = unquote(url)
    return "/" + found.removeprefix("file:").lstrip("/") if found.startswith("file:") else found


def _joined(lines: list[bytes]) -> bytes:
    return b"\n".join(lines) + b"\n" if lines else b""


def _runs(files: list[str]) -> Iterator[tuple[str, int, int]]:
    """(file, first row, row behind the last) of neighbours from one file."""
    first = 0
    for file, rows in groupby(files):
        end = first + sum(1 for _ in rows)
        yield file, first, end
        first = end


def _header_at(columns: Columns, first: int) -> int:
    """The first row that is data: a csv's first line, which Spark hands over with ``is_first``, is its header."""
    return first + 1 if columns["is_first"][first] else first
