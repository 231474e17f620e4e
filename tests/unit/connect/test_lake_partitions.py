"""Partitions of Delta tables: names as in the library, one file per partition, and a limited number.

They are staged, committed and aborted together. ``test_lake_kills.py`` kills the processes.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from heronry.api.state import Checkpoint
from heronry.connect import lake, lake_sink
from heronry.connect.delta_sink import DeltaSink
from heronry.connect.delta_source import DeltaRows
from heronry.connect.polling import rows_of as read_rows
from heronry.connect.seats import Seat
from heronry.connect.settings import ConnectError
from tests.support.connectors import TaskPlace, checkpoint, made, row
from tests.support.delta_tables import TYPES, UTC, WORDS, arrow, deltalake, make, rows_of, typed, write

STRANGE = ["a b", "%20", None, "ü/x", "a=b", "q?#*'\"", "x:y{z}[w]^", "\\back", "tab\tnl\n", "~`|<>@!$&()+,;.-_",
           "日本", ".", "..", " ", "A" * 240]  # fmt: skip
MOMENT = dt.datetime(2020, 1, 1, 5, 6, 7, 8, UTC)


def sink_of(path: Path | str, *fields: str, **more: Any) -> DeltaSink:
    config = {"user.delta.path": str(path), **{f"user.delta.{key}": value for key, value in more.items()}}
    found: DeltaSink = made(DeltaSink(), config, TaskPlace(rows=fields))
    return found


def put(sink: DeltaSink, rows: list[dict[str, Any]], number: int = 1) -> str:
    """Prepare the rows and return the token."""
    for each in rows:
        sink.process(row(**each))
    token = sink.prepare(checkpoint(number))
    assert token is not None
    return token


def read(path: Path | str, fields: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Read the table with the source."""
    reader = DeltaRows.reader({"user.delta.path": str(path)}, fields, "")
    ranges = [reader.bounds(split) for split in reader.splits()]
    return [tuple(one) for each in ranges if each is not None for rows in read_rows(reader, each) for one in rows]


def logged(path: Path | str) -> list[tuple[str, dict[str, Any]]]:
    """Return folders and partition values from the log."""
    lines = [line for file in sorted(Path(path, "_delta_log").glob("*.json")) for line in file.read_text().split("\n")]
    adds = [json.loads(line)["add"] for line in lines if line.startswith('{"add"')]
    return sorted((os.path.dirname(unquote(add["path"])), add["partitionValues"]) for add in adds)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("word", STRANGE), ("small", [-5, 0, 127, None]), ("n", [-(2**63), 2**63 - 1]), ("ok", [True, False, None]),
        ("day", [dt.date(1, 1, 1), dt.date(1969, 12, 31), None]),
        ("local", [dt.datetime(1, 1, 1, microsecond=1), dt.datetime(9999, 12, 31, 23), None]),
    ],
)  # fmt: skip
def test_partitions_are_named_as_by_the_library(column: str, values: list[Any], tmp_path: Path) -> None:
    schema = arrow.schema([TYPES.field(column), ("id", arrow.int64())])
    rows = [{column: value, "id": number} for number, value in enumerate(values)]
    write(tmp_path / "theirs", rows, schema, partition_by=[column])
    ours = make(tmp_path / "ours", schema, partition_by=[column])
    sink = sink_of(ours, column, "id")
    sink.commit(1, put(sink, rows))
    assert logged(ours) == logged(tmp_path / "theirs")
    assert sorted(rows_of(ours), key=lambda found: found["id"]) == rows
    assert sorted(read(ours, ("id", column))) == [(number, value) for number, value in enumerate(values)]
    assert deltalake.DeltaTable(ours).vacuum(retention_hours=0, enforce_retention_duration=False) == []


