"""Decoding of a batch of a source's rows into records and event times, in a Python worker. Pure: columns in, lists out.

Lines are joined again and decoded by ``heronry.streamlet.reading``, the decoder of the online engine, so a record is
the same in both. When a batch cannot be decoded, it is tried row by row to find the invalid row.
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
from heronry.streamlet.aside import MAX_FAILED_ON_CHARACTERS, failure_line
from heronry.streamlet.decoding import Decoder
from heronry.streamlet.endpoints import FileSource, SequenceSource, Source
from heronry.streamlet.errors import shown
from heronry.streamlet.extract import column
from heronry.streamlet.packed import ReadError
from heronry.streamlet.partitions import Folders
from heronry.streamlet.program import EventTime
from heronry.streamlet.reading import LINES, FilePiece
from heronry.streamlet.windows import to_ms

_SPECIAL = re.compile(r"[.`%]")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
Columns = dict[str, Any]  # lists by name, as Spark passes them; the list of files may be lazy


@dataclass(frozen=True)
class Decoding:
    """Decoder of the rows of one source into records.

    ``wants_time`` is True if downstream steps, or the range of times, need event times.
    """

    step: str
    source: Source[Any]
    event_time: EventTime | None
    wants_time: bool
    from_ms: int | None = None
    to_ms: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()  # CSV file → first line
    ranges: tuple[Range, ...] = ()  # of a server: the ranges that the incoming numbers index

    def decode(self, columns: Columns) -> tuple[list[Any], list[int] | None, Callable[[int], str]]:
        """Return the records, their event times in ms, and a function that names the file of record i.

        Raises:
            RecordFailed: A row cannot be decoded, or has an invalid event time.
        """
        try:
            records, times, rows = self._decoded(columns)
        except Exception as error:
            raise self._located(columns, error) from error
        files = columns.get("file")
        return records, times, lambda index: plain_path(files[rows[index]]) if files else ""

    def singly(self, columns: Columns) -> tuple[list[Any], list[int] | None, list[str], list[bytes]]:
        """Return the records, their times and places, and letters for the unreadable ones (``streamlet/aside.py``)."""
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
            (record,) = self._records(one)[0]  # the record is readable, so its event time is missing
        except Exception:
            record = next(one[name][0] for name in ("value", "record", "id") if name in one)
            record = record.decode("utf-8", "replace") + "\n" if isinstance(record, bytes) else record
        if isinstance(error, ReadError):
            error = ReadError(f"{place}: {error.reason}")  # the decoder knows neither the file nor the line
        return failure_line(self.step, place, record, shown(record, MAX_FAILED_ON_CHARACTERS), error)

    def _decoded(self, columns: Columns) -> tuple[list[Any], list[int] | None, Sequence[int]]:
        """Return the records, their times, and the row of each."""
        records, rows = self._records(columns)
        times = self._times(records, columns) if self.wants_time else None
        if times is not None and (self.from_ms is not None or self.to_ms is not None):
            in_range = [i for i, time in enumerate(times) if self._in_range(time)]
            records, times, rows = (
                [records[i] for i in in_range],
                [times[i] for i in in_range],
                [rows[i] for i in in_range],
            )
        return records, times, rows

    def _in_range(self, time: int) -> bool:
        return (self.from_ms is None or time >= self.from_ms) and (self.to_ms is None or time < self.to_ms)

    def _records(self, columns: Columns) -> tuple[list[Any], Sequence[int]]:
        """Return the records with the fields of their folders, and the row of each. Raises ReadError or TypeError."""
        records, rows = self._of_rows(columns)
        if not isinstance(self.source, FileSource) or not self.source.partitions:
            return records, rows
        folders, files = Folders(self.source.partitions), columns["file"][:]
        placed = [folders.put(record, plain_path(files[row])) for record, row in zip(records, rows, strict=True)]
        return placed, rows

    def _of_rows(self, columns: Columns) -> tuple[list[Any], Sequence[int]]:
        """Return the records as the rows hold them, and the row of each. Raises ReadError or TypeError."""
        for error in columns.get("unreadable", ()):  # the column exists only where a row cannot be read
            if error is not None:
                raise error
        if "record" in columns:  # from Parquet and servers, or lines without decoding
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
            found = decoder.decode("", FilePiece(0, b"", _joined(lines), 0, 0))
            return found.records, found.numbers
        headers = dict(self.headers)
        records: list[Any] = []
        rows: list[int] = []
        for file, first, end in _runs(columns["file"]):
            begins = _header_at(columns, first)
            found = decoder.decode("", FilePiece(begins, headers[plain_path(file)], _joined(lines[begins:end]), 0, 0))
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
            except Exception as cause:  # raised by the decoder or the user's function
                if isinstance(cause, ReadError):
                    cause = ReadError(cause.reason)  # the decoder knows neither the file nor the line in it
                return failed(self.step, value, cause, plain_path(one["file"][0]) if "file" in one else "")
        return failed(self.step, "(not found: the same rows pass when they are tried one by one)", error)


def _place(columns: Columns, row: int) -> str:
    """Return the file of a row, and its line where that is known."""
    file = plain_path(columns["file"][row]) if "file" in columns else ""
    return f"{file}, line {columns['number'][row] + 1}" if "number" in columns else file


def shipped_name(name: str) -> str:
    """Return a column's name in a form that a Python stage accepts; PySpark takes a dot for a field of a column."""
    return quote(name, safe="").replace(".", "%2E") if _SPECIAL.search(name) else name


def own_name(name: str) -> str:
    """Return the original name of a column from the result of ``shipped_name``."""
    return unquote(name)


def plain_path(url: str) -> str:
    """Return a file as users write it, without Spark's quoting and its one or three slashes after ``file:``.

    A text that is not a URL is returned unchanged.
    """
    if not _URL.match(url):
        return url
    path = unquote(url)
    return "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path


def _joined(lines: list[bytes]) -> bytes:
    return b"\n".join(lines) + b"\n" if lines else b""


def _runs(files: list[str]) -> Iterator[tuple[str, int, int]]:
    """Yield (file, first row, row after the last) for runs of neighbouring rows from one file."""
    first = 0
    for file, rows in groupby(files):
        end = first + sum(1 for _ in rows)
        yield file, first, end
        first = end


def _header_at(columns: Columns, first: int) -> int:
    """Return the first row of data: the first line of a CSV file, marked by Spark with ``is_first``, is its header."""
    return first + 1 if columns["is_first"][first] else first
