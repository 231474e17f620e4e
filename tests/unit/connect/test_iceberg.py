"""Iceberg tables: rows appear once with their checkpoint and are read by field id at a snapshot.

Unsupported features are rejected by name. ``test_lake_kills.py`` kills the sink's process.
"""

from __future__ import annotations

import importlib
import threading
from pathlib import Path
from typing import Any

import pytest

from heronry.api.state import Checkpoint
from heronry.connect import lake
from heronry.connect.iceberg import end_threads
from heronry.connect.iceberg_sink import IcebergSink
from heronry.connect.iceberg_source import IcebergRows
from heronry.connect.lake import Added, Busy
from heronry.connect.lake_source import LakeReader
from heronry.connect.polling import rows_of as read_rows
from heronry.connect.seats import Seat
from heronry.connect.settings import BadConfig, ConnectError
from tests.support.connectors import TaskPlace, checkpoint, made, row
from tests.support.delta_tables import TYPES, arrow, typed
from tests.support.iceberg_tables import catalog_in, make, opened, rows_of, write


def config_of(folder: Path, name: str = "lake.t") -> dict[str, Any]:
    return {"user.iceberg.catalog": catalog_in(folder), "user.iceberg.table": name}


def sink_of(folder: Path, *fields: str, name: str = "lake.t") -> IcebergSink:
    found: IcebergSink = made(IcebergSink(), config_of(folder, name), TaskPlace(rows=fields))
    return found


def reader_of(folder: Path, fields: tuple[str, ...], snapshot: int | None = None) -> LakeReader:
    return IcebergRows.reader({**config_of(folder), "user.iceberg.snapshot": snapshot}, fields, "")


def read(reader: LakeReader) -> list[Any]:
    ranges = [reader.bounds(split) for split in reader.splits()]
    return [tuple(one) for each in ranges if each is not None for rows in read_rows(reader, each) for one in rows]


def test_rows_of_every_type_are_written_once_and_read_back(tmp_path: Path) -> None:
    make(tmp_path, TYPES)
    assert (reader_of(tmp_path, ("n",)).splits(), rows_of(tmp_path)) == ([], [])
    sink = sink_of(tmp_path, *TYPES.names)
    tokens = []
    for number in (1, 2):
        for n in range(number * 10, number * 10 + 10):
            sink.process(row(**typed(n)))
        tokens.append(sink.prepare(checkpoint(number)))
    assert (rows_of(tmp_path), sorted(sink.prepared())) == ([], tokens)
    for number, token in ((1, tokens[0]), (1, tokens[0]), (2, tokens[1]), (1, tokens[0])):
        assert token is not None
        sink.commit(number, token)
    sink.close()
    expected = [typed(n) for n in range(10, 30)]
    assert sorted(rows_of(tmp_path), key=lambda found: found["n"]) == expected
    assert len(opened(tmp_path).load_table("lake.t").snapshots()) == 2
    found = read(reader_of(tmp_path, tuple(TYPES.names)))
    assert sorted(found) == [tuple(record.values()) for record in expected]


def test_one_of_concurrent_commits_succeeds_and_a_batch_is_one_commit(tmp_path: Path) -> None:
    make(tmp_path)
    config, tokens = config_of(tmp_path), [f"0-{attempt}-0-ab" for attempt in (0, 1)]
    driver = IcebergSink()
    driver.open(config, Seat("p.s@ab", 0, "ab", fields=("word", "n")))
    for n, token in enumerate(tokens):
        driver.take(["a", n])
        assert driver.prepare(Checkpoint(0, 0, token)) == token
    stale = driver._open_table()
    for _ in range(2):
        driver.commit_all(tokens)
        assert sorted(found["n"] for found in rows_of(tmp_path)) == [0, 1]
    (snapshot,) = opened(tmp_path).load_table("lake.t").snapshots()
    file = next(iter(stale.root.glob("heronry-*.parquet")))
    with pytest.raises(Busy, match="other writers change it concurrently"):
        stale.add([Added(file, 1, "heronry p.s@ab ab 0", 1)])
    table = opened(tmp_path).load_table("lake.t")
    assert [one.snapshot_id for one in table.snapshots()] == [snapshot.snapshot_id]
    assert dict(table.properties) == {"heronry.committed.heronry p.s@ab ab 0": "1"}
    driver.forget()
    assert dict(opened(tmp_path).load_table("lake.t").properties) == {}
    driver.close()


