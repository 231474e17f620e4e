"""Micro-batches of files give the results of the reference over all files, across killed drivers."""

from __future__ import annotations

import io
import json
import os
import random
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from data_pipeline.shell import portions
from data_pipeline.shell.job import compute_result
from data_pipeline.shell.program import Loaded
from data_pipeline.shell.request import Request, Streaming, check
from data_pipeline.shell.resolved_request import resolve_request
from data_pipeline.shell.scan import InputNotFound
from heron_control.inspection.streaming_runs import StreamRun, living
from heron_runtime.failures import UsageError
from heronry.streamlet import Builder, Context, Process, files, sequence, session, sliding, to_files
from heronry.streamlet.program import Program
from heronry.streamlet.reference import run
from heronry.streamlet.results import read
from tests.spark.test_spark_dead_letters import DIRTY, LINES, plain, told
from tests.support.servers.spark import run_heron

WORDS = """
from heronry.streamlet import Builder, files, to_files

words = Builder("words")
lines = words.source(files({folder!r}, "text"), name="lines")
counts = lines.flat_map(str.split).key_by().count_by_key(updates=False)
counts.sink(to_files("/nowhere"), name="output")
"""


class Killed(Exception):
    """Death of a driver at a chosen point."""


@dataclass
class Event:
    """Schema of a line."""

    key: str
    n: int
    at: float | None
    day: str | None


def program(folder: Path) -> Program:
    """Return a program with windows of late records, chained reducers, plain records and a sequence."""
    builder = Builder("mixed")
    lines = builder.source(files(folder, "json", partitions=["day"]), name="lines", event_time="at")
    records = lines.with_schema(Event, name="events")
    records.key_by("key").window(sliding(10, 5)).reduce_by_key(max, value="n", name="largest").sink(
        to_files("/nowhere"), name="windows"
    )
    counts = records.key_by("key").count_by_key(updates=False, name="count")
    counts.sink(to_files("/nowhere"), name="counts")
    counts.key_by(lambda found: found.value % 3).sum_by_key(value=lambda found: found.value, name="sum").sink(
        to_files("/nowhere"), name="sums"
    )
    records.key_by("key").window(session(1)).reduce_by_key(max, value="n", name="runs").sink(
        to_files("/nowhere"), name="sessions"
    )

    class Runs(Process):
        def on_record(self, context: Context, record: Any) -> None:
            context.state = (context.state or 0) + record["n"]
            context.set_timer(context.time_ms + 2_500)

        def on_timer(self, context: Context, name: str) -> None:
            context.emit([context.key, context.time_ms, context.state])
            context.state = None

    records.key_by("key").process(Runs, name="stories").sink(to_files("/nowhere"), name="told")
    records.filter(lambda record: record["n"] > 95).sink(to_files("/nowhere"), name="large")
    builder.source(sequence(9)).key_by(lambda n: n % 2).count_by_key(name="parity").sink(
        to_files("/nowhere"), name="parities"
    )
    return builder.build()


