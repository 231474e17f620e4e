"""Writers of files that are buffered in memory from one checkpoint to the next.

This applies to Parquet, and to every format in folders by the values of fields (``partition_by``). A *page* is the
buffer of one future file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from heronry.streamlet.columns import each, times_of
from heronry.streamlet.endpoints import ArchiveSink, FileSink
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.lines import Lines, lines_of
from heronry.streamlet.online.writers import StagedWriter, TaskOf
from heronry.streamlet.partitions import folder_of
from heronry.streamlet.program import EventTime, SinkStep
from heronry.streamlet.reading import ARCHIVE_COLUMNS, parquet_library
from heronry.streamlet.records import named_fields, table_of
from heronry.streamlet.schema import RecordSchema, arrow_schema
from heronry.streamlet.windows import HOUR_MS, EventTimeError, hour_folder


class Page(Protocol):
    """Interface of the buffer of one file."""

    suffix: str

    def encode(self, records: list[Any]) -> Any:
        """Return these records in the form that ``take`` expects.

        Raises:
            StepFailed: A record cannot be written.
        """

    def take(self, encoded: Any) -> None:
        """Add encoded records to the page."""

    def write(self, path: Path) -> None:
        """Write everything that was taken to a file."""


class ParquetPage:
    """Page of a Parquet file.

    ``_schema`` covers all buffered records. If the records declare a schema, it is that one.
    """

    suffix = ".parquet"

    def __init__(self, step: str, schema: RecordSchema | None = None) -> None:
        self._name = step
        self._arrow = parquet_library()
        self._tables: list[Any] = []
        self._declared = arrow_schema(schema) if schema is not None else None
        self._schema = self._declared or self._arrow.schema([])

    def encode(self, records: list[Any]) -> tuple[Any, Any]:
        """Return a table of the records, and the schema of the file including it.

        Raises:
            StepFailed: A record cannot be written.
        """
        rows = each(self._name, named_fields, records)
        try:
            return self._table(rows, self._schema)
        except Exception as error:
            schema = self._schema
            for row in rows:
                try:
                    _, schema = self._table([row], schema)
                except Exception as cause:
                    raise StepFailed(self._name, row) from cause
            raise StepFailed(self._name, rows[0]) from error

    def _table(self, records: list[Any], schema: Any) -> tuple[Any, Any]:
        if self._declared is not None:
            return self._arrow.Table.from_pylist(records, schema=self._declared), self._declared
        table = table_of(records)
        return table, self._arrow.unify_schemas([schema, table.schema], promote_options="permissive")

    def take(self, encoded: tuple[Any, Any]) -> None:
        """Add the table to the page."""
        table, self._schema = encoded
        self._tables.append(table)

    def write(self, path: Path) -> None:
        """Write all tables to a file."""
        table = self._arrow.concat_tables(self._tables, promote_options="permissive")
        self._arrow.parquet.write_table(table, path, compression="zstd")


class LinesPage:
    """Page of a text file: its lines, and the head of the file."""

    def __init__(self, lines: Lines) -> None:
        self.suffix, self._lines = lines.suffix, lines
        self._taken: list[bytes] = []

    def encode(self, records: list[Any]) -> bytes:
        """Return the records as lines.

        Raises:
            StepFailed: A record cannot be written.
        """
        return self._lines.encode(records)

    def take(self, encoded: bytes) -> None:
        """Add the lines to the page."""
        self._taken.append(encoded)

    def write(self, path: Path) -> None:
        """Write the head and all lines to a file."""
        path.write_bytes(b"".join([self._lines.head, *self._taken]))


Taken = list[tuple[str, Page, Any]]  # folder, its page, the encoded records


class PagedWriter(StagedWriter):
    """Writer with a page for each folder. Without ``partition_by`` the only folder is the sink's."""

    def __init__(self, step: SinkStep, sink: FileSink, task: TaskOf, schema: RecordSchema | None = None) -> None:
        super().__init__(step.name, Path(sink.path), task)
        self._fields = sink.partition_by
        self._pages: dict[str, Page] = {}
        self._begin: Callable[[], Page] = lambda: ParquetPage(step.name, schema)
        if sink.format == "parquet":
            self._begin()  # reports a missing library before the first record
        else:
            self._begin = lambda: LinesPage(lines_of(step.name, sink))

    def encode(self, block: Block) -> Taken:
        """Return the records by folder, encoded for their pages.

        Raises:
            StepFailed: A record cannot be written.
        """
        groups: dict[str, list[Any]] = {}
        if not self._fields:
            groups[""] = block.records
        else:
            folders = each(self._name, lambda record: folder_of(record, self._fields), block.records)
            for folder, record in zip(folders, block.records, strict=True):
                groups.setdefault(folder, []).append(record)
        pages = {folder: self._pages.get(folder) or self._begin() for folder in groups}
        return [(folder, pages[folder], pages[folder].encode(records)) for folder, records in groups.items()]

    def take(self, encoded: Taken) -> None:
        """Keep encoded records for the next checkpoint."""
        for folder, page, ready in encoded:
            self._pages.setdefault(folder, page).take(ready)

    def _flush(self, name: str) -> None:
        for folder, page in self._pages.items():
            page.write(self._staging.file(Path(folder, name + page.suffix)))
        self._pages = {}


