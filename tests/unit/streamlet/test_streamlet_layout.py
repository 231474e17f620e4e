"""Layouts of files that programs read and write: formats, compression, partition folders, and CSV cells."""

from __future__ import annotations

import gzip
import importlib.util
import math
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronry import TopologyError
from heronry.streamlet import Builder, collect, files, sequence, to_files
from heronry.streamlet.decoding import read_all
from heronry.streamlet.online.locate import fingerprint
from heronry.streamlet.packed import ReadError
from heronry.streamlet.partitions import NO_VALUE, Folders, cells, csv_lines, folder_of
from heronry.streamlet.reading import LineReader, list_files, refusals
from heronry.streamlet.reference import run
from heronry.streamlet.results import read
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.online_engine import (
    OnlineEngine,
    builder_in,
    definition_of,
    ends_online,
    importable,
    letters_in,
)
from tests.support.streamlets.random_files import EVERY, PACK, RECIPES, Recipe


def records(source: Any) -> list[Any]:
    return [record for record, _ in read_all(source)]


def check_engines(recipe: Recipe, seed: int) -> None:
    """Check the records of the files, and that both engines reduce them equally."""
    with tempfile.TemporaryDirectory() as place:
        build = partial(recipe.build, recipe.write(Path(place)))
        program = build().build()
        expected = list(run(program).values())
        assert difference(expected[0], recipe.records()) == ""
        for number, (ours, theirs) in enumerate(zip(expected, ends_online(build, seed), strict=True)):
            assert difference(ours, theirs) == "", f"end {number} of {program.describe()}"


@pytest.mark.parametrize("recipe", EVERY, ids=lambda made: f"{made.form}-{made.typed}-{made.partitioned}")
def test_every_format_and_compression_is_read_online(recipe: Recipe) -> None:
    check_engines(recipe, 1)


@settings(max_examples=25)  # each example is a whole run
@given(RECIPES, st.integers(0, 100))
def test_files_of_any_layout_are_read_online(recipe: Recipe, seed: int) -> None:
    check_engines(recipe, seed)


# Compressed files.

PLAIN = b"".join(b"line %d \xc3\xa4\r\n" % number for number in range(60_000)) + b"the last one"


def all_of(source: Any, end: Any, **config: Any) -> Builder:
    builder = Builder("packed", config)
    end(builder.source(source))
    return builder


@pytest.mark.parametrize("ending", sorted(PACK)[1:])
def test_compressed_file_is_read_like_its_content(tmp_path: Path, ending: str) -> None:
    pack = PACK[ending]
    half = len(PLAIN) // 2
    (tmp_path / f"text{ending}").write_bytes(pack(PLAIN[:half]) + pack(PLAIN[half:]))  # two members in one file
    source = files(tmp_path, "text")
    expected = PLAIN.decode().replace("\r", "").split("\n")
    assert records(source) == expected
    assert sorted(ends_online(partial(all_of, source))[0]) == sorted(expected)
    reader, offset, number = LineReader(source, f"text{ending}"), 0, 0
    while (piece := reader.read()) is not None:
        again = LineReader(source, f"text{ending}", offset, number)
        assert again.read(piece.next_offset - offset) == piece
        again.close()
        offset, number = piece.next_offset, piece.next_number
    reader.close()


@pytest.mark.parametrize("ending", sorted(PACK)[1:])
@pytest.mark.parametrize("harm", ["cut", "changed", "none of it"])
def test_damaged_compressed_file_is_named(tmp_path: Path, ending: str, harm: str) -> None:
    data = PACK[ending](PLAIN)
    middle = len(data) // 2
    harmed = {
        "cut": data[:middle], "changed": data[:middle] + bytes(255 - b for b in data[middle:-8]) + data[-8:],
        "none of it": PLAIN,
    }[harm]  # fmt: skip
    (tmp_path / f"a{ending}").write_bytes(harmed)
    with pytest.raises(ReadError, match=rf"a\{ending} cannot be read as \{ending} \(.+\): it is cut off or damaged"):
        records(files(tmp_path, "text"))


