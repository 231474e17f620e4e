"""Output of online sinks and reducers: Parquet, JSON, collected records, logs, and a full disk."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from data_pipeline.core.plan import CannotPlan
from data_pipeline.core.planner import plan
from heronry import TopologyError
from heronry.api.state import SHOWN_AGAIN, Checkpoint
from heronry.streamlet import Builder, collect, files, sink_of, to_files
from heronry.streamlet.decoding import read_all
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.lines import JsonLines
from heronry.streamlet.online.writers import TaskOf, TextWriter
from heronry.streamlet.reference import run
from heronry.streamlet.results import finished, read
from tests.support.distributions import write_distribution
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.online_engine import builder_in, definition_of, importable, letters_in, run_online


def writer_in(folder: Path, number: int = 0, of: int = 1) -> TextWriter:
    made = TextWriter("out", folder, TaskOf(number, of, 1, folder), JsonLines("out"))
    made.begin()
    return made


def show(writer: TextWriter, number: int, final: bool = False) -> None:
    checkpoint = Checkpoint(number, 1, f"1-{number}-7-ab")
    assert writer.prepare(checkpoint, final)
    assert writer.prepared() == [checkpoint.name]
    writer.commit(checkpoint.name)
    writer.commit(checkpoint.name)
    assert writer.prepared() == []


def test_parquet_columns_follow_the_schema(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    declared = arrow.schema(
        [
            arrow.field("n", arrow.int32(), nullable=False), ("x", arrow.float64()), ("day", arrow.date32()),
            ("at", arrow.timestamp("us", "UTC")), ("price", arrow.decimal128(6, 2)), ("raw", arrow.binary()),
            ("k", arrow.string()), ("ok", arrow.bool_()),
        ]
    )  # fmt: skip
    builder = builder_in(tmp_path)
    records = [{"n": n, "price": n, "x": None if n < 40 else n, "other": object()} for n in range(50)]
    typed = builder.source([*records, {"n": 2**31}]).with_schema(declared, name="typed").filter(bool)
    typed.sink(to_files(tmp_path / "out", "parquet"), name="table")
    typed.map(dict, name="again").sink(collect(), name="all")
    run_online(builder, tmp_path)
    found = [arrow.parquet.read_table(file) for file in (tmp_path / "out").glob("*.parquet")]
    assert found
    assert all(table.schema.equals(declared) for table in found)
    letters: list[dict[str, Any]] = []
    rows = [row for table in found for row in table.to_pylist()]
    assert difference(rows, run(builder.build(), failed=letters)["all"]) == ""
    assert len(rows) == 50
    assert "which does not fit 32 bits" in letters[0]["error"]


def test_unsupported_arrow_types_are_rejected_by_name() -> None:
    arrow = pytest.importorskip("pyarrow")
    refused = [
        arrow.float32(),
        arrow.uint64(),
        arrow.timestamp("ns", "UTC"),
        arrow.timestamp("us"),
        arrow.list_(arrow.int64()),
    ]
    declared = arrow.schema([("ok", arrow.large_string()), *((f"f{n}", of) for n, of in enumerate(refused))])
    with pytest.raises(TopologyError) as raised:
        Builder("p").source([{}]).with_schema(declared)
    assert [problem.partition(",")[0] for problem in raised.value.problems] == [
        f"step 'schema': schema schema: field 'f{n}' has the type {str(of).partition(',')[0]}"
        for n, of in enumerate(refused)
    ]
    with pytest.raises(TopologyError, match="it names 'a' twice"):
        Builder("p").source([{}]).with_schema(arrow.schema([("a", arrow.int64()), ("a", arrow.int64())]))


def test_plugin_sink_writes_online_and_is_rejected_on_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offers = {"heronry.streamlet_sinks": {"sqlite": "wordplay.streamlet_sink:SqliteSink"}}
    monkeypatch.syspath_prepend(write_distribution(tmp_path / "site", "wordplay", offers))
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "examples" / "extensions")
    builder = builder_in(tmp_path)
    builder.source(list(range(50))).sink(sink_of("sqlite", path=str(tmp_path / "records.db")), name="table")
    run_online(builder, tmp_path)
    with closing(sqlite3.connect(tmp_path / "records.db")) as database:
        found = database.execute("SELECT step, record FROM records").fetchall()
    assert sorted(json.loads(record) for _, record in found) == list(range(50))
    assert {step for step, _ in found} == {"table"}
    with pytest.raises(CannotPlan, match="step 'table': the sink 'sqlite' serves the online engine only"):
        plan(builder.build())
    with pytest.raises(TopologyError, match=r"unknown streamlet sink 'sqlit'; known: .*did you mean 'sqlite'"):
        sink_of("sqlit")


@pytest.mark.parametrize("effect", ["", "at_least_once"])
def test_sink_without_exactly_once_is_reported_at_submission(tmp_path: Path, effect: str) -> None:
    @dataclass(frozen=True, slots=True)
    class Loose:
        path: str = str(tmp_path / "loose")
        kind: str = "loose"
        output_effect: str = effect

        def writer(self, step: str, task: str, folder: Path) -> Any:
            """Not called in this test."""

    builder = builder_in(tmp_path)
    source = builder.source(list(range(50)))
    source.sink(Loose(), name="loose")
    source.sink(to_files(tmp_path / "out"), name="exact")
    with importable(builder):
        definition = definition_of(builder)
    told = [spec.config[SHOWN_AGAIN] for spec in definition.components if SHOWN_AGAIN in spec.config]
    assert told == ([["loose"]] if effect else [])


def test_parquet_keeps_fields_of_some_records(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    rows = [
        {"id": n, **({"late": float(n)} if n % 3 == 2 else {}), **({"seldom": "x"} if n > 1500 else {})}
        for n in range(3000)
    ]
    builder = builder_in(tmp_path)
    builder.source(rows).sink(to_files(tmp_path / "out", "parquet"))
    run_online(builder, tmp_path)
    found = [record for record, _ in read_all(files(tmp_path / "out", "parquet"))]
    assert difference([{name: v for name, v in row.items() if v is not None} for row in found], rows) == ""


def test_record_that_does_not_fit_its_parquet_column_becomes_a_letter(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    builder = builder_in(tmp_path)
    # A block has 1024 records: fields of neighbouring blocks do not meet, but those of blocks 1 and 3 do.
    rows = [
        {"a": 1} if n < 1024 else {"b": 1} if n < 2048 else {"a": "text"} if n == 2048 else {"a": 2}
        for n in range(2060)
    ]
    builder.source([*rows, 7]).sink(to_files(tmp_path / "out", "parquet"))
    run_online(builder, tmp_path)
    found = [record for record, _ in read_all(files(tmp_path / "out", "parquet"))]
    kept = [row for number, row in enumerate(rows) if number != 2048]
    assert difference([{name: v for name, v in row.items() if v is not None} for row in found], kept) == ""
    aside = letters_in(tmp_path)
    assert [line["failed_on"] for line in aside] == [repr({"a": "text"}), "7"]
    assert "named fields" in aside[1]["error"]


def test_decimals_are_numbers_in_json(tmp_path: Path) -> None:
    builder = builder_in(tmp_path)
    builder.source([Decimal("0.10"), Decimal(3)]).map(lambda price: {"price": price}).sink(to_files(tmp_path / "out"))
    run_online(builder, tmp_path)
    assert difference(read(tmp_path / "out"), [{"price": 0.1}, {"price": 3}]) == ""


def test_final_marks_of_an_earlier_run_are_removed(tmp_path: Path) -> None:
    for mark in (
        "_final-out-0-of-2",
        "_final-out-1-of-2",
        "_final-out-2-0-of-1",
    ):  # the last one belongs to a step "out-2"
        (tmp_path / mark).touch()
    writers = [writer_in(tmp_path, task, 3) for task in range(3)]
    assert [mark.name for mark in tmp_path.iterdir()] == ["_final-out-2-0-of-1"]
    (tmp_path / "_final-out-2-0-of-1").unlink()
    for number, writer in enumerate(writers, 1):
        assert not finished(tmp_path)
        show(writer, number, final=True)
    assert finished(tmp_path)
    (tmp_path / "_final-out-1-of-2").touch()
    assert finished(tmp_path), "a mark of tasks of another number takes nothing away"


def test_line_breaks_inside_texts_are_preserved(tmp_path: Path) -> None:
    rows = [{"text": "one\u2028two\x85three\x1cfour\x0b\nfive"}]
    writer = writer_in(tmp_path)
    writer.take(writer.encode(Block(rows, None, None)))
    assert read(tmp_path) == []
    show(writer, 1)
    assert read(tmp_path) == rows


class FullDisk:
    """Replacement of ``os.write`` with room for a number of bytes."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._write = os.write

    def __call__(self, file: int, data: Any) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = self._write(file, data[: self.room])
        self.room -= done
        return done