def test_timestamp_partition_is_written_in_utc(tmp_path: Path) -> None:
    path = make(tmp_path / "t", arrow.schema([TYPES.field("at"), TYPES.field("n")]), partition_by=["at"])
    sink = sink_of(path, "at", "n")
    east = MOMENT.astimezone(dt.timezone(dt.timedelta(hours=5)))
    sink.commit(1, put(sink, [{"at": MOMENT, "n": 1}, {"at": east, "n": 2}]))
    assert logged(path) == [("at=2020-01-01T05%3A06%3A07.000008Z", {"at": "2020-01-01T05:06:07.000008Z"})]
    assert sorted(found["n"] for found in rows_of(path) if found["at"] == MOMENT) == [1, 2]
    with pytest.raises(ConnectError, match=r"field 'at' is .*in UTC it is before the year 1, or after 9999"):
        sink.process(row(at=dt.datetime(1, 1, 1, tzinfo=east.tzinfo), n=3))


def test_checkpoint_has_one_file_per_partition_of_two_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_sink, "ROWS_A_GROUP", 4)
    path = make(tmp_path / "t", TYPES, partition_by=["word", "ok"])
    sink = sink_of(path, *TYPES.names)
    tokens = [put(sink, [typed(n) for n in range(first, first + 10)], number) for number, first in ((1, 0), (2, 10))]
    assert (rows_of(path), sorted(sink.prepared())) == ([], tokens)
    for number, token in ((1, tokens[0]), (1, tokens[0]), (2, tokens[1]), (1, tokens[0])):
        sink.commit(number, token)
    assert sorted(rows_of(path), key=lambda found: found["n"]) == [typed(n) for n in range(20)]
    there = [{(typed(n)["word"], typed(n)["ok"]) for n in range(first, first + 10)} for first in (0, 10)]
    assert len(logged(path)) == sum(map(len, there))
    assert deltalake.DeltaTable(path).version() == 2
    assert sink.prepared() == []
    sink.close()


def test_abort_removes_all_files_even_without_the_first(tmp_path: Path) -> None:
    path = make(tmp_path / "t", partition_by=["word"])
    staged, rows = tmp_path / "t" / lake.STAGED, [{"word": word, "n": 1} for word in "abc"]
    sink = sink_of(path, "word", "n")
    token = put(sink, rows)
    assert len(list(staged.iterdir())) == 3
    (first,) = staged.glob(f".*-{token}.parquet")
    first.unlink()  # as of a process that died while it renamed them
    assert sink.prepared() == [token]
    sink.abort(token)
    assert (sink.prepared(), list(staged.iterdir())) == ([], [])
    for each in rows:
        sink.process(row(**each))
    sink._write_groups()
    assert len(list(staged.glob(".*-open-*"))) == 3
    other = sink_of(path, "word", "n")  # removes the open files of its predecessor
    assert list(staged.iterdir()) == []
    put(other, rows)
    other.forget()
    assert list(staged.iterdir()) == []
    for each in rows:
        other.process(row(**each))
    other._write_groups()
    other.close()
    sink.close()
    assert (list(staged.iterdir()), rows_of(path)) == ([], [])


def test_removed_partition_file_prevents_the_commit(tmp_path: Path) -> None:
    path = make(tmp_path / "t", partition_by=["word"])
    sink = sink_of(path, "word", "n")
    token = put(sink, [{"word": word, "n": 1} for word in "ab"])
    (second,) = (tmp_path / "t" / lake.STAGED).glob(f".*-{token}.1.parquet")
    second.rename(tmp_path / "kept")
    with pytest.raises(ConnectError, match=r"-abc.1.parquet was staged for .* and is missing, and was never committed"):
        sink.commit(1, token)
    assert (rows_of(path), sink.prepared()) == ([], [token])
    (tmp_path / "kept").rename(second)
    sink.commit(1, token)
    assert len(rows_of(path)) == 2


