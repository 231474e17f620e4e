"""Rows of a view as a batch writes them, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from heronry.pipeline.rows import Row, schema
from heronry.streamlet.records import pack


def write_rows(file: Path, rows: Iterable[Row]) -> None:
    """Write a file of rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    packed = [(*row[:3], pack(row.packed)) for row in rows]
    columns = list(zip(*packed, strict=True)) or [(), (), (), ()]
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table([list(column) for column in columns], schema=schema()), file, compression="zstd")
