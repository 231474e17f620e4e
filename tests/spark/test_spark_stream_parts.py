"""Micro-batches with reducers computed by SQL: results equal the reference, and Python runs only where needed."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from data_pipeline.shell import catalyst, portions, tasks
from data_pipeline.shell.job import compute_result
from data_pipeline.shell.program import Loaded
from data_pipeline.shell.request import Request, Streaming
from data_pipeline.shell.resolved_request import resolve_request
from heronry.streamlet import Builder, count, files, max_, mean, min_, session, sliding, sum_, to_files, tumbling
from heronry.streamlet.aside import ON_ERROR
from heronry.streamlet.program import Program
from heronry.streamlet.reference import run
from heronry.streamlet.results import read
from tests.support.streamlets.comparison import difference

ARROW = [("k", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("t", pa.int64())]
REDUCERS = {
    "count": (count(), None, None), "whole": (sum_(), "n", None), "fraction": (sum_(), "x", None),
    "mean": (mean(), "x", None), "least": (min_(), "n", None), "most": (max_(), "x", tumbling(60)),
    "slid": (sum_(), "n", sliding(90, 40)), "visits": (count(), None, session(20)),
    "visited": (sum_(), "x", session(20)),
}  # fmt: skip
OF_FLOATS = {"fraction", "mean", "visited"}  # Python adds floats exactly


def rows_of(seed: int, size: int = 60) -> list[dict[str, Any]]:
    """Return rows with sessions that later files join, sums beyond 64 bits, keys of signed zeros, and None."""
    found = [
        {
            "k": [None, "a", "ä b", "zero"][(seed * 7 + n) % 4],
            "n": [2**63 - 1, -3, None, 5, -(2**63)][(seed + n * n) % 5],
            "x": [None, 0.1, 1e30, -1e30][(seed * 3 + n) % 4],
            "t": (n * 37 + seed * 11) % 700 - 100,
        }
        for n in range(size)
    ]
    return [{**row, "x": -0.0} if row["k"] == "zero" else row for row in found]


def program(folder: Path) -> Program:
    """Return a program with the reducers of SQL in windows of each kind, and one of Python."""
    builder = Builder("parts")
    rows = builder.source(files(folder, "parquet"), event_time="t", name="rows")
    for name, (monoid, value, window) in REDUCERS.items():
        keyed = rows.key_by("k")
        stream = keyed if window is None else keyed.window(window)
        made = stream.reduce_by_key(monoid, value=value, name=name, updates=False)
        made.sink(to_files("/nowhere"), name=f"to-{name}")
    small = rows.filter(lambda row: row["n"] is not None and row["n"] < 10).key_by("k")
    small.count_by_key(updates=False, name="small").sink(to_files("/nowhere"), name="to-small")
    return builder.build()


def streamed(spark: SparkSession, folder: Path, of: Program, files_a_batch: int = 1, **config: Any) -> str:
    """Run until all input has been read; return the messages."""
    said = io.StringIO()
    streaming = Streaming(str(folder / "checkpoint"), None, files_a_batch)
    request = Request(Path("p.py"), output_path=str(folder / "out"), streaming=streaming, config=config)
    compute_result(spark, resolve_request(request, Loaded(of, ())), said)
    return said.getvalue()


def check(folder: Path, of: Program) -> None:
    """Check that all sinks hold the results of the reference."""
    for sink, expected in run(of).items():
        assert difference(expected, read(folder / "out" / sink)) == "", sink


def arrive(folder: Path, name: str, rows: list[dict[str, Any]], columns: list[tuple[str, Any]] | None = None) -> None:
    """Write another Parquet file."""
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(columns or ARROW)), folder / f"{name}.parquet")


def law_parts_of_micro_batches_add_up(spark: SparkSession, folder: Path) -> None:
    """Process many files, one per micro-batch, in two runs, and compare the results with the reference."""
    made = program(folder / "in")
    for number in range(2):
        arrive(folder / "in", str(number), rows_of(number))
    streamed(spark, folder, made)
    check(folder, made)
    for number in range(2, 4):
        arrive(folder / "in", str(number), rows_of(number))
    streamed(spark, folder, made)
    check(folder, made)


def test_sql_micro_batches_use_neither_python_nor_accumulators(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for task in (tasks.ScanTask, tasks.MergeTask, portions.PartsTask, catalyst.ResultTask):
        monkeypatch.setattr(task, "__init__", lambda *_, **__: pytest.fail("Python computes"))
    builder = Builder("by-sql")
    rows = builder.source(files(tmp_path / "in", "parquet"), event_time="t", name="rows").key_by("k")
    rows.count_by_key(updates=False, name="count").sink(to_files("/nowhere"), name="counts")
    rows.window(session(20)).sum_by_key("n", name="sum").sink(to_files("/nowhere"), name="sums")
    made = builder.build()
    for number in range(3):
        arrive(tmp_path / "in", str(number), rows_of(number))
    streamed(spark, tmp_path, made)
    check(tmp_path, made)


def test_portions_are_joined_with_their_parts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portions, "MOST", 2)
    law_parts_of_micro_batches_add_up(spark, tmp_path)
    (kept,) = (tmp_path / "checkpoint").glob("portions-*")
    (whole,) = kept.iterdir()
    assert whole.name == "0-3"
    about = json.loads((whole / "_heronry.json").read_text())
    assert about["merged"] == sorted({"small"} | OF_FLOATS)
    assert set(about["parts"]) == set(REDUCERS) - OF_FLOATS


def test_files_with_other_column_types_are_combined(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts with other columns, and a micro-batch that SQL cannot compute at all; also when they are joined."""
    made = program(tmp_path / "in")
    arrive(tmp_path / "in", "0", rows_of(0))
    streamed(spark, tmp_path, made)
    small = [{**row, "n": n % 50} for n, row in enumerate(rows_of(1))]
    arrive(tmp_path / "in", "1", small, [("k", pa.string()), ("n", pa.int32()), ("x", pa.float32()), ("t", pa.int64())])
    streamed(spark, tmp_path, made)
    check(tmp_path, made)
    arrive(
        tmp_path / "in",
        "2",
        small,
        [("k", pa.large_string()), ("n", pa.uint64()), ("x", pa.float64()), ("t", pa.int64())],
    )
    monkeypatch.setattr(portions, "MOST", 2)
    streamed(spark, tmp_path, made)
    check(tmp_path, made)
    arrive(tmp_path / "in", "3", rows_of(3))
    streamed(spark, tmp_path, made)
    check(tmp_path, made)


