"""Reading and writing of files: pieces, numbers, formats, offsets and archives."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronry.streamlet import Builder, collect, files
from heronry.streamlet.decoding import Decoder, read_all
from heronry.streamlet.program import KeyValue, Windowed
from heronry.streamlet.reading import LineReader, ReadError, list_files, missing, open_reader, refusals
from heronry.streamlet.reference import run
from heronry.streamlet.results import finished, latest, read

TEXTS = st.text(st.sampled_from('aß\r\n "{},;1'), max_size=60)


@given(text=TEXTS, size=st.integers(1, 9), grows=st.booleans())
def test_pieces_join_to_the_file_and_can_be_reread(
    text: str, size: int, grows: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("pieces") / "text"
    path.write_bytes(text.encode())
    source = files(path, "text", grows=grows)
    reader = LineReader(source, "")
    pieces = []
    while (piece := reader.read(size)) is not None:
        pieces.append(piece)
    reader.close()
    whole = text.encode()
    expected = whole if not grows else whole[: whole.rfind(b"\n") + 1]
    assert b"".join(piece.data for piece in pieces) == expected
    offset = number = 0
    lines: list[str] = []
    for piece in pieces:
        assert piece.first == number
        again = LineReader(source, "", offset, number)
        assert again.read(piece.next_offset - offset) == piece
        again.close()
        offset, number = piece.next_offset, piece.next_number
        lines += Decoder(source).decode("", piece).records
    plain = expected.decode().split("\n")
    assert lines == [line.removesuffix("\r") for line in (plain if plain[-1] else plain[:-1])]
    assert number == len(lines)


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines))
    return path


def records(source: Any) -> list[Any]:
    return [record for record, _ in read_all(source)]


def test_text_json_and_csv_are_read_with_and_without_schema(tmp_path: Path) -> None:
    text = write(tmp_path / "a.txt", "one", "", "two\r")
    assert records(files(text, "text")) == ["one", "", "two"]
    lines = write(tmp_path / "a.json", '{"a": 1, "b": "x"}', "  ", "[1]", "12345678901234567890123")
    assert records(files(lines)) == [{"a": 1, "b": "x"}, [1], 12345678901234567890123]
    table = write(tmp_path / "a.csv", "a;b;c", '1;"x;y";', "", "2;;TRUE")
    assert records(files(table, "csv", delimiter=";")) == [
        {"a": "1", "b": "x;y", "c": ""}, {"a": "2", "b": "", "c": "TRUE"},
    ]  # fmt: skip
    schema = {"a": "int", "b": "str", "c": "bool", "d": "float"}
    assert records(files(table, "csv", delimiter=";", schema=schema)) == [
        {"a": 1, "b": "x;y", "c": None, "d": None}, {"a": 2, "b": "", "c": True, "d": None},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("format", "lines", "schema", "text"),
    [
        ("json", ['{"a": 1}', "", "{a}"], None, r"a\.txt, line 3: no JSON"),
        ("json", ["1,2"], None, "line 1: no JSON"),
        ("json", ["[1", "2],3"], None, "line 1: no JSON"),
        ("csv", ["a,b", "1,2", "3"], None, "line 3: 1 fields where the header has 2"),
        ("csv", ["a", "1", '"x', 'y"', "2"], None, "line 3: a quoted field goes over the end of its line.*'\"x'"),
        ("csv", ["a", "1", '"x'], None, "line 3: a quoted field goes over the end of its line"),
        ("csv", ["a", "1", "x\ry"], None, "line 3: new-line character"),
        ("json", ['{"a": 1}', '{"a": "x"}'], {"a": "int"}, "line 2: .* does not fit the schema: .*'x'"),
        ("json", ['{"a": true}'], {"a": "int"}, "True is not an int"),
    ],
)
def test_unreadable_line_is_named(
    tmp_path: Path, format: str, lines: list[str], schema: dict[str, str] | None, text: str
) -> None:
    source = files(write(tmp_path / "a.txt", *lines), format, schema=schema)
    with pytest.raises(ReadError, match=text):
        records(source)


def test_json_line_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"a": 1}\n"\xcf"\n')
    with pytest.raises(ReadError, match=r"a\.json, line 2: no JSON \('utf-8' codec"):
        records(files(path))


def test_csv_field_may_be_long_and_contain_inner_quotes(tmp_path: Path) -> None:
    long = "x" * 300_000
    path = write(tmp_path / "a.csv", "a,b", f"1,{long}", '2,5" pipe', '3,"5"" pipe, long"')
    assert [record["b"] for record in records(files(path, "csv"))] == [long, '5" pipe', '5" pipe, long']


@pytest.mark.parametrize("content", [b"", b"not at all"])
@pytest.mark.parametrize(("form", "name"), [("parquet", "Parquet"), ("orc", "ORC")])
def test_file_that_is_not_a_table_is_named(tmp_path: Path, content: bytes, form: str, name: str) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "broken.bin").write_bytes(content)
    with pytest.raises(ReadError, match=rf"broken\.bin cannot be read as {name}"):
        records(files(tmp_path, form))


def test_missing_pyarrow_is_reported_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").touch()
    with pytest.raises(RuntimeError, match=r"Parquet needs pyarrow, .*pip install 'heronry\[archive\]'"):
        records(files(tmp_path, "parquet"))


def test_orc_is_read_in_pieces(tmp_path: Path) -> None:
    arrow, orc = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.orc")
    rows = [{"a": n, "b": str(n), "c": [n], "d": {"e": n / 2}} for n in range(10_000)] + [dict.fromkeys("abcd")]
    orc.write_table(arrow.Table.from_pylist(rows), tmp_path / "x.orc", stripe_size=1 << 16)
    source = files(tmp_path / "x.orc", "orc")
    assert orc.ORCFile(tmp_path / "x.orc").nstripes > 1
    assert records(source) == rows
    reader, half = open_reader(source, ""), open_reader(source, "", 5_001, 5_001)
    while (piece := reader.read()) is not None:
        assert piece.next_offset - piece.first <= 4096
    assert piece is None
    assert next(iter(Decoder(source).decode("", half.read()).records)) == rows[5_001]


def test_ambiguous_orc_columns_are_rejected_by_name(tmp_path: Path) -> None:
    arrow, orc = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.orc")
    within = {"timestamp": 1, "dated": 2}  # field names that look like types
    days = [dt.date(1582, 10, 15), None, dt.date(9999, 12, 31)]
    orc.write_table(arrow.table({"when": [within, None, None], "day": days}), tmp_path / "fine.orc")
    assert [record["day"] for record in records(files(tmp_path / "fine.orc", "orc"))] == days
    for column, told in (
        (arrow.array([None], arrow.timestamp("us")), "times of ORC in column 'when'"),
        (arrow.array([[None]], arrow.list_(arrow.timestamp("us", "UTC"))), "times of ORC in column 'when'"),
        (arrow.array([[None]], arrow.list_(arrow.date32())), "dates of ORC inside column 'when'"),
        (arrow.array([dt.date(1582, 10, 14)]), "a date of ORC before 1582-10-15 in column 'when'"),
    ):
        orc.write_table(arrow.table({"a": [1], "when": column}), tmp_path / "bad.orc")
        with pytest.raises(ReadError, match=f"bad.orc has {told}"):
            records(files(tmp_path / "bad.orc", "orc"))


def test_folder_is_read_in_order_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b/2", "a", "b/1", ".hidden", "_done", "b/.part", ".c/x"):
        write(tmp_path / name, name)
    source = files(tmp_path, "text")
    assert list_files(source) == ["a", "b/1", "b/2"]
    assert records(source) == ["a", "b/1", "b/2"]
    assert list_files(files(tmp_path / "nothing", "text", grows=True)) == []
    with pytest.raises(FileNotFoundError):
        list_files(files(tmp_path / "nothing", "text"))


def test_links_to_files_are_followed_and_skipped_entries_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, other = tmp_path / "in", tmp_path / "other"
    write(folder / "a:b.txt", "one")
    write(other / "file.txt", "two")
    write(folder / "_day=1" / "x.txt", "no")
    write(folder / "x.txt._COPYING_", "no")
    (folder / "link.txt").symlink_to(other / "file.txt")
    (folder / "folder").symlink_to(other)
    (folder / "around").symlink_to(folder)
    (folder / "gone").symlink_to(tmp_path / "nothing")
    (folder / "self").symlink_to("self")
    os.mkfifo(folder / "pipe")
    source = files(folder, "text")
    assert records(source) == ["one", "two"]
    assert list_files(source) == ["a:b.txt", "link.txt"]
    for name, why in (
        ("around", "a link to a folder"), ("folder", "a link to a folder"), ("gone", "a link to nothing"),
        ("pipe", "not a file or folder"), ("self", "a link to itself"),
    ):  # fmt: skip
        assert f"{folder / name} is not read: it is {why}" in caplog.text
    builder = Builder("program")
    builder.source(source, name="lines").sink(collect())
    assert len(missing(builder.build())) == 5


@pytest.mark.parametrize("schema", [None, {"id": "int", "name": "str"}])
def test_duplicate_header_name_is_rejected(tmp_path: Path, schema: Any) -> None:
    write(tmp_path / "good.csv", "id,name", "1,x")
    path = write(tmp_path / "wrong.csv", "id,name,id", "1,x,2")
    said = f"{path}, line 1: the header names 'id' twice"
    with pytest.raises(ReadError, match=re.escape(said)):
        records(files(path, "csv", schema=schema))
    assert [said in problem for problem in refused(files(tmp_path, "csv", schema=schema))] == [True]


def test_schema_field_missing_in_all_files_is_rejected(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "id,name", "1,x")
    write(tmp_path / "b.csv", "id,age", "2,7")
    schema = {"id": "int", "name": "str", "age": "int"}
    assert refused(files(tmp_path, "csv", schema=schema)) == []
    (said,) = refused(files(tmp_path, "csv", schema={**schema, "nmae": "str"}))
    assert "has the field 'nmae' of the schema; their headers have 'age', 'id', 'name'" in said


def refused(source: Any) -> list[str]:
    builder = Builder("program")
    builder.source(source, name="lines").sink(collect())
    return refusals(builder.build())


def test_results_are_read_back(tmp_path: Path) -> None:
    write(tmp_path / "out-0-2.json", '{"key":"a","value":2}')
    write(tmp_path / "out-0-1.json", '{"key":"a","value":1}', '{"key":["x",1],"start":0,"end":1,"value":3}')
    found = read(tmp_path)
    assert found == [KeyValue("a", 1), Windowed(("x", 1), 0, 1, 3), KeyValue("a", 2)]
    assert latest(found) == [KeyValue("a", 2), Windowed(("x", 1), 0, 1, 3)]
    assert not finished(tmp_path)
    (tmp_path / "_final-out-0-of-2").touch()
    assert not finished(tmp_path)
    (tmp_path / "_final-out-1-of-2").touch()
    assert finished(tmp_path)


def test_parquet_and_archives_are_read(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"a": n, "b": str(n)} for n in range(10_000)]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "x.parquet")
    assert records(files(tmp_path / "x.parquet", "parquet")) == rows
    hour = tmp_path / "archive" / "date=1970-01-01" / "hour=00"
    hour.mkdir(parents=True)
    for number, names in enumerate((["s:f:0", "s:f:1"], ["s:f:1", "s:f:2"])):
        table = arrow.table(
            {
                "message_id": names,
                "index": ["", ""],
                "event_time": arrow.array([1, 2], arrow.int64()),
                "value": [json.dumps(name) for name in names],
            }
        )
        parquet.write_table(table, hour / f"{number}.parquet")
    assert list(read_all(files(tmp_path / "archive", "archive"))) == [("s:f:0", 1), ("s:f:1", 2), ("s:f:2", 2)]
    builder = Builder("history")
    builder.source(files(tmp_path / "archive", "archive"), name="s").key_by().count_by_key().log()
    assert run(builder.build()) == {}
