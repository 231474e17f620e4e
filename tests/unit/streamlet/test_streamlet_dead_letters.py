"""Dead letters of a program: failing records are set aside singly, named and counted; the rest is processed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heronry.streamlet import Builder, archive, files, monoid, to_files
from heronry.streamlet.decoding import read_all
from heronry.streamlet.reference import run
from heronry.streamlet.results import latest, read
from tests.support.streamlets.online_engine import OnlineEngine, definition_of, importable


def ended(builder: Builder, folder: Path, seed: int = 1) -> tuple[OnlineEngine, list[dict[str, Any]]]:
    """Run the program to its end; return the engine and the letters."""
    with importable(builder):
        world = OnlineEngine(definition_of(builder), folder, seed)
        world.until_final()
        world.stop()
    found = [json.loads(line) for f in sorted(folder.glob("own/failed/*.jsonl")) for line in f.read_text().splitlines()]
    return world, found


def builder_in(folder: Path, **config: Any) -> Builder:
    return Builder("aside", {"user.streamlet.folder": f"{folder}/own", **config})


def test_failing_record_becomes_a_letter_by_default(tmp_path: Path) -> None:
    tries: list[int] = []

    def picky(record: int) -> int:
        if record in (700, 2100):
            tries.append(record)
            raise ValueError(f"not {record}")
        return record

    builder = builder_in(tmp_path)
    builder.source(range(3000)).map(picky).map(str, parallelism=2, name="text").sink(to_files(tmp_path / "out"))
    world, aside = ended(builder, tmp_path)
    assert sorted(map(int, read(tmp_path / "out"))) == [n for n in range(3000) if n not in (700, 2100)]
    assert [(line["step"], line["failed_on"], line["error"]) for line in aside] == [
        ("picky", "700", "ValueError('not 700')"),
        ("picky", "2100", "ValueError('not 2100')"),
    ]
    assert "in picky" in aside[0]["traceback"]
    assert world.failures == []
    (bolt,) = world.objects("picky")
    assert bolt.letters.count.get_value() == 2


def test_unreadable_line_becomes_a_letter_with_its_file(tmp_path: Path) -> None:
    text = tmp_path / "in.json"
    text.write_text('{"a": 1}\nno json\n{"a": 2}\n{"a": "x"}\n{"a": 3}\n')
    builder = builder_in(tmp_path)
    builder.source(files(text, "json", schema={"a": "int"})).sink(to_files(tmp_path / "out"))
    _, aside = ended(builder, tmp_path)
    assert sorted(record["a"] for record in read(tmp_path / "out")) == [1, 2, 3]
    assert [line["record"] for line in aside] == ["no json\n", '{"a": "x"}\n']
    assert all(str(text) in line["where"] for line in aside)
    assert f"{text}, line 2" in aside[0]["error"]
    assert f"{text}, line 4" in aside[1]["error"]


def test_too_deeply_nested_json_becomes_a_letter_with_its_line(tmp_path: Path) -> None:
    text, deep = tmp_path / "in.json", "[" * 1200 + "]" * 1200
    text.write_text(f'{{"a": 1}}\n{deep}\n{{"a": 2}}\n')
    builder = builder_in(tmp_path)
    builder.source(files(text, "json")).sink(to_files(tmp_path / "out"))
    _, aside = ended(builder, tmp_path)
    assert sorted(record["a"] for record in read(tmp_path / "out")) == [1, 2]
    letters: list[dict[str, Any]] = []
    run(builder.build(), failed=letters)
    assert [line["where"] for line in aside] == [line["where"] for line in letters] == [f"{text}, line 2"]


def test_row_outside_of_pythons_range_becomes_a_letter_alone(tmp_path: Path) -> None:
    table, beyond = tmp_path / "in.parquet", 400_000_000_000  # the year 14645, in seconds
    times = pa.array([0, beyond, 1], pa.timestamp("s"))
    pq.write_table(pa.table({"n": [1, 2, 3], "at": times.cast(pa.timestamp("us"))}), table)
    builder = builder_in(tmp_path)
    builder.source(files(table, "parquet")).map(lambda record: record["n"]).sink(to_files(tmp_path / "out"))
    _, aside = ended(builder, tmp_path)
    assert sorted(read(tmp_path / "out")) == [1, 3]
    letters: list[dict[str, Any]] = []
    run(builder.build(), failed=letters)
    assert [line["where"] for line in aside] == [line["where"] for line in letters] == [f"{table}, row 2"]
    assert f"{beyond * 1_000_000}" in str(aside[0]["record"])


def test_time_beyond_the_year_9999_becomes_a_letter_of_the_archive(tmp_path: Path) -> None:
    builder = builder_in(tmp_path)
    times = {1: 0, 2: 400_000_000_000, 3: 5}
    stream = builder.source([1, 2, 3]).map(lambda n: {"n": n, "at": times[n]})
    stream.sink(archive(tmp_path / "archive", event_time="at"))
    _, aside = ended(builder, tmp_path)
    assert [line["record"] for line in aside] == [1], "counted from 0"
    assert "outside the years 1 to 9999" in aside[0]["error"]
    kept = [record["n"] for record, _ in read_all(files(tmp_path / "archive", "archive"))]
    assert sorted(kept) == [1, 3]


def test_only_unreadable_lines_of_a_csv_become_letters(tmp_path: Path) -> None:
    text = tmp_path / "in.csv"
    text.write_text('a,b\n1,5" pipe\n2,"open\n3,x\n4,stray\rreturn\n5,"last\n')
    builder = builder_in(tmp_path)
    builder.source(files(text, "csv")).sink(to_files(tmp_path / "out"))
    _, aside = ended(builder, tmp_path)
    assert sorted(record["a"] for record in read(tmp_path / "out")) == ["1", "3"]
    assert [f"{text}, line {number}:" in line["error"] for line, number in zip(aside, (3, 5, 6), strict=True)] == [
        True
    ] * 3


def test_reducer_failures_become_letters_and_the_rest_counts_once(tmp_path: Path) -> None:
    def add(a: Any, b: Any) -> Any:
        return a + b

    def finish(total: Any) -> Any:
        if total == 5:
            raise ArithmeticError("five")
        return total

    rows = [("a", 1), ("b", 2), ("c", 5), ("a", 3)]
    builder = builder_in(tmp_path)
    own = monoid(0, add, finish)
    source = builder.source([*rows, *[("d", 1)] * 3000, ("d", "text")])
    source.reduce_by_key(own, value=1, key=0, updates=False, name="own").sink(to_files(tmp_path / "out"))
    _, aside = ended(builder, tmp_path)
    assert dict(latest(read(tmp_path / "out"))) == {"a": 4, "b": 2, "d": 3000}
    assert {line["step"] for line in aside} == {"own"}
    assert [line["error"] for line in aside if "five" in line["error"]] == ["ArithmeticError('five')"]
    assert any("TypeError" in line["error"] for line in aside)


@pytest.mark.parametrize("behind", [None, 2])
def test_failure_downstream_of_a_reducer_becomes_a_letter(tmp_path: Path, behind: int | None) -> None:
    """The failing step runs in the reducer's process or in another one."""

    def picky(row: Any) -> Any:
        if row.key == "b":
            raise ValueError("no b")
        return row

    builder = builder_in(tmp_path)
    counts = builder.source(list("abcabc")).key_by().count_by_key(updates=False, name="counts")
    counts.map(picky, parallelism=behind).sink(to_files(tmp_path / "out"))
    _, aside = ended(builder, tmp_path)
    assert dict(latest(read(tmp_path / "out"))) == {"a": 2, "c": 2}
    assert {(line["step"], line["error"]) for line in aside} == {("picky", "ValueError('no b')")}


def test_record_that_cannot_be_pickled_becomes_a_letter(tmp_path: Path) -> None:
    builder = builder_in(tmp_path)
    odd = builder.source(range(5)).map(lambda n: (lambda: n) if n == 3 else n, name="odd")
    odd.map(lambda n: n, parallelism=2, name="same").sink(to_files(tmp_path / "out"))
    _, aside = ended(builder, tmp_path)
    assert sorted(read(tmp_path / "out")) == [0, 1, 2, 4]
    assert [(line["step"], line["record"]) for line in aside] == [("odd", 3)]
    assert "pickle" in aside[0]["error"]


def test_exceeded_limit_fails_the_topology_and_names_the_record(tmp_path: Path) -> None:
    builder = builder_in(tmp_path, **{"user.streamlet.aside.most": 2})
    builder.source(["1", "x", "y", "z"]).map(int).sink(to_files(tmp_path / "out"))
    with pytest.raises(AssertionError, match=r"the topology has failed: .*TooManyFailures: .* 2 records .* 'z'"):
        ended(builder, tmp_path)