def test_full_disk_leaves_no_partial_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = writer_in(tmp_path)
    blocks = [writer.encode(Block([{"n": number}] * 10, None, None)) for number in range(3)]
    disk = FullDisk(len(blocks[0]) + 5)
    monkeypatch.setattr(os, "write", disk)
    writer.take(blocks[0])
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            writer.take(blocks[1])
        disk.room = 3
    disk.room = 10_000
    show(writer, 1)
    writer.take(blocks[2])
    show(writer, 2)
    assert read(tmp_path) == [{"n": 0}] * 10 + [{"n": 2}] * 10


def test_prepared_output_may_be_settled_by_another_task(tmp_path: Path) -> None:
    first = writer_in(tmp_path, 0, 2)
    for number in (1, 2):
        first.take(first.encode(Block([number], None, None)))
        assert first.prepare(Checkpoint(number, 1, f"1-{number}-7-ab"), False)
    first.take(first.encode(Block([3], None, None)))
    first.close()  # not prepared
    second = writer_in(tmp_path, 1, 2)
    assert sorted(second.prepared()) == ["1-1-7-ab", "1-2-7-ab"]
    second.commit("1-1-7-ab")
    second.abort("1-2-7-ab")
    second.abort("1-2-7-ab")
    assert read(tmp_path) == [1]
    assert len(list(tmp_path.iterdir())) == 1
