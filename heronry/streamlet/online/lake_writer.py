"""The writer of tables of lakes: rows are gathered in memory from one checkpoint to the next, staged below the table as
every file is (staging.py), and added to it with the checkpoint (``connect/lake.py``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from heronry.api.state import Checkpoint
from heronry.connect.delta import EXTRA, DeltaTable
from heronry.connect.lake import (
    COMPRESSION,
    STAGED,
    Shape,
    Table,
    add_once,
    arrow_library,
    data_name,
    signed,
    writer_name,
)
from heronry.streamlet.columns import each
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.writers import StagedWriter, TaskOf
from heronry.streamlet.records import named_fields

TRIES = 6
ROWS = "rows.parquet"  # in the folder of a token


def writable_delta(path: str) -> DeltaTable:
    """Raises ConnectError."""
    return DeltaTable(path, "to_delta").writable()


class LakeWriter(StagedWriter):
    """``root``: the table's folder; ``open_table``: the table as it is now."""

    def __init__(self, step: str, root: Path, task: TaskOf, open_table: Callable[[], Table]) -> None:
        table = open_table()
        self._shape = Shape(table.schema, table.name)
        own = root / STAGED / task.topology.replace("%", "%25").replace("/", "%2F")
        own.mkdir(parents=True, exist_ok=True)
        super().__init__(step, own, task)
        self._table, self._open_table = root, open_table
        self._step = f"{task.topology}.{step}"
        self._tables: list[Any] = []
        self._parquet: Any = arrow_library("to_delta", EXTRA)[1]

    def encode(self, block: Block) -> Any:
        """A table of Arrow. Raises StepFailed for a record that does not fit."""
        return self._shape.table(each(self._name, self._row, block.records))

    def _row(self, record: Any) -> list[Any]:
        return self._shape.row(named_fields(record, "a table"))

    def take(self, table: Any) -> None:
        """Keep it for the next checkpoint."""
        self._tables.append(table)

    def prepare(self, checkpoint: Checkpoint, final: bool) -> bool:
        """One file, which says whose it is. Raises OSError."""
        self._writer = writer_name(self._step, str(self._task.life), checkpoint.name.split("-")[2])
        return super().prepare(checkpoint, final)

    def _flush(self, name: str) -> None:
        tables, self._tables = self._tables, []
        if tables:
            schema = signed(self._shape.schema, self._writer)
            with self._parquet.ParquetWriter(self._staging.file(ROWS), schema, compression=COMPRESSION) as file:
                for table in tables:
                    file.write_table(table.cast(schema))

    def _finish(self) -> None:
        """Whoever reads a table reads what is there."""

    def commit(self, token: str, certain: bool = False) -> None:
        """Its rows are in the table, once. Raises OutputIsGone, ConnectError."""
        staged = self._staging.place_of(token) / ROWS
        if staged.exists():
            checkpoint = int(token.split("-")[1])
            try:
                add_once(self._open_table, staged, self._table / data_name(self._step, token), checkpoint, TRIES)
            except FileNotFoundError:
                pass  # another has done so just now: the mark says it
        super().commit(token, certain)