DIRTY = {"k": "str", "n": "int"}


def test_micro_batch_with_a_dead_letter_is_computed_by_python(spark: SparkSession, tmp_path: Path) -> None:
    """The micro-batches before and after it are computed by SQL."""
    folder = tmp_path / "in"
    folder.mkdir()
    builder = Builder("dirty")
    rows = builder.source(files(folder, "json", schema=DIRTY), name="rows").key_by("k")
    rows.sum_by_key("n", name="sum", updates=False).sink(to_files("/nowhere"), name="sums")
    made = builder.build()
    for number, more in enumerate(["", '{"k": "a", "n": "no number"}\n', ""]):
        lines = "".join(json.dumps({"k": "ab"[n % 2], "n": n + number}) + "\n" for n in range(10))
        (folder / f"{number}.json").write_text(lines + more)
        said = streamed(spark, tmp_path, made, **{ON_ERROR: "aside"})
        assert ("failed on a record" in said) == bool(more)
    letters = (tmp_path / "out" / "_failed.jsonl").read_text().splitlines()
    assert ["no number" in letter for letter in letters] == [True]
    expected: list[dict[str, Any]] = []
    (records,) = run(made, failed=expected).values()
    assert difference(records, read(tmp_path / "out" / "sums")) == ""
    assert len(expected) == 1


def test_parts_of_micro_batches_add_up(spark: SparkSession, tmp_path: Path) -> None:
    law_parts_of_micro_batches_add_up(spark, tmp_path)
