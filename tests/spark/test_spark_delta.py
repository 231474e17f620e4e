"""Delta tables on real Spark: read as the reference reads them, written once, with one commit behind the result's name,
by whichever driver comes to it.

A job costs a second and more, so one reads everything.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from lake_tables import TYPES, WORDS, deltalake, make, rows_of, typed, write
from pyspark.sql import SparkSession
from server_programs import differences, in_reference, program
from spark_world import run_all

from data_pipeline.shell.asked import asked
from data_pipeline.shell.job import answer
from data_pipeline.shell.program import Loaded
from data_pipeline.shell.request import Request, Streaming
from heronry.connect.delta import DeltaTable
from heronry.connect.settings import ConnectError
from heronry.streamlet import Builder, delta, to_delta

COUNT = 40


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Forty rows in partitions by word, two files each."""
    path = tmp_path / "in"
    for first in range(0, COUNT, 20):
        write(path, [typed(n) for n in range(first, first + 20)], TYPES, partition_by=["word"])
    return path


def test_spark_reads_what_the_reference_reads(spark: SparkSession, table: Path) -> None:
    source = delta(table, TYPES.names)
    (found,) = run_all(spark, [program(source, None).build()])
    expected = in_reference(source)
    assert len(expected["records"]) == COUNT
    assert differences(expected, found) == {}


def into(source: Path, path: str) -> Builder:
    """All records of a table, into another."""

    def words(record: dict[str, Any]) -> dict[str, Any]:  # inside, so that workers get the function itself
        return {"word": f"wörd {record['n'] % 7}", "n": record["n"]}

    builder = Builder("into")
    rows = builder.source(delta(source, ["word", "n"]), name="in").map(words, name="words")
    rows.sink(to_delta(path, ["word", "n"]), name="table")
    return builder


def run(spark: SparkSession, builder: Builder, folder: Path, **more: Any) -> str:
    request = Request(Path("p.py"), output_path=str(folder / "out"), **more)
    return answer(spark, asked(request, Loaded(builder.build(), ())), io.StringIO())


class Died(BaseException):
    """The driver is no more."""


@pytest.mark.parametrize("when", ["before its commit", "behind its commit"])
def test_records_are_in_the_table_once_whenever_the_driver_dies(
    when: str, spark: SparkSession, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "t")
    added = DeltaTable.add

    def dies(self: Any, files: Any) -> None:
        if when == "behind its commit":
            added(self, files)
        raise Died

    monkeypatch.setattr(DeltaTable, "add", dies)
    with pytest.raises(Died):
        run(spark, into(table, path), tmp_path)
    monkeypatch.setattr(DeltaTable, "add", added)
    assert len(rows_of(path)) == (0 if when == "before its commit" else COUNT)
    deltalake.DeltaTable(path).optimize.compact()
    assert "table committed now, and nothing computed again" in run(spark, into(table, path), tmp_path)
    assert sorted(rows_of(path), key=lambda row: row["n"]) == [{"word": f"wörd {n % 7}", "n": n} for n in range(COUNT)]
    assert len([1 for one in deltalake.DeltaTable(path).history() if one["operation"] == "WRITE"]) == 1
    assert list((tmp_path / "t" / "_heronry").iterdir()) == []
    assert [file.name for file in (tmp_path / "t").glob("heronry-*")] != []


def test_what_does_not_fit_is_put_aside_and_a_missing_table_is_said_before_spark_works(
    spark: SparkSession, table: Path, tmp_path: Path
) -> None:
    path = make(tmp_path / "t", WORDS)
    builder = Builder("into")
    rows = builder.source(delta(table, ["n"]), name="in").map(lambda r: {"word": "w", "n": r["n"] or "x"}, name="words")
    rows.sink(to_delta(path, ["word", "n"]), name="table")
    assert "1 record" in run(spark, builder, tmp_path)
    assert sorted(row["n"] for row in rows_of(path)) == list(range(1, COUNT))
    assert "the column holds int" in (tmp_path / "out" / "_failed.jsonl").read_text()
    with pytest.raises(ConnectError, match="there is no Delta table at"):
        run(spark, into(table, str(tmp_path / "none")), tmp_path, replace=True)
    assert not (tmp_path / "none").exists()


def test_micro_batches_read_one_version(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    streaming = Streaming(str(tmp_path / "checkpoint"), None, 100)
    source = delta(table, ["word", "n"])
    with pytest.raises(ConnectError, match="is read by micro-batches at one version"):
        run(spark, program(source, tmp_path / "unused"), tmp_path, streaming=streaming)
