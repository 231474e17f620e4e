"""Partition folders as fields: names, rejected files, and programs without partitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronry.api.errors import TopologyError
from heronry.streamlet import Builder, collect, files, to_files
from heronry.streamlet.decoding import read_all
from heronry.streamlet.online.locate import fingerprint
from heronry.streamlet.packed import ReadError
from heronry.streamlet.partitions import NO_VALUE, Folders, folder_of
from heronry.streamlet.reading import list_files, refusals
from tests.support.streamlets.online_engine import OnlineEngine, definition_of, importable


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
    assert list(Folders(declared.items()).put({"v": 1}, path).items()) == [("v", 1), *fields.items()]


TEXTS = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=8)


@given(st.dictionaries(TEXTS.filter(bool), st.one_of(st.none(), TEXTS), min_size=1, max_size=3))
def test_written_partition_folders_round_trip(record: dict[str, str | None]) -> None:
    """An empty text has no folder, so it is read as None."""
    folder = folder_of(record, list(record))
    found = Folders((name, "str") for name in record).of(f"/{folder}/a")
    assert found == {name: value or None for name, value in record.items()}


def written(folder: Path, form: str) -> Path:
    """Write two files of the format into partition folders."""
    for name, row in (("day=1/k=a%20b/x", {"v": 1, "k": "of the row"}), (f"day=2/k={NO_VALUE}/y", {"v": 2, "k": "?"})):
        place = folder / form / name
        place.parent.mkdir(parents=True)
        if form == "parquet":
            arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
            parquet.write_table(arrow.Table.from_pylist([row]), place)
        else:
            place.write_text(json.dumps(row) + "\n" if form == "json" else f"v,k\n{row['v']},{row['k']}\n")
    return folder / form


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_records_of_every_format_have_partition_fields(form: str, tmp_path: Path) -> None:
    source = files(written(tmp_path, form), form, partitions={"day": "int", "k": "str"})
    one, two = ("1", "2") if form == "csv" else (1, 2)
    expected = [{"v": one, "k": "a b", "day": 1}, {"v": two, "k": None, "day": 2}]
    assert [record for record, _ in read_all(source)] == expected
    builder, found = Builder("p"), []
    builder.source(source, name="in").tap(found.append, name="end")
    with importable(builder):
        world = OnlineEngine(definition_of(builder), tmp_path, 1)
        world.until_final()
        world.stop()
    assert sorted(found, key=lambda record: record["day"]) == expected


def test_partition_fields_complement_the_schema(tmp_path: Path) -> None:
    source = files(written(tmp_path, "csv"), "csv", schema={"v": "int"}, partitions="day")
    assert [record for record, _ in read_all(source)] == [{"v": 1, "day": "1"}, {"v": 2, "day": "2"}]


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