def test_compressed_csv_in_a_growing_folder_is_read(tmp_path: Path) -> None:
    rows = b"a,b\n" + b"".join(b"%d,x\n" % n for n in range(50_000))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(rows.removesuffix(b"\n")))
    source = files(tmp_path, "csv", grows=True, schema={"a": "int"})
    assert records(source) == [{"a": n} for n in range(50_000)]


@pytest.mark.parametrize("name", ["a.lz4", "a.txt.zip", "a.tar.gz", "A.TGZ", "deep/a.Z"])
def test_unsupported_compression_is_rejected_at_submission(tmp_path: Path, name: str) -> None:
    place = tmp_path / "in" / name
    place.parent.mkdir(parents=True)
    place.write_bytes(b"x")
    builder = Builder("refused")
    builder.source(files(tmp_path / "in", "json")).sink(collect())
    with pytest.raises(TopologyError, match=f"step 'source': '.*{Path(name).name}': no engine reads files packed like"):
        definition_of(builder)
    with pytest.raises(ReadError, match="no engine reads"):
        run(builder.build())


def test_zst_without_pyarrow_is_rejected_at_submission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyarrow" else found(name))
    (tmp_path / "a.zst").write_bytes(b"x")
    builder = Builder("refused")
    builder.source(files(tmp_path / "a.zst", "text")).sink(collect())
    with pytest.raises(TopologyError, match=r"a\.zst'?: \.zst needs pyarrow, which is not installed"):
        definition_of(builder)


# Partition folders as fields.


SCHEMA = {"s": "str", "n": "int", "x": "float", "b": "bool"}
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0"), max_size=8)


@pytest.mark.parametrize(
    ("declared", "path", "fields"),
    [
        ({"day": "str"}, "/in/day=2026-01-01/a", {"day": "2026-01-01"}),
        ({"n": "int", "day": "str"}, "/in/day=x/n=-07/deeper/more=1/a", {"n": -7, "day": "x"}),
        ({"k": "str"}, "/in/k=a%20b%2Fc%c3/a", {"k": "a b/c\xc3"}),
        ({"k": "str"}, "/in/k=100%/a", {"k": "100%"}),
        ({"k": "str"}, "/in/k=%zz%4/a", {"k": "%zz%4"}),
        ({"k": "str"}, "/in/k=a=b/a", {"k": "a=b"}),
        ({"k": "str"}, "/in/k=/a", {"k": ""}),
        ({"a b": "str"}, "/in/a%20b=1/a", {"a b": "1"}),
        ({"k": "str", "n": "int"}, f"/in/k={NO_VALUE}/n={NO_VALUE}/a", {"k": None, "n": None}),
        ({"k": "str"}, "/k=outer/in/k=inner/a", {"k": "inner"}),
        ({"k": "str"}, "/in/k=x/k=no-folder", {"k": "x"}),
    ],
)
def test_partition_folders_become_fields(declared: dict[str, str], path: str, fields: dict[str, Any]) -> None:
    assert Folders(declared.items()).of(path) == fields
    record = {"v": 1, **dict.fromkeys(fields, "of the record")}
    assert list(Folders(declared.items()).put(record, path).items()) == [("v", 1), *fields.items()]


@given(st.dictionaries(TEXT.filter(bool), st.one_of(st.none(), TEXT), min_size=1, max_size=3))
def test_written_partition_folders_round_trip(record: dict[str, str | None]) -> None:
    """An empty text has no folder, so it is read as None."""
    folder = folder_of(record, list(record))
    found = Folders((name, "str") for name in record).of(f"/{folder}/a")
    assert found == {name: value or None for name, value in record.items()}


