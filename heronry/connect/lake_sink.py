"""The base of sinks of tables of lakes: rows are spooled as Parquet (``spool.py``), and added to the table with their
checkpoint (``lake.py``). What a format has of its own is how a table is opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from heronry.api.state import Checkpoint
from heronry.api.tuples import Tuple
from heronry.connect.lake import (
    COMPRESSION,
    STAGED,
    Shape,
    Table,
    Unfit,
    add_once,
    arrow_library,
    data_name,
    signed,
    writer_name,
)
from heronry.connect.marks import life_of
from heronry.connect.settings import BadConfig, ConnectError, Option, require, step_name, whole
from heronry.connect.spool import SpoolSink, cannot_hold

ROWS_A_GROUP = 32_768


class LakeSink(SpoolSink):
    """Derive; say ``folder_option`` (the table's folder), ``extra`` and ``attempts_option``, write ``open_table``."""

    suffix = ".parquet"
    extra: ClassVar[str]
    attempts_option: ClassVar[Option]

    def open_table(self) -> Table:
        """As it is now. Raises ConnectError, also for one that cannot be written."""
        raise NotImplementedError(f"{type(self).__name__} has no open_table(self)")

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Raises BadConfig, ConnectError."""
        require(self, config)
        self._root = Path(self.folder_option.of(config))
        self._tries = self.attempts_option.of(config)
        table = self.open_table()
        self._shape = Shape(table.schema, table.name)
        for fields in _inputs(context):
            problem = self._shape.problem(fields)
            if problem:
                raise BadConfig(f"{type(self).__name__}: {problem}")
        super().initialize(config, context)
        step, life = step_name(context), life_of(context.get_topology_id())
        self._schema = signed(self._shape.schema, writer_name(step, life, self._task))
        self._rows: list[list[Any]] = []
        self._writer: Any = None

    def spool_folder(self, config: dict[str, Any]) -> Path:
        """Below the table, out of its readers' sight."""
        return self._root / STAGED

    def process(self, tup: Tuple) -> None:
        """Take it. Raises ConnectError for what the table cannot hold, and when it cannot be written."""
        try:
            self._rows.append(self._shape.row(dict(zip(tup.fields, tup.values, strict=True))))
        except Unfit as error:
            if error.field:
                raise cannot_hold(self, error.field, error.value, f"and {error.why}") from None
            raise ConnectError(f"{type(self).__name__}: {error}") from None
        if len(self._rows) >= ROWS_A_GROUP:
            self._write_group()

    def prepare(self, checkpoint: Checkpoint) -> str | None:
        """The rows are on disk, under a hidden name. Raises ConnectError."""
        if self._rows:
            self._write_group()
        return super().prepare(checkpoint)

    def begin(self, file: BinaryIO) -> None:
        """The footer will say whose rows they are."""
        _, parquet = arrow_library(type(self).__name__, self.extra)
        self._writer = parquet.ParquetWriter(file, self._schema, compression=COMPRESSION)

    def finish(self, file: BinaryIO) -> None:
        """The footer."""
        self._writer.close()
        self._writer = None

    def publish(self, hidden: Path, whole: Path) -> None:
        """Add it to the table, once. Raises FileNotFoundError, ConnectError."""
        token = whole.name.removeprefix(f"{self._step}-").removesuffix(self.suffix)
        checkpoint = int(token.split("-")[1])
        add_once(self.open_table, hidden, self._root / data_name(self._step, token), checkpoint, self._tries)

    def close(self) -> None:
        """What was not prepared is not kept."""
        self._writer = None
        super().close()

    def _write_group(self) -> None:
        rows, self._rows = self._rows, []
        with self.writing():
            self._writer.write_table(self._shape.table(rows).cast(self._schema))


def _inputs(context: Any) -> Iterator[tuple[str, ...]]:
    for source in context.get_sources():
        yield tuple(context.get_fields(*source))


def attempts_of(system: str) -> Option:
    """How often a sink tries."""
    return whole(f"user.{system}.attempts", "how often a commit is tried when others write at the same time", 6)
