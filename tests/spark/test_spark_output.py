"""A result folder appears atomically, on local file systems and through Hadoop's interface."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from data_pipeline.core.failure import RecordFailed
from data_pipeline.core.planner import Choice, plan
from data_pipeline.core.render import to_json
from data_pipeline.shell import output as outputs
from data_pipeline.shell import sinks
from data_pipeline.shell.execute import Execution
from data_pipeline.shell.output import OutputExists, OutputFolder
from data_pipeline.shell.resolved_request import with_columns
from data_pipeline.shell.scan import Tables
from heron_runtime.failures import Failure
from heronry.streamlet import Builder, files, max_, min_, session, sliding, to_files, tumbling
from heronry.streamlet.reference import run


def folder_of(
    spark: SparkSession, how: str, path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> OutputFolder:
    """Return an output folder; ``hadoop`` accesses the same path through Hadoop."""
    if how == "hadoop":
        monkeypatch.setattr(outputs, "local_path", lambda url: None)
    return OutputFolder(spark, f"file://{path}", **options)


@pytest.mark.parametrize("how", ["local", "hadoop"])
def test_result_appears_and_is_replaced_atomically(
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
def test_concurrent_output_is_rejected_and_leftovers_of_dead_runs_are_removed(
    spark: SparkSession, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    zombie = subprocess.Popen(["true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)  # it has ended and is a zombie
    name, own = outputs._work_name("out"), f".{os.getpid()}."
    dead, reaped_late, alive = (tmp_path / name.replace(own, f".{p}.") for p in (4194305, zombie.pid, os.getppid()))
    for folder in (dead, reaped_late, alive):
        folder.mkdir()
    first = folder_of(spark, how, out, monkeypatch)
    assert [folder.exists() for folder in (dead, reaped_late, alive)] == [False, False, True]
    zombie.wait()
    alive.rmdir()
    out.mkdir()
    (out / "somebody's").touch()
    with pytest.raises(OutputExists):
        first.commit({})
    first.discard()
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("how", ["local", "hadoop"])
def test_folder_of_a_dead_run_is_removed_once_its_journal_is_cleared(
    spark: SparkSession, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, seen = tmp_path / "out", list[bytes]()
    dead = tmp_path / outputs._work_name("out").replace(f".{os.getpid()}.", ".4194305.")
    dead.mkdir()
    (dead / "_staged.json").write_bytes(b"{1}")
    folder_of(spark, how, out, monkeypatch, clear=lambda journal: bool(seen.append(journal))).discard()
    assert (dead.exists(), seen) == (True, [b"{1}"])
    kept = folder_of(spark, how, out, monkeypatch, clear=lambda _: True)
    assert not dead.exists()
    assert kept.place.read("_settled") is None
    kept.commit({"to_ms": 7})
    kept.place.write("_settled", b"")
    assert kept.place.read("_settled") == b""
    assert json.loads(kept.place.read("_heronry.json") or b"") == {"to_ms": 7}


def test_record_with_incompatible_columns_is_named() -> None:
    with pytest.raises(RecordFailed) as caught:
        sinks._table("out", [{"a": 1}, {"b": 2}, {"a": "text"}], None)
    assert (caught.value.failure.step, caught.value.failure.value) == ("out", "{'a': 'text'}")
    schemas = [sinks._table("out", [{"a": value}], None).schema.serialize().to_pybytes() for value in (1, "text")]
    with pytest.raises(Failure, match=r"step 'out': .* Field a has incompatible types"):
        sinks._one_schema("out", schemas)


LARGE = [2**63 - 1, None, -(2**63), 2**63 - 1]


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_sql_writes_the_same_output_as_a_worker(spark: SparkSession, tmp_path: Path, form: str) -> None:
    keys = {
        "text": ["a", None, 'q"\\\n\x01ä\u2028', ""],
        "whole": [1, None, -5, 2**62],
        "truth": [True, None, False, True],
    }
    table = pa.table({**keys, "small": pa.array([1, 2, None, 4], pa.int8()), "large": LARGE, "t": [0, 5, 70, 3]})
    pq.write_table(table, tmp_path / "in.parquet")
    builder = Builder("written")
    source = builder.source(files(tmp_path / "in.parquet", "parquet"), event_time="t")
    for key in keys:
        source.count_by_key(key).sink(to_files("/nowhere", form), name=f"count-{key}")
        source.key_by(key).window(tumbling(60)).reduce_by_key(max_(), "small").sink(
            to_files("/nowhere", form), name=key
        )
        source.key_by(key).window(sliding(60, 20)).reduce_by_key(min_(), key).sink(
            to_files("/nowhere", form), name=f"min-{key}"
        )
        if form == "json":
            source.sum_by_key("large", key=key).sink(to_files("/nowhere"), name=f"sum-{key}")
            source.key_by(key).window(session(10)).sum_by_key("truth").sink(to_files("/nowhere"), name=f"truths-{key}")
    program = builder.build()
    tables = Tables(spark)
    found = plan(program, with_columns(tables, program, Choice()))
    execution = Execution(spark, found, collect=to_json, tables=tables)
    expected = run(program)
    for output in found.outputs:
        fields = execution.fields(output.step)
        assert fields is not None
        sinks.write_fields(output, fields, f"file://{tmp_path}/sql/{output.step}")
        sinks.write(output, execution.output(output.step), f"file://{tmp_path}/worker/{output.step}")
        by_sql, by_worker = (written(tmp_path / how / output.step, form) for how in ("sql", "worker"))
        assert by_sql == by_worker
        assert sorted(map(repr, map(to_dict, expected[output.step]))) == sorted(map(repr, by_sql))


def test_float_keys_float_sums_and_shared_sources_are_written_by_workers(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.5], "n": [1], "k": ["a"]}), tmp_path / "in.parquet")
    builder = Builder("others")
    source = builder.source(files(tmp_path / "in.parquet", "parquet"))
    source.count_by_key("x").sink(to_files("/nowhere"))
    source.sum_by_key("n", key="k").sink(to_files("/nowhere", "parquet"))
    source.sum_by_key("x", key="k").sink(to_files("/nowhere"))
    source.key_by("k").reduce_by_key(max_(), "x").sink(to_files("/nowhere"))
    shared = source.count_by_key("k")
    shared.sink(to_files("/nowhere"))
    shared.map(str).sink(to_files("/nowhere"))
    program = builder.build()
    tables = Tables(spark)
    found = plan(program, with_columns(tables, program, Choice()))
    execution = Execution(spark, found, tables=tables)
    assert [execution.fields(output.step) for output in found.outputs] == [None] * 6


def to_dict(record: Any) -> dict[str, Any]:
    fields: dict[str, Any] = record._asdict()
    return fields


def written(folder: Path, form: str) -> list[dict[str, Any]]:
    """Return the sorted records of a folder, with their fields in written order."""
    if form == "parquet":
        return sorted(pq.read_table(folder).to_pylist(), key=repr)
    lines = [line for part in folder.glob("part-*") for line in part.read_text().split("\n") if line]
    return sorted(map(json.loads, lines), key=repr)
