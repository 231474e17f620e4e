"""Delta sink: rows appear once with their checkpoint for any faults, and unsupported values are named.

``test_lake_kills.py`` kills its process.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from heronry.api.state import Checkpoint
from heronry.connect import delta, lake, lake_sink
from heronry.connect.delta import DeltaTable
from heronry.connect.delta_sink import DeltaSink
from heronry.connect.lake import Added, Busy, Waiting, add_once
from heronry.connect.seats import Seat
from heronry.connect.settings import BadConfig, ConnectError
from tests.support.connectors import TaskPlace, checkpoint, made, row
from tests.support.delta_tables import TYPES, WORDS, arrow, deltalake, make, rows_of, typed, write


def sink_of(path: Path | str, *fields: str, **place: Any) -> DeltaSink:
    found: DeltaSink = made(DeltaSink(), {"user.delta.path": str(path)}, TaskPlace(rows=fields, **place))
    return found


def test_rows_of_every_type_appear_once_with_their_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_sink, "ROWS_A_GROUP", 4)
    path = make(tmp_path / "t", TYPES)
    sink = sink_of(path, *TYPES.names)
    for n in range(20):
        sink.process(row(**typed(n)))
        if n == 12:
            first = sink.prepare(checkpoint(1))
    second = sink.prepare(checkpoint(2))
    assert (rows_of(path), sorted(sink.prepared())) == ([], [first, second])
    for number, token in ((1, first), (1, first), (2, second), (1, first)):
        assert token is not None
        sink.commit(number, token)
    assert sorted(rows_of(path), key=lambda found: found["n"]) == [typed(n) for n in range(20)]
    assert (sink.prepare(checkpoint(3)), sink.prepared()) == (None, [])
    sink.close()
    table = deltalake.DeltaTable(path)
    assert (table.version(), len(table.file_uris())) == (2, 2)
    assert table.vacuum(retention_hours=0, enforce_retention_duration=False) == []


def test_aborted_rows_are_removed_and_another_life_commits_prepared_ones(tmp_path: Path) -> None:
    path = make(tmp_path / "t")
    sink = sink_of(path, "word", "n")
    for number in (1, 2):
        sink.process(row(word="a", n=number))
        assert sink.prepare(checkpoint(number))
    sink.process(row(word="a", n=3))  # and dies before a prepare
    other = sink_of(path, "word", "n", life=2)
    assert sorted(other.prepared()) == ["1-1-1-abc", "1-2-1-abc"]
    other.commit(1, "1-1-1-abc")
    other.abort("1-2-1-abc")
    assert rows_of(path) == [{"word": "a", "n": 1}]
    assert [name for name in os.listdir(tmp_path / "t" / lake.STAGED) if "-done-" not in name] == []
    other.process(row(word="b", n=1))  # another topology of the same name counts from 1 again
    assert other.prepare(checkpoint(1, task=1)) == "1-1-1-abc"
    with pytest.raises(ConnectError, match=r"1-2-1-abc.* is missing, and was never committed"):
        other.commit(2, "1-2-1-abc")


def test_one_of_concurrent_commits_of_a_token_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "t")
    sink = sink_of(path, "word", "n")
    sink.process(row(word="a", n=1))
    token = sink.prepare(checkpoint(1))
    assert token is not None
    stale, tables = sink._open_table(), list[DeltaTable]()
    sink.commit(1, token)
    (staged,) = (tmp_path / "t").glob("heronry-*.parquet")
    with pytest.raises(Busy, match="other writers change it concurrently"):
        stale.add([Added(staged, 1, *mark_in(path))])
    assert rows_of(path) == [{"word": "a", "n": 1}]
    monkeypatch.setattr("heronry.connect.seats.FIRST_PAUSE_SECS", 0.001)

    def racing() -> DeltaTable:
        tables.append(sink._open_table())
        if len(tables) < 3:
            write(path, [{"word": "other", "n": len(tables)}])  # which does not conflict
        return tables[-1]

    sink.process(row(word="b", n=2))
    assert sink.prepare(checkpoint(2)) is not None
    (hidden,) = (tmp_path / "t" / lake.STAGED).glob(".*-1-2-1-abc.parquet")
    add_once(racing, [Waiting(hidden, "heronry-b.parquet", 2)], 6)
    assert (len(tables), len(rows_of(path))) == (1, 3)


def test_staged_files_of_several_tasks_are_committed_once(tmp_path: Path) -> None:
    """Commit like the driver of a batch: attempts count from 0, and all tokens have the same task."""
    path, config = make(tmp_path / "t"), {"user.delta.path": str(tmp_path / "t")}
    tokens = [f"0-{attempt}-0-ab" for attempt in (0, 2, 3)]
    for partition, token in enumerate([*tokens, "0-1-0-ab"]):
        with contextlib.closing(DeltaSink()) as task:
            task.open(config, Seat("p.s@ab", partition, "ab", fields=("word", "n")))
            task.take(["a", partition])
            assert task.prepare(Checkpoint(0, 0, token)) == token
    driver = DeltaSink()
    driver.open(config, Seat("p.s@ab", 0, "ab", fields=("word", "n")))
    for _ in range(2):
        driver.commit_all(tokens)
        assert sorted(found["n"] for found in rows_of(path)) == [0, 1, 2]
        assert deltalake.DeltaTable(path).version() == 1
    assert driver.prepared() == ["0-1-0-ab"]
    driver.forget()
    assert os.listdir(tmp_path / "t" / lake.STAGED) == []
    with pytest.raises(ConnectError, match="was never committed"):
        driver.commit_all(tokens)
    driver.close()


def test_stream_has_one_mark_and_older_tokens_are_rejected(tmp_path: Path) -> None:
    """A stream has many runs with growing token numbers; rows of an older run would count as known."""
    path, config = make(tmp_path / "t"), {"user.delta.path": str(tmp_path / "t")}
    staged = [(f"0-{number}-0-{run}", run) for number, run in ((7, "aa"), (9, "bb"), (8, "cc"))]
    for token, run in staged:
        with contextlib.closing(DeltaSink()) as task:
            task.open(config, Seat(f"p.s@{run}", 0, run, fields=("word", "n"), writer="p.s@stream"))
            task.take(["a", 1])
            task.prepare(Checkpoint(0, 0, token))
    drivers = []
    for _, run in staged:
        drivers.append(DeltaSink())
        drivers[-1].open(config, Seat(f"p.s@{run}", 0, run, fields=("word", "n"), writer="p.s@stream"))
    for driver, (token, _), rows in zip(drivers[:2], staged, (1, 2), strict=False):
        for _ in range(2):
            driver.commit_all([token])
            assert len(rows_of(path)) == rows
        driver.forget()
    with pytest.raises(ConnectError, match="is older than the table: bring back"):
        drivers[2].commit_all([staged[2][0]])
    assert drivers[2].prepared() == [staged[2][0]], "nothing is lost"
    assert len(rows_of(path)) == 2
    for driver in drivers:
        driver.close()


def mark_in(path: str) -> tuple[str, int]:
    """Return the mark of the only writer."""
    log = (Path(path) / "_delta_log").glob("*.json")
    lines = [line for file in log for line in file.read_text().splitlines() if line.startswith('{"txn"')]
    (found,) = (json.loads(line)["txn"] for line in lines)
    return found["appId"], found["version"]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"n": None}, "the column must not be null"), ({"n": "1"}, "the column holds int"),
        ({"n": True}, "the column holds int"), ({"n": 2**63}, "the column holds 64 bits"),
        ({"n": 1, "small": 2**15}, "the column holds 16 bits"), ({"n": 1, "word": "\ud800"}, "UTF-8 cannot encode"),
        ({"n": 1, "price": 1.5}, r"the column holds Decimal\(10, 2\)"),
        ({"n": 1, "price": typed(1)["price"] / 3}, "nothing is rounded"),
        ({"n": 1, "price": Decimal("123456789.1")}, r"the column holds Decimal\(10, 2\)"),
        ({"n": 1, "price": Decimal("NaN")}, r"the column holds Decimal\(10, 2\)"),
        ({"n": 1, "day": typed(1)["at"]}, "the column holds date"),
        ({"n": 1, "at": typed(1)["local"]}, "the column holds datetime with a time zone"),
    ],
)  # fmt: skip
def test_value_that_a_column_cannot_hold_is_named(value: dict[str, Any], why: str, tmp_path: Path) -> None:
    sink = sink_of(make(tmp_path / "t", TYPES), *value)
    with pytest.raises(ConnectError, match=f"DeltaSink: field '{list(value)[-1]}' is .*and .*{why}"):
        sink.process(row(**value))


@pytest.mark.parametrize("value", ["0", "0.00", "-99999999.99", "1E+3", "12.3400", "0E-9", "1E-2"])
def test_decimals_that_fit_are_kept(value: str, tmp_path: Path) -> None:
    path = make(tmp_path / "t", TYPES)
    sink = sink_of(path, "n", "price")
    sink.process(row(n=1, price=Decimal(value)))
    token = sink.prepare(checkpoint(1))
    assert token is not None
    sink.commit(1, token)
    assert [found["price"] for found in rows_of(path)] == [Decimal(value)]


def test_invalid_table_is_rejected_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match=r"DeltaSink: no Delta table at .*: create it"):
        sink_of(tmp_path / "none", "n")
    assert not (tmp_path / "none").exists()
    for given, why in (("lake/t", "whole path"), ("s3://lake/t", "whole path"), ("", "needs config")):
        with pytest.raises(BadConfig, match=why):
            sink_of(given, "n")
    path = make(tmp_path / "t", TYPES)
    with pytest.raises(BadConfig, match=r"fields word, nn, and the Delta table .* n int, .*unknown column nn"):
        sink_of(path, "word", "nn")
    with pytest.raises(BadConfig, match="n must not be missing"):
        sink_of(path, "word")
    make(tmp_path / "l", arrow.schema([("n", arrow.int64()), ("tags", arrow.list_(arrow.string()))]))
    sink_of(tmp_path / "l", "n").close()
    with pytest.raises(BadConfig, match=r"column tags list<.*>\? of the .*/l has a type that is not carried"):
        sink_of(tmp_path / "l", "n", "tags")


def test_table_features_that_need_computation_are_rejected(tmp_path: Path) -> None:
    tables = {
        "deletionVectors": {"configuration": {"delta.enableDeletionVectors": "true"}},
        "column mapping": {"configuration": {"delta.columnMapping.mode": "name"}},
        "marks that expire": {"configuration": {delta.EXPIRY: "interval 1 days"}},
    }
    for number, (what, more) in enumerate(tables.items()):
        path = make(tmp_path / str(number), WORDS, **more)
        with pytest.raises(ConnectError, match=f"DeltaSink cannot write the Delta table .*, which has .*{what}"):
            sink_of(path, "word", "n")
    path = make(tmp_path / "c")
    deltalake.DeltaTable(path).alter.add_constraint({"positive": "n > 0"})
    with pytest.raises(ConnectError, match="the constraint positive"):
        sink_of(path, "word", "n")


def test_altered_table_keeps_prepared_rows(tmp_path: Path) -> None:
    path = make(tmp_path / "t")
    sink = sink_of(path, "word", "n")
    sink.process(row(word="a", n=1))
    token = sink.prepare(checkpoint(1))
    assert token is not None
    other = arrow.schema([("word", arrow.string()), ("n", arrow.string())])
    deltalake.write_deltalake(path, arrow.Table.from_pylist([], other), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(ConnectError, match=r"has the columns word str\?, n str\?, and .* word str\?, n int\?: n was"):
        sink.commit(1, token)
    assert sink.prepared() == [token]
    deltalake.write_deltalake(path, arrow.Table.from_pylist([], WORDS), mode="overwrite", schema_mode="overwrite")
    sink.commit(1, token)
    assert rows_of(path) == [{"word": "a", "n": 1}]


def test_failed_commit_is_named_and_keeps_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "t")
    sink = sink_of(path, "word", "n")
    sink.process(row(word="a", n=1))
    token = sink.prepare(checkpoint(1))
    assert token is not None
    log = tmp_path / "t" / "_delta_log"
    (log / f"{1:020d}.json").mkdir()  # nobody can write that version
    monkeypatch.setattr("heronry.connect.seats.FIRST_PAUSE_SECS", 0.001)
    with pytest.raises(ConnectError, match=r"The rows are safe|cannot be read"):
        sink.commit(1, token)
    (log / f"{1:020d}.json").rmdir()
    sink.commit(1, token)
    assert rows_of(path) == [{"word": "a", "n": 1}]


def test_missing_library_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without(name: str, *more: Any) -> Any:
        if name.startswith("deltalake"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *more)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ConnectError, match=r"needs deltalake, .*pip install 'heronry\[delta\]'"):
        sink_of(tmp_path, "n")
