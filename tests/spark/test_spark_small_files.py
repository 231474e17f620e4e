"""Sinks of a job are written concurrently, and many small files are read by few tasks."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from data_pipeline.core.plan import Plan, Scan
from data_pipeline.core.planner import plan
from data_pipeline.shell.execute import Execution
from data_pipeline.shell.scan import Tables
from data_pipeline.shell.sinks import write_all
from data_pipeline.shell.staged import Staging
from heronry.streamlet import Builder, files, sequence, to_files


def waiting(folder: Path, own: str, other: str) -> Builder:
    """Return a program of two sinks, each of which waits until the other one is being written."""

    def meet(mine: str, awaited: str):
        def met(number: int) -> int:
            (folder / mine).touch()
            end = time.monotonic() + 120
            while not (folder / awaited).exists():
                if time.monotonic() > end:
                    raise TimeoutError(awaited)
                time.sleep(0.05)
            return number

        return met

    builder = Builder("together")
    for name, awaited in ((own, other), (other, own)):
        source = builder.source(sequence(1), name=f"numbers-{name}")
        source.map(meet(name, awaited), name=f"meet-{name}").sink(to_files("/nowhere"), name=name)
    return builder


def written(spark: SparkSession, found: Plan, folder: Path) -> None:
    staging = Staging(found.program, found.outputs, lambda: False)
    write_all(spark, found.outputs, Execution(spark, found), str(folder), staging)


def test_sinks_are_written_concurrently(spark: SparkSession, tmp_path: Path) -> None:
    found = plan(waiting(tmp_path, "one", "two").build())
    written(spark, found, tmp_path / "out")
    for name in ("one", "two"):
        lines = [line for part in (tmp_path / "out" / name).glob("part-*") for line in part.read_text().splitlines()]
        assert list(map(json.loads, lines)) == [0]


def test_error_of_one_sink_ends_all_sinks(spark: SparkSession, tmp_path: Path) -> None:
    builder = Builder("failing")
    for name in ("bad", "good"):
        builder.source(sequence(4), name=name).map((1).__truediv__ if name == "bad" else abs, name=f"{name}-map").sink(
            to_files("/nowhere"), name=f"{name}-out"
        )
    found = plan(builder.build())
    with pytest.raises(PySparkException, match="division by zero"):
        written(spark, found, tmp_path / "out")


def test_small_files_are_packed_into_few_tasks(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(2_000):
        (tmp_path / f"{number}.txt").write_text("a line\n")
    rows = Tables(spark).read(Scan("source", files(tmp_path, "text"), None, None))
    assert rows.rdd.getNumPartitions() <= 4
