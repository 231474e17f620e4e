"""CSV files and folders partitioned by field values: round trip, online and after a fault."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronry import TopologyError
from heronry.streamlet import Builder, files, sequence, to_files
from heronry.streamlet.decoding import read_all
from heronry.streamlet.partitions import NO_VALUE, cells, csv_lines, folder_of
from heronry.streamlet.reference import run
from heronry.streamlet.results import read
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.online_engine import OnlineEngine, definition_of, importable

SCHEMA = {"s": "str", "n": "int", "x": "float", "b": "bool"}
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0"), max_size=8)
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
    builder = Builder("folders", {"user.streamlet.folder": f"{tmp_path}/own"})

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
    letters = [
        json.loads(line) for file in tmp_path.glob("own/failed/*.jsonl") for line in file.read_text().splitlines()
    ]
    assert [(letter["step"], letter["record"]) for letter in letters] == [("plain", 50)]


def test_none_and_empty_text_are_distinct_csv_cells() -> None:
    rows = [cells({"a": None, "b": ""}, ["a", "b"]), cells({"b": 'x,"y"'}, ["a", "b"])]
    assert csv_lines(rows) == b',""\n,"x,""y"""\n'
    assert csv_lines([cells({"a": None}, ["a"])]) == b'""\n', "a line with nothing in it is not a record"