@pytest.mark.parametrize(
    ("name", "declared", "told"),
    [
        ("day=1/a", ["day", "hour"], "day=1/a is not in a folder hour=…"),
        ("a", ["day", "hour"], "a is not in a folder day=…/hour=…"),
        ("Day=1/a", ["day"], "is not in a folder day=…"),
        ("day=1x/a", {"day": "int"}, "'1x' in day=1x is not an int"),
        ("day=/a", {"day": "int"}, "'' in day= is not an int"),
        ("day=²/a", {"day": "int"}, "is not an int"),
    ],
)
def test_file_outside_of_its_partition_folder_is_rejected(name: str, declared: Any, told: str, tmp_path: Path) -> None:
    place = tmp_path / name
    place.parent.mkdir(exist_ok=True)
    place.write_text("{}\n")
    builder = Builder("p")
    builder.source(files(tmp_path, "json", partitions=declared), name="in").sink(collect())
    with pytest.raises(ReadError, match=str(place)) as refused:
        list_files(files(tmp_path, "json", partitions=declared))
    assert told in str(refused.value)
    assert [told in line and "step 'in'" in line for line in refusals(builder.build())] == [True]
    with pytest.raises(ReadError):
        list_files(files(place, "json", partitions=declared))


def test_record_without_fields_is_named(tmp_path: Path) -> None:
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "a").write_text("{}\n[1]\n")
    with pytest.raises(ReadError, match=r"day=1/a, line 2: the record has no fields.*\[1\]"):
        list(read_all(files(tmp_path, "json", partitions=["day"])))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"partitions": ["a", "a"]}, "write each name of a field once"),
        ({"partitions": [""]}, "write each name of a field once"),
        ({"partitions": {"a": "float"}}, "the type of partition 'a' is 'float'; write one of str, int"),
        ({"partitions": ["a"], "format": "text"}, "does not accept partitions"),
        ({"partitions": ["a"], "format": "archive"}, "does not accept partitions"),
        ({"partitions": ["a"], "schema": {"a": "str"}}, "in its schema and in its partitions"),
    ],
)
def test_invalid_partition_declaration_is_rejected(options: dict[str, Any], told: str) -> None:
    with pytest.raises(TopologyError, match=told):
        files("/in", **options)


def test_fingerprint_without_partitions_is_unchanged() -> None:
    """A topology submitted by an older release must find its program."""
    marks = []
    for partitions in ([], ["day"]):
        builder = Builder("p")
        source = files("/in", "json", schema={"k": "str"}, by_hour=True, partitions=partitions)
        counts = builder.source(source, name="in").key_by("k").count_by_key(name="n")
        counts.sink(to_files("/out"), name="out")
        marks.append(fingerprint(builder.build()))
    assert marks[0] == "42bbf10ef6bce31f"
    assert marks[1] != marks[0]


# Files and folders that sinks write.

RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "s": TEXT,
            "n": st.one_of(st.none(), st.integers(-(10**20), 10**20)),
            "x": st.one_of(st.none(), st.floats(allow_nan=False)),
            "b": st.one_of(st.none(), st.booleans()),
        }
    ),
    max_size=6,
)


