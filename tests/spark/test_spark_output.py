"""A result folder appears whole, on local file systems and through Hadoop's interface."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from data_pipeline.core.failure import RecordFailed
from data_pipeline.shell import output as outputs
from data_pipeline.shell import sinks
from data_pipeline.shell.output import OutputExists, OutputFolder
from heronry.failures import Failure


def folder_of(
    spark: SparkSession, how: str, path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> OutputFolder:
    """``hadoop``: the same path, as if it were on another file system."""
    if how == "hadoop":
        monkeypatch.setattr(outputs, "local_path", lambda url: None)
    return OutputFolder(spark, f"file://{path}", **options)


@pytest.mark.parametrize("how", ["local", "hadoop"])
def test_a_result_appears_at_once_and_is_replaced_at_once(
    spark: SparkSession, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "a b" / "out"
    made = folder_of(spark, how, out, monkeypatch)
    spark.range(3).selectExpr("cast(id as string)").write.text(f"{made.work}/numbers")
    made.rename_parts("numbers", ".json")
    assert not out.exists()
    made.commit({"to_ms": 5})
    made.discard()
    assert json.loads((out / "_heronry.json").read_text()) == {"to_ms": 5}
    lines = [line for part in (out / "numbers").glob("part-*.json") for line in part.read_text().splitlines()]
    assert sorted(lines) == ["0", "1", "2"]
    assert [entry.name for entry in out.parent.iterdir() if entry.name.startswith(".out")] == []
    with pytest.raises(OutputExists):
        folder_of(spark, how, out, monkeypatch)
    second = folder_of(spark, how, out, monkeypatch, replace=True)
    second.commit({"to_ms": 6})
    assert json.loads((out / "_heronry.json").read_text()) == {"to_ms": 6}
    assert not (out / "numbers").exists()
    assert [entry.name for entry in out.parent.iterdir() if entry.name.startswith(".out")] == []


@pytest.mark.parametrize("how", ["local", "hadoop"])
def test_whoever_comes_second_is_refused_and_leftovers_of_the_dead_go(
    spark: SparkSession, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    dead = tmp_path / outputs._work_name("out").replace(str(outputs.os.getpid()), "4194305")
    dead.mkdir()
    first = folder_of(spark, how, out, monkeypatch)
    assert not dead.exists()
    out.mkdir()
    (out / "somebody's").touch()
    with pytest.raises(OutputExists):
        first.commit({})
    first.discard()
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


def test_a_record_that_does_not_fit_the_columns_of_those_before_it_is_named() -> None:
    with pytest.raises(RecordFailed) as caught:
        sinks._table("out", [{"a": 1}, {"b": 2}, {"a": "text"}], None)
    assert (caught.value.failure.step, caught.value.failure.value) == ("out", "{'a': 'text'}")
    schemas = [sinks._table("out", [{"a": value}], None).schema.serialize().to_pybytes() for value in (1, "text")]
    with pytest.raises(Failure, match=r"step 'out': .* Field a has incompatible types"):
        sinks._one_schema("out", schemas)