def test_files_of_several_tasks_and_partitions_are_one_transaction(tmp_path: Path) -> None:
    path = make(tmp_path / "t", partition_by=["word"])
    tokens = ["0-0-0-ab", "0-1-0-ab"]
    for partition, token in enumerate(tokens):
        with contextlib.closing(DeltaSink()) as task:
            task.open({"user.delta.path": path}, Seat("p.s@ab", partition, "ab", fields=("word", "n")))
            for word in ("a", None, f"only {partition}"):
                task.take([word, partition])
            assert task.prepare(Checkpoint(0, 0, token)) == token
    driver = DeltaSink()
    driver.open({"user.delta.path": path}, Seat("p.s@ab", 0, "ab", fields=("word", "n")))
    for _ in range(2):
        driver.commit_all(tokens)
        assert deltalake.DeltaTable(path).version() == 1
    assert [folder for folder, _ in logged(path)] == [
        "word=__HIVE_DEFAULT_PARTITION__", "word=__HIVE_DEFAULT_PARTITION__", "word=a", "word=a", "word=only%200",
        "word=only%201",
    ]  # fmt: skip
    assert len(rows_of(path)) == 6
    driver.close()


def test_too_many_partitions_are_an_error_with_a_remedy(tmp_path: Path) -> None:
    path = make(tmp_path / "t", partition_by=["word"])
    sink = sink_of(path, "word", "n", partitions=2)
    for word in "aabab":
        sink.process(row(word=word, n=1))
    with pytest.raises(ConnectError, match=r"more than 2 partitions \(by word str\?\).*config 'user.delta.partitions'"):
        sink.process(row(word="c", n=1))
    token = put(sink, [])
    put(sink, [{"word": word, "n": 1} for word in "cd"], 2)  # another checkpoint has other partitions
    sink.commit(1, token)
    assert len(rows_of(path)) == 5
    plain = sink_of(make(tmp_path / "plain"), "word", "n", partitions=1)
    put(plain, [{"word": word, "n": 1} for word in "abc"])


@pytest.mark.parametrize(
    ("column", "what"),
    [("raw", r"the column raw bytes\? as a partition"), ("x", r"float\? as a partition"), ("price", r"Decimal\(10, 2")],
)
def test_unsupported_partition_column_is_rejected_by_name(column: str, what: str, tmp_path: Path) -> None:
    path = make(tmp_path / "t", TYPES, partition_by=[column])
    with pytest.raises(ConnectError, match=f"DeltaSink cannot write the Delta table .*, which has .*{what}"):
        sink_of(path, "n", column)
    all_of_them = make(tmp_path / "all", WORDS, partition_by=["word", "n"])
    with pytest.raises(ConnectError, match="which has no column but those of partitions"):
        sink_of(all_of_them, "word", "n")


@pytest.mark.parametrize(
    ("value", "why"),
    [("", "where the format reads it as null"), ("ü" * 50, "would have a name of more than 255 bytes")],
)
def test_value_that_cannot_name_a_partition_is_rejected(value: str, why: str, tmp_path: Path) -> None:
    path = make(tmp_path / "t", partition_by=["word"])
    for refuses in (
        lambda: sink_of(path, "word", "n").process(row(word=value, n=1)),
        lambda: DeltaSink.encoder({"user.delta.path": path}, ("word", "n"))([value, 1]),
    ):
        with pytest.raises(ConnectError, match=f"DeltaSink: field 'word' is .*{why}"):
            refuses()


def test_altered_partitions_keep_prepared_rows(tmp_path: Path) -> None:
    path = make(tmp_path / "t", partition_by=["word"])
    sink = sink_of(path, "word", "n")
    token = put(sink, [{"word": word, "n": 1} for word in "ab"])
    none = arrow.Table.from_pylist([], WORDS)
    deltalake.write_deltalake(path, none, mode="overwrite", schema_mode="overwrite", partition_by=[])
    why = r"has the partitions of no column, and what waits for it was written for word str\?: it was altered"
    with pytest.raises(ConnectError, match=why):
        sink.commit(1, token)
    assert (sink.prepared(), rows_of(path)) == ([token], [])
    deltalake.write_deltalake(path, none, mode="overwrite", schema_mode="overwrite", partition_by=["word"])
    sink.commit(1, token)
    assert len(rows_of(path)) == 2