class World:
    """Growing folder of files, a checkpoint, and a result."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.rng = spark, folder, random.Random(5)
        self.input = folder / "in x%41"  # not a quoted A
        self.input.mkdir()
        self.program = program(self.input)

    def arrive(self, number: int) -> None:
        for _ in range(number):
            records = [
                {"key": self.rng.choice("abcdef"), "n": self.rng.randrange(100), "at": self.rng.randrange(60)}
                for _ in range(self.rng.randrange(1, 30))
            ]
            folder = self.input / self.rng.choice(["day=a%20b", "day=__HIVE_DEFAULT_PARTITION__/deeper"])
            folder.mkdir(parents=True, exist_ok=True)
            name = f"{self.rng.randrange(10**6)}%20of é.json"
            (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))

    def run(self, files_a_batch: int = 2) -> str:
        said = io.StringIO()
        streaming = Streaming(str(self.folder / "checkpoint"), None, files_a_batch)
        request = Request(Path("p.py"), output_path=str(self.folder / "out"), streaming=streaming)
        result = compute_result(self.spark, resolve_request(request, Loaded(self.program, ())), said)
        return said.getvalue() + result

    def check(self) -> None:
        for sink, records in run(self.program).items():
            assert plain(read(self.folder / "out" / sink)) == plain(records), sink

    def portions(self) -> list[str]:
        (folder,) = (self.folder / "checkpoint").glob("portions-*")
        return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    return World(spark, tmp_path)


def dies(patch: pytest.MonkeyPatch, when: Callable[[portions.Portion], bool], *, before: bool) -> None:
    """Let the driver die at its first write of such a portion, before or after it is done."""
    write, left = portions.Portions._write, [True]

    def last(self: portions.Portions, portion: portions.Portion, *more: Any) -> Any:
        if left and when(portion):
            left.clear()
            if not before:
                write(self, portion, *more)
            raise Killed
        return write(self, portion, *more)

    patch.setattr(portions.Portions, "_write", last)


@pytest.mark.core
def test_runs_continue_from_the_checkpoint_and_every_file_counts_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.arrive(5)
    dies(monkeypatch, lambda portion: portion.last == 1, before=False)
    with pytest.raises(Killed):
        world.run()
    assert not (world.folder / "out").exists(), "no half of a result is seen"
    assert "micro-batch 1: 2 files" in world.run(), "the one that was under way comes again"
    world.check()
    world.arrive(4)
    monkeypatch.setattr(portions, "MOST", 2)
    dies(monkeypatch, lambda portion: portion.first != portion.last, before=True)
    with pytest.raises(Killed):
        world.run()
    assert "no file is new" in world.run()
    world.check()
    assert world.portions() == ["0-4"], "many portions are joined"
    assert "no file is new" in world.run(), "and what is joined is a portion like others"
    world.check()


def test_program_without_reducers_appends_files_and_equals_a_batch(world: World) -> None:
    """Also with columns that only some micro-batches have, with none, and with folders by a field."""
    builder = Builder("plain")
    records = builder.source(files(world.input, "json", partitions=["day"]), name="lines")
    records.sink(to_files("/nowhere"), name="all")
    records.map(lambda r: {"key": r["key"], "n": r["n"], f"is_{r['n'] % 2}": True}).sink(
        to_files("/nowhere", "parquet"), name="columns"
    )
    records.filter(lambda r: r["n"] < 0).sink(to_files("/nowhere", "parquet"), name="none")
    records.sink(to_files("/nowhere", "csv", fields=["n", "key"]), name="cells")
    records.sink(to_files("/nowhere", partition_by=["key"]), name="divided")
    world.program = builder.build()
    world.arrive(3)
    world.run()
    before = {path: path.stat().st_mtime_ns for path in (world.folder / "out").rglob("part-*")}
    world.arrive(2)
    assert "appended all, columns, none, cells, divided" in world.run()
    assert "no file is new" in world.run()
    after = {path: path.stat().st_mtime_ns for path in (world.folder / "out").rglob("part-*")}
    assert before.items() < after.items()
    assert not list((world.folder / "checkpoint").glob("portions-*/*/rows"))
    expected = run(world.program)
    assert plain(read(world.folder / "out" / "all")) == plain(expected["all"])
    rows = [
        row for path in (world.folder / "out" / "columns").iterdir() for row in parquet.read_table(path).to_pylist()
    ]
    assert plain({k: v for k, v in row.items() if v is not None} for row in rows) == plain(expected["columns"])
    assert list((world.folder / "out" / "none").iterdir()) == []
    cells = [path.read_text().splitlines() for path in (world.folder / "out" / "cells").glob("part-*")]
    assert {lines[0] for lines in cells} == {"n,key"}
    assert sorted(line for lines in cells for line in lines[1:]) == sorted(
        f"{record['n']},{record['key']}" for record in expected["all"]
    )
    for folder in (world.folder / "out" / "divided").iterdir():
        rows = [json.loads(line) for path in folder.iterdir() for line in path.read_text().splitlines()]
        assert len(rows) == sum(f"key={record['key']}" == folder.name for record in expected["all"])
    assert len(list((world.folder / "out" / "divided").iterdir())) == len({r["key"] for r in expected["all"]})


def test_file_of_any_age_is_read(world: World) -> None:
    world.arrive(2)
    for age_days, path in zip((400, -400), sorted(world.input.rglob("*.json")), strict=True):
        os.utime(path, (time.time() - age_days * 86400,) * 2)
    world.run(files_a_batch=1)
    world.arrive(1)
    world.run(files_a_batch=1)
    world.check()


def test_checkpoint_belongs_to_one_program(world: World) -> None:
    world.arrive(1)
    world.run()
    builder = Builder("mixed")
    builder.source(files(world.input, "json"), name="lines").sink(to_files("/nowhere"), name="large")
    world.program = builder.build()
    with pytest.raises(Exception, match="another program"):
        world.run()


def test_command_processes_new_files_and_writes_dead_letters(tmp_path: Path) -> None:
    """Two runs with invalid records in both; the result equals the reference over all files."""
    (tmp_path / "in").mkdir()
    file, out = tmp_path / "dirty_program.py", tmp_path / "result"
    file.write_text(DIRTY.format(folder=str(tmp_path), config={}))
    arguments = (
        "submit", "spark", str(file), "--mode", "streaming", "--checkpoint", str(tmp_path / "checkpoint"),
        "--output-path", str(out), "--master", "local[2]",
    )  # fmt: skip
    for round_number in range(2):
        (tmp_path / "in" / f"{round_number}.json").write_text("\n".join(LINES * (round_number + 1)))
        done = run_heron(tmp_path / "home", *arguments)
        assert done.returncode == 0, done.stderr.decode()
    space: dict[str, Any] = {}
    exec(DIRTY.format(folder=str(tmp_path), config={}), space)
    expected: list[dict[str, Any]] = []
    results = run(space["dirty"].build(), failed=expected)
    letters = [json.loads(line) for line in (out / "_failed.jsonl").read_text().splitlines()]
    assert told(letters) == told(expected)
    for sink, records in results.items():
        assert plain(read(out / sink)) == plain(records), sink
    assert json.loads((out / "_heronry.json").read_text())["checkpoint"] == str(tmp_path / "checkpoint")


def test_continuous_run_reports_its_status_and_ends_when_killed(tmp_path: Path) -> None:
    """Spark's page is on 127.0.0.1. The result is complete, and the next run continues."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.txt").write_text("a b\nb\n")
    file, out, home = tmp_path / "p.py", tmp_path / "result", tmp_path / "home"
    file.write_text(WORDS.format(folder=str(tmp_path / "in")))
    arguments = (
        "submit", "spark", str(file), "--mode", "streaming", "--checkpoint", str(tmp_path / "checkpoint"),
        "--output-path", str(out), "--master", "local[2]",
    )  # fmt: skip

    def lasting() -> StreamRun | None:
        found = living(home / "pipeline" / "runs")
        return found[0] if found and found[0].state == "waiting" else None

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_heron, home, *arguments, "--trigger", "processing-time=1")
        until = time.monotonic() + 300
        while (run := lasting()) is None and not running.done():
            assert time.monotonic() < until
            time.sleep(0.1)
        assert run is not None, running.result().stderr.decode()
        with urllib.request.urlopen(run.ui) as page:
            assert page.status == 200
        ended = run_heron(home, "kill", "spark", "words")
        assert ended.returncode == 0, ended.stderr.decode()
        assert running.result().returncode == 130
    assert (run.name, run.micro_batch, run.files, run.rows, run.portions) == ("words", 0, 1, 2, 1)
    assert run.ui.startswith("http://127.0.0.1:")
    assert run.input_rate > 0
    assert run.state_bytes > 0
    assert run.state_rows == 2  # a and b
    assert not living(home / "pipeline" / "runs")
    (tmp_path / "in" / "two.txt").write_text("a\n")
    done = run_heron(home, *arguments)
    assert done.returncode == 0, done.stderr.decode()
    assert sorted((record.key, record.value) for record in read(out / "output")) == [("a", 2), ("b", 2)]


@pytest.mark.parametrize(
    ("output", "checkpoint"), [("/o", "/o/c"), ("/c/o/", "file:///c"), ("hdfs://n/x", "hdfs://n/x")]
)
def test_result_and_checkpoint_within_each_other_are_rejected(output: str, checkpoint: str) -> None:
    """Otherwise replacing the result would delete the checkpoint."""
    with pytest.raises(UsageError, match="is inside the other"):
        check(Request(Path("p.py"), output_path=output, streaming=Streaming(checkpoint), master="local[2]"))


def test_missing_input_folder_is_named(world: World) -> None:
    builder = Builder("absent")
    builder.source(files(world.input / "*.json", "json"), name="lines").sink(to_files("/nowhere"), name="out")
    world.arrive(1)
    world.program = builder.build()
    with pytest.raises(InputNotFound, match=r"nothing to read at .*\*\.json"):
        world.run()
