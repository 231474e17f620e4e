"""Writers of files that are buffered in memory from one checkpoint to the next.

This applies to Parquet, and to every format in folders by the values of fields (``partition_by``). A *page* is the
buffer of one future file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from heronry.streamlet.columns import each
from heronry.streamlet.endpoints import FileSink
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.layout import folder_of
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.lines import Lines, lines_of
from heronry.streamlet.online.writers import StagedWriter, TaskOf
from heronry.streamlet.program import SinkStep
from heronry.streamlet.reading import parquet_library
from heronry.streamlet.records import named_fields, table_of
from heronry.streamlet.schema import RecordSchema, arrow_schema


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