class ArchiveWriter(StagedWriter):
    """Writer of columns by event hour, buffered from one checkpoint to the next. See ``endpoints.ArchiveSink``."""

    marks_end = False  # readers take the files that are there

    def __init__(self, step: SinkStep, sink: ArchiveSink, task: TaskOf) -> None:
        super().__init__(step.name, Path(sink.path), task)
        self._arrow = parquet_library()
        self._time = None if sink.event_time is None else EventTime(sink.event_time, sink.unit)
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder().decode
        self._hours: dict[str, list[tuple[str, str, int, str]]] = {}

    def encode(self, block: Block) -> list[tuple[str, str, int, str]]:
        """Return the records as rows.

        Raises:
            StepFailed: A record has no valid event time, or does not survive a round trip through JSON.
        """
        times = block.times_ms if self._time is None else times_of(self._name, self._time, block.records)
        assert times is not None
        assert block.ids is not None
        texts = list(map(self._text, block.records))
        for hour in {time_ms // HOUR_MS for time_ms in times}:
            try:
                hour_folder(hour * HOUR_MS)
            except EventTimeError as error:
                first = next(n for n, time_ms in enumerate(times) if time_ms // HOUR_MS == hour)
                raise StepFailed(self._name, block.records[first]) from error
        return [(*named, time_ms, text) for named, time_ms, text in zip(block.ids, times, texts, strict=True)]

    def take(self, rows: list[tuple[str, str, int, str]]) -> None:
        """Keep the rows, by hour, for the next checkpoint."""
        folders: dict[int, str] = {}
        for message, index, time_ms, text in rows:
            hour = time_ms // HOUR_MS
            folder = folders.get(hour)
            if folder is None:
                folder = folders[hour] = hour_folder(time_ms)
            self._hours.setdefault(folder, []).append((message, index, time_ms, text))

    def _text(self, record: Any) -> str:
        try:
            data = self._encode(record)
            if self._decode(data) != record:
                raise TypeError(
                    "JSON does not round-trip it (tuples, NaN, keys other than str, dates): map it to lists, dicts, "
                    "str and numbers before the archive"
                )
        except Exception as error:
            raise StepFailed(self._name, record) from error
        return data.decode()

    def _flush(self, name: str) -> None:
        """Write one file for each hour."""
        arrow = self._arrow
        kinds = (arrow.string(), arrow.string(), arrow.int64(), arrow.string())
        for folder, rows in self._hours.items():
            columns = [arrow.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
            path = self._staging.file(f"{folder}/{name}.parquet")
            arrow.parquet.write_table(arrow.table(columns, names=list(ARCHIVE_COLUMNS)), path, compression="zstd")
        self._hours = {}
