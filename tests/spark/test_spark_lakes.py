"""Lake tables on Spark: read like the reference, and written once across driver deaths.

Each result has one commit under its name. A job costs more than a second, so one job reads everything.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from data_pipeline.shell.job import compute_result
from data_pipeline.shell.program import Loaded
from data_pipeline.shell.request import Request, Streaming
from data_pipeline.shell.resolved_request import resolve_request
from heronry.connect.delta import DeltaTable
from heronry.connect.iceberg import IcebergTable
from heronry.connect.lake import STAGED
from heronry.connect.settings import ConnectError
from heronry.streamlet import Builder, delta, iceberg, to_delta, to_iceberg
from heronry.streamlet.server_sinks import ServerSink
from tests.support import iceberg_tables
from tests.support.delta_tables import TYPES, WORDS, deltalake, make, rows_of, typed, write
from tests.support.streamlets.server_programs import differences, in_reference, program
from tests.support.streamlets.spark_engine import run_all

COUNT = 40


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Return a table of forty rows in partitions by word, two files each."""
    path = tmp_path / "in"
    for first in range(0, COUNT, 20):
        write(path, [typed(n) for n in range(first, first + 20)], TYPES, partition_by=["word"])
    return path


def test_spark_reads_the_same_records_as_the_reference(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    iceberg_tables.make(tmp_path, TYPES, by=(("word", "identity"),))
    iceberg_tables.write(tmp_path, [typed(n) for n in range(COUNT)], TYPES)
    sources = [delta(table, TYPES.names), iceberg(iceberg_tables.catalog_in(tmp_path), "lake.t", TYPES.names)]
    for source, found in zip(sources, run_all(spark, [program(each, None).build() for each in sources]), strict=True):
        expected = in_reference(source)
        assert len(expected["records"]) == COUNT
        assert differences(expected, found) == {}, source


def into(source: Path, sink: ServerSink) -> Builder:
    """Return a program that copies all records of a table into another."""

    def words(record: dict[str, Any]) -> dict[str, Any]:  # nested, so that workers get the function by value
        return {"word": f"wörd {record['n'] % 7}", "n": record["n"]}

    builder = Builder("into")
    rows = builder.source(delta(source, ["word", "n"]), name="in").map(words, name="words")
    rows.sink(sink, name="table")
    return builder


def run(spark: SparkSession, builder: Builder, folder: Path, **more: Any) -> str:
    request = Request(Path("p.py"), output_path=str(folder / "out"), **more)
    return compute_result(spark, resolve_request(request, Loaded(builder.build(), ())), io.StringIO())


class Died(BaseException):
    """Death of the driver."""


@pytest.mark.parametrize(
    ("form", "when"),
    [("delta", "before"), ("delta by word", "behind"), ("iceberg", "behind"), ("iceberg by bucket", "behind")],
)
def test_records_are_in_the_table_once_after_a_driver_death(
    form: str, when: str, spark: SparkSession, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``when`` is the time of death relative to the commit of the table."""
    fields, there = ["word", "n"], [{"word": f"wörd {n % 7}", "n": n} for n in range(COUNT)]
    sink, made, rows = to_delta(tmp_path / "t", fields), DeltaTable, lambda: rows_of(tmp_path / "t")
    if form.startswith("delta"):
        make(tmp_path / "t", partition_by=["word"] if " by " in form else [])
    else:
        iceberg_tables.make(tmp_path, by=(("word", "bucket[3]"),) if " by " in form else ())
        sink = to_iceberg(iceberg_tables.catalog_in(tmp_path), "lake.t", fields)
        made, rows = IcebergTable, lambda: iceberg_tables.rows_of(tmp_path)
    added = made.add

    def dies(self: Any, files: Any) -> None:
        if when == "behind":
            added(self, files)
        raise Died

    monkeypatch.setattr(made, "add", dies)
    with pytest.raises(Died):
        run(spark, into(table, sink), tmp_path)
    monkeypatch.setattr(made, "add", added)
    assert len(rows()) == (0 if when == "before" else COUNT)
    if form.startswith("delta"):
        deltalake.DeltaTable(str(tmp_path / "t")).optimize.compact()
    assert "computed again" in run(spark, into(table, sink), tmp_path)
    assert sorted(rows(), key=lambda row: row["n"]) == there
    (staged,) = tmp_path.rglob(STAGED)
    assert list(staged.iterdir()) == []


def test_rejected_record_becomes_a_dead_letter_and_a_missing_table_fails_early(
    spark: SparkSession, table: Path, tmp_path: Path
) -> None:
    path = make(tmp_path / "t", WORDS)
    builder = Builder("into")
    rows = builder.source(delta(table, ["n"]), name="in").map(lambda r: {"word": "w", "n": r["n"] or "x"}, name="words")
    rows.sink(to_delta(path, ["word", "n"]), name="table")
    assert "1 record" in run(spark, builder, tmp_path)
    assert sorted(row["n"] for row in rows_of(path)) == list(range(1, COUNT))
    assert "the column holds int" in (tmp_path / "out" / "_failed.jsonl").read_text()
    with pytest.raises(ConnectError, match="no Delta table at"):
        run(spark, into(table, to_delta(tmp_path / "none", ["word", "n"])), tmp_path, replace=True)
    assert not (tmp_path / "none").exists()


def test_micro_batches_read_one_version(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    streaming = Streaming(str(tmp_path / "checkpoint"), None, 100)
    source = delta(table, ["word", "n"])
    with pytest.raises(ConnectError, match="is read by micro-batches at one version"):
        run(spark, program(source, tmp_path / "unused"), tmp_path, streaming=streaming)
