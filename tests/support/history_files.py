"""Metric history files, as metrics managers and roll-ups write them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from heron_runtime.model.history import (
    MANIFEST,
    METRICS,
    RAW,
    SUFFIX,
    TAKEN,
    MetricRow,
    date_of,
    day_folder,
    file_name,
    roll_up,
)
from metrics_manager.sinks.history import row_table


def write_raw(folder: Path, number: int, rows: list[MetricRow]) -> str:
    """Write a file of container 1; return its name."""
    day = folder / METRICS / RAW / day_folder(date_of(max(row.start_ms for row in rows)))
    day.mkdir(parents=True, exist_ok=True)
    pq.write_table(row_table(pa, rows), day / file_name(1, number), store_schema=False)
    return file_name(1, number)


def write_rolled(folder: Path, level: str, rows: list[MetricRow], taken: Iterable[str]) -> None:
    """Write the day of a level that contains these raw files."""
    day = folder / METRICS / level / day_folder(date_of(rows[0].start_ms))
    day.mkdir(parents=True, exist_ok=True)
    pq.write_table(row_table(pa, roll_up(rows, level)), day / f"part-0{SUFFIX}", store_schema=False)
    (day / MANIFEST).write_text(json.dumps({TAKEN: sorted(taken)}))
