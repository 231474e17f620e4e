"""Aggregation of history rows by a worker equals their plain sum for any pieces."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install heronry[archive]")

import pyarrow as pa
import pyarrow.parquet as pq

from data_pipeline.shell import history_rows
from heron_runtime.model.history import LEVEL_MS, ROLLED, MetricRow, roll_up
from metrics_manager.sinks.history import row_table

SIXTEENTHS = st.integers(-(10**6), 10**6).map(lambda n: n / 16)  # exact sums in any order


@st.composite
def a_row(draw: st.DrawFn) -> MetricRow:
    kind = draw(st.sampled_from(["counter", "gauge", "latency"]))
    start = draw(st.integers(0, 40)) * LEVEL_MS["10s"]
    place = (draw(st.integers(0, 1)), draw(st.sampled_from("wx")), draw(st.sampled_from("yz")), f"__{kind}")
    row = MetricRow(start, *place, kind, float(draw(st.integers(1, 9))), draw(SIXTEENTHS))
    if kind == "gauge":
        row.low, row.high = draw(SIXTEENTHS), draw(SIXTEENTHS)
        row.last, row.last_ms = draw(SIXTEENTHS), start + draw(st.integers(0, 3))  # often equal
    if kind == "latency":
        row.bins = draw(st.dictionaries(st.integers(-50, 50), st.integers(1, 9).map(float), min_size=1, max_size=5))
    return row


def rows_of(table: Any) -> list[MetricRow]:
    found = []
    for row in table.to_pylist():
        row.pop("day", None)
        bins, counts = row.pop("bins"), row.pop("counts")
        assert bins == sorted(set(bins)), "bins are in order, each once"
        found.append(MetricRow(**row, bins=dict(zip(bins, counts, strict=True))))
    return found


def copies(rows: list[MetricRow]) -> list[MetricRow]:
    return [dataclasses.replace(row, bins=dict(row.bins)) for row in rows]


@given(st.lists(a_row(), max_size=40), st.sampled_from(ROLLED), st.sampled_from([1, 7, 100]))
def test_pieces_add_up_to_the_plain_sum(rows: list[MetricRow], level: str, piece: int) -> None:
    """The partial sums of pieces of files add up to the sum of all rows; a single piece needs no further sum."""
    length = LEVEL_MS[level]
    with tempfile.TemporaryDirectory() as folder:
        halves = rows[::2], rows[1::2]
        for number, half in enumerate(halves):
            pq.write_table(row_table(pa, half), Path(folder, f"{number}.parquet"), store_schema=False)
        asked = pa.table({"day": [3, 4], "path": [str(Path(folder, f"{n}.parquet")) for n in (0, 1)]})
        batches = list(history_rows.reader(length, piece)(asked.to_batches()))
    assert {day for batch in batches for day in batch["day"].to_pylist()} <= {3, 4}
    parts = [row for batch in batches for row in rows_of(batch)]
    assert roll_up(parts, level) == roll_up(copies(rows), level)
    whole = history_rows.added_up(row_table(pa, rows), length)
    assert sorted(rows_of(whole), key=lambda row: row.key) == roll_up(copies(rows), level)