def come_back(records: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lines = csv_lines([[*SCHEMA], *(cells(record, [*SCHEMA]) for record in records)])
        Path(folder, "a.csv").write_bytes(lines)
        found = [record for record, _ in read_all(files(folder, "csv", schema=SCHEMA))]
    assert found == records


@given(RECORDS)
def test_csv_lines_round_trip(records: list[Any]) -> None:
    come_back(records)


def test_awkward_csv_records_round_trip() -> None:
    come_back([{"s": 'a,"b"', "n": None, "x": 1e300, "b": True}, {"s": " ", "n": -(10**20), "x": None, "b": None}])


def test_partition_folder_name_is_escaped() -> None:
    assert folder_of({"a": "x/y=%", "b": None}, ["a", "b"]) == f"a=x%2Fy%3D%25/b={NO_VALUE}"


@given(st.one_of(st.none(), TEXT, st.integers(), st.booleans()), TEXT)
def test_partition_folder_name_encodes_the_value(value: Any, name: str) -> None:
    found = folder_of({f"f{name}": value, "other": 1}, [f"f{name}"])
    assert "/" not in found
    _, _, text = found.partition("=")
    text = bytes(text, "utf-8").decode()
    for code in {ord(c) for c in "\"#%'*/:=?\\{[]^\x7f"} | set(range(32)):
        if chr(code) != "%":
            assert chr(code) not in text
            text = text.replace(f"%{code:02X}", chr(code))
    assert text.replace("%25", "%") == (cells({"v": value}, ["v"])[0] or NO_VALUE)


def test_value_without_a_cell_or_folder_is_rejected() -> None:
    for value, error in (([1], "a list cannot be a csv cell"), ("a\nb", "has a line break")):
        with pytest.raises((TypeError, ValueError), match=error):
            cells({"a": value}, ["a"])
    with pytest.raises(ValueError, match="longer than 255 bytes"):
        folder_of({"a": "ä" * 130}, ["a"])
    with pytest.raises(TypeError, match="a record for csv has named fields"):
        cells(3, ["a"])
    assert cells({"a": math.inf}, ["a", "b"]) == ["inf", None]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: to_files("x", "csv"), "needs fields="),
        (lambda: to_files("x", "csv", fields="ab"), "fields of to_files"),
        (lambda: to_files("x", "csv", fields=["a", "A"]), "names a field twice"),
        (lambda: to_files("x", fields=["a"]), "does not accept fields"),
        (lambda: to_files("x", partition_by=["a", "a"]), "names a field twice"),
        (lambda: to_files("x", partition_by=[1]), "partition_by of to_files"),
        (lambda: to_files("x", partition_by="_a"), "would hide its folders"),
    ],
)
def test_invalid_file_sink_is_rejected(make: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        make()


def test_fault_leaves_each_record_once_in_its_folder(tmp_path: Path) -> None:
    builder = builder_in(tmp_path)

    def record(n: int) -> dict[str, Any]:
        return {"n": n, "by": None if n % 7 == 0 else f"a/{n % 3}", "bad": [n] if n == 50 else n}

    records = builder.source(sequence(90, record, rate=20), parallelism=2)
    records.sink(to_files(tmp_path / "json", partition_by="by"), name="json")
    records.sink(to_files(tmp_path / "csv", "csv", fields=["n", "by"], partition_by=["by", "n"]), name="folders")
    records.map(lambda record: record, name="same", parallelism=3).sink(
        to_files(tmp_path / "plain", "csv", fields=["n", "bad"]), name="plain"
    )
    with importable(builder):
        world = OnlineEngine(definition_of(builder), tmp_path, 1)
        world.run_on(2.6)
        world.kill(world.plan.tasks_of("same")[0])
        world.until_final()
        world.stop()
    truth = run(builder.build())["json"]
    assert {folder.name for folder in tmp_path.glob("json/[!._]*")} == {
        f"by={NO_VALUE}", "by=a%2F0", "by=a%2F1", "by=a%2F2",
    }  # fmt: skip
    for folder in tmp_path.glob("json/by=a*"):
        assert {record["by"] for record in read(folder)} == {folder.name[3:].replace("%2F", "/")}
    assert difference(read(tmp_path / "json"), truth) == ""
    found = [record for record, _ in read_all(files(tmp_path / "csv", "csv", schema={"n": "int", "by": "str"}))]
    assert difference(found, [{"n": r["n"], "by": r["by"] or ""} for r in truth]) == ""
    assert len(list(tmp_path.glob("csv/by=*/n=*/*.csv"))) == 90
    plain = [record for record, _ in read_all(files(tmp_path / "plain", "csv", schema={"n": "int", "bad": "int"}))]
    assert difference(plain, [{"n": r["n"], "bad": r["n"]} for r in truth if r["n"] != 50]) == ""
    assert [(letter["step"], letter["record"]) for letter in letters_in(tmp_path)] == [("plain", 50)]


def test_none_and_empty_text_are_distinct_csv_cells() -> None:
    rows = [cells({"a": None, "b": ""}, ["a", "b"]), cells({"b": 'x,"y"'}, ["a", "b"])]
    assert csv_lines(rows) == b',""\n,"x,""y"""\n'
    assert csv_lines([cells({"a": None}, ["a"])]) == b'""\n', "a line with nothing in it is not a record"