def test_columns_match_by_field_id_and_a_snapshot_is_stable(tmp_path: Path) -> None:
    make(tmp_path)
    write(tmp_path, [{"word": "a", "n": 1}, {"word": None, "n": 2}])
    before = opened(tmp_path).load_table("lake.t").current_snapshot().snapshot_id
    with opened(tmp_path).load_table("lake.t").update_schema() as change:
        change.rename_column("word", "text")
    pyiceberg = importlib.import_module("pyiceberg.types")
    with opened(tmp_path).load_table("lake.t").update_schema() as change:
        change.add_column("word", pyiceberg.LongType())  # a new column with the old name
    later = arrow.schema([("text", arrow.string()), ("n", arrow.int64()), ("word", arrow.int64())])
    write(tmp_path, [{"text": "b", "n": 3, "word": 7}], later)
    assert sorted(read(reader_of(tmp_path, ("n", "text", "word")))) == [(1, "a", None), (2, None, None), (3, "b", 7)]
    assert sorted(read(reader_of(tmp_path, ("n", "word"), before))) == [(1, "a"), (2, None)]
    assert IcebergRows.fixed(config_of(tmp_path), ("n",)).keys() == {"user.iceberg.snapshot"}
    with pytest.raises(ConnectError, match=r"has no snapshot 5 \(any more\); the newest is \d+"):
        reader_of(tmp_path, ("n",), 5)


def test_invalid_table_or_value_is_rejected_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path)
    with pytest.raises(ConnectError, match=r"IcebergSink: no Iceberg table lake.none in the catalog: create it"):
        sink_of(tmp_path, "n", name="lake.none")
    with pytest.raises(BadConfig, match=r"fields n, m, and the Iceberg table lake.t the columns word str\?, n int\?"):
        sink_of(tmp_path, "n", "m")
    with pytest.raises(ConnectError, match=r"field 'n' is 'x' .*the column holds int"):
        sink_of(tmp_path, "n").process(row(n="x"))
    nested = arrow.schema([("n", arrow.int64()), ("tags", arrow.list_(arrow.string()))])
    make(tmp_path, nested, "lake.nested")
    with pytest.raises(BadConfig, match=r"column tags .*has a type that is not carried"):
        sink_of(tmp_path, "n", "tags", name="lake.nested")
    config = {"user.iceberg.table": "lake.nested", "user.iceberg.catalog": catalog_in(tmp_path)}
    with pytest.raises(ConnectError, match=r"has the column tags .*, of a type that is not carried"):
        IcebergRows.reader(config, ("tags",), "")
    with pytest.raises(ConnectError, match="has no column m at version 0; it has n, tags"):
        IcebergRows.reader(config, ("m",), "")


def test_close_leaves_no_thread(tmp_path: Path) -> None:
    """A remaining thread would prevent the task from joining another generation."""
    make(tmp_path)
    end_threads()  # threads of other tests
    before = set(threading.enumerate())
    for number in (1, 2):
        sink = sink_of(tmp_path, "word", "n")
        sink.process(row(word="a", n=number))
        token = sink.prepare(checkpoint(number))
        assert token is not None
        sink.commit(number, token)
        assert set(threading.enumerate()) != before
        sink.close()
        assert set(threading.enumerate()) == before
        reader = reader_of(tmp_path, ("n",))
        assert sorted(read(reader)) == [(n,) for n in range(1, number + 1)]
        reader.close()
        assert set(threading.enumerate()) == before


def test_unavailable_catalog_or_library_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = {"type": "sql", "uri": f"sqlite:///{tmp_path}/none/catalog.db", "warehouse": f"file://{tmp_path}/w"}
    with pytest.raises(ConnectError, match=r"lake.t cannot be read from its catalog \(OperationalError"):
        made(IcebergSink(), {**config_of(tmp_path), "user.iceberg.catalog": absent})
    for given, why in (
        ({}, "needs config 'user.iceberg.catalog'"),
        ({"type": "rest", "token": "x"}, r"holds a secret \(token\), which a topology's definition shows"),
        ({"uri": "postgresql://u:p@db/c"}, r"holds a secret \(uri\)"),
    ):
        with pytest.raises(BadConfig, match=why) as raised:
            made(IcebergSink(), {**config_of(tmp_path), "user.iceberg.catalog": given})
        assert "u:p@" not in str(raised.value)
    real = importlib.import_module

    def without(name: str, *more: Any) -> Any:
        if name.startswith("pyiceberg"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *more)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ConnectError, match=r"needs pyiceberg, .*pip install 'heronry\[iceberg\]'"):
        made(IcebergSink(), config_of(tmp_path))
    assert lake.STAGED not in [path.name for path in tmp_path.rglob("*")]
