"""Dead letters: failing records are set aside singly, with their place, up to a limit; the rest is processed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heron_runtime.failures import UsageError
from heronry.streamlet import Builder, archive, collect, files, monoid, to_files
from heronry.streamlet.aside import FailurePolicy, policy_of
from heronry.streamlet.decoding import read_all
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.reference import run
from heronry.streamlet.results import latest, read
from tests.support.streamlets.online_engine import OnlineEngine, builder_in, definition_of, letters_in, run_online


def ended(builder: Builder, folder: Path, seed: int = 1) -> tuple[OnlineEngine, list[dict[str, Any]]]:
    """Run the program to its end; return the engine and the letters."""
    return run_online(builder, folder, seed), letters_in(folder)


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


class Mute(Exception):
    """Error that has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def mute(record: dict[str, Any]) -> Any:
    raise Mute


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (lambda s: s.map(mute, name="bad"), "<Mute, whose repr raises RuntimeError>"),
        (lambda s: s.flat_map(lambda r: [5 // r.pop("n")], name="bad"), "ZeroDivisionError("),
        (lambda s: s.filter(lambda r: np.zeros(2), name="bad"), "ValueError('The truth value of an array"),
    ],
)
def test_letter_names_the_error_of_the_function(tmp_path: Path, step: Any, error: str) -> None:
    builder = builder_in(tmp_path)
    step(builder.source([{"n": 0}])).sink(collect())
    _, aside = ended(builder, tmp_path)
    expected: list[dict[str, Any]] = []
    run(builder.build(), failed=expected)
    for letters in (aside, expected):
        assert [(line["step"], line["error"].startswith(error)) for line in letters] == [("bad", True)]


LINES = ['{"n": 1}', "", "no json", '{"n": 0}', '{"n": 4}', '{"n": "text"}', '{"m": 1}', '{"n": 5}']
WRONG = [("source", 3), ("divide", 4), ("source", 6), ("divide", 7)]


def dirty(folder: Path, **config: Any) -> Builder:
    place = folder / "in" / "dirty.json"
    place.parent.mkdir()
    place.write_text("\n".join(LINES))
    builder = builder_in(folder, **config)
    source = builder.source(files(folder / "in", "json", schema={"n": "int"}))
    divided = source.map(lambda record: 20 // record["n"], name="divide")
    divided.sink(to_files(folder / "out"), name="out")
    divided.key_by().count_by_key(name="counts").sink(collect(), name="counted")
    return builder


def places(letters: list[dict[str, Any]], folder: Path) -> list[tuple[str, int]]:
    found = [(line["step"], line["where"].partition(", line ")) for line in letters]
    assert {name for _, (name, _, _) in found} == {f"{folder}/in/dirty.json"}
    return sorted(((step, int(number)) for step, (_, _, number) in found), key=lambda pair: pair[1])


def test_letter_has_file_and_line(tmp_path: Path) -> None:
    _, letters = ended(dirty(tmp_path), tmp_path)
    assert places(letters, tmp_path) == WRONG
    assert sorted(read(tmp_path / "out")) == [4, 5, 20]
    assert [line["record"] for line in letters if line["step"] == "divide"] == [{"n": 0}, {"n": None}]
    unread = [(line["record"], line["error"]) for line in letters if line["step"] == "source"]
    assert [record for record, _ in unread] == ["no json\n", '{"n": "text"}\n']
    assert ["line 3" in unread[0][1], "line 6" in unread[1][1]] == [True, True]


def test_reference_writes_the_same_letters_if_requested(tmp_path: Path) -> None:
    letters: list[dict[str, Any]] = []
    program = dirty(tmp_path).build()
    found = run(program, failed=letters)
    assert places(letters, tmp_path) == WRONG
    assert sorted(found["out"]) == [4, 5, 20]
    assert sorted(tuple(result) for result in found["counted"]) == [(4, 1), (5, 1), (20, 1)]
    with pytest.raises((StepFailed, ValueError)):
        run(program)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"user.streamlet.aside.most": 2}, "has put 2 records aside, as many as user.streamlet.aside.most allows"),
        ({"user.streamlet.on.error": "fail"}, "dirty.json, line 3: no JSON"),
    ],
)
def test_limit_or_fail_policy_fails_the_topology(tmp_path: Path, config: dict[str, Any], says: str) -> None:
    """All tasks restore the last checkpoint and meet the record again until the topology has failed."""
    with pytest.raises(AssertionError, match=f"the topology has failed: .*{says}"):
        ended(dirty(tmp_path, **config), tmp_path)
    assert letters_in(tmp_path) == [], "nothing of it was committed"
    assert list(read(tmp_path / "out")) == []


def misspelt(folder: Path, records: list[dict[str, Any]]) -> Builder:
    place = folder / "in" / "clicks.json"
    place.parent.mkdir()
    place.write_text("\n".join(map(json.dumps, records)))
    builder = builder_in(folder)
    clicks = builder.source(files(folder / "in", "json"))
    clicks.key_by("usr").count_by_key(name="counts").sink(collect(), name="counted")
    return builder


def test_misspelt_key_fails_the_topology_with_a_hint(tmp_path: Path) -> None:
    says = "all of the first 100 records of task .* failed; step .*no field .usr., it has .user."
    with pytest.raises(AssertionError, match=f"the topology has failed: .*{says}"):
        ended(misspelt(tmp_path, [{"user": n} for n in range(150)]), tmp_path)


def test_bad_records_among_good_ones_become_letters(tmp_path: Path) -> None:
    records = [{"user": n} for n in range(50)] + [{"usr": 1}] + [{"user": n} for n in range(150)]
    assert len(ended(misspelt(tmp_path, records), tmp_path)[1]) == 200


def test_policy_is_validated_at_submission(tmp_path: Path) -> None:
    assert policy_of({}) == FailurePolicy(True, 10_000)
    assert policy_of({"user.streamlet.on.error": "fail", "user.streamlet.aside.most": "7"}) == FailurePolicy(False, 7)
    for key, value in (("on.error", "asid"), ("aside.most", -1)):
        builder = Builder("p", {f"user.streamlet.{key}": value})
        builder.source([1]).sink(collect())
        with pytest.raises(UsageError, match=key):
            definition_of(builder)
