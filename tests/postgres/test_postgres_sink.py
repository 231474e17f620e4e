"""PostgreSQL sink against a real server: two phases, upserts, values, lost connections."""

from __future__ import annotations

import datetime as dt
import itertools
import logging
import threading
import uuid
from decimal import Decimal
from typing import Any

import pytest

from heronry.connect import postgres_sink
from heronry.connect.postgres_sink import PostgresSink
from heronry.connect.settings import BadConfig, ConnectError
from tests.support.connectors import TaskPlace, checkpoint, made, row
from tests.support.servers.postgres import PostgresServer

_numbers = itertools.count(1)


@pytest.fixture
def table(server: PostgresServer) -> str:
    """Create a table for the test: word, count, and columns with defaults."""
    name = f"counts_{next(_numbers)}"
    server.ask(f"CREATE TABLE {name} (word text PRIMARY KEY, count bigint NOT NULL, id serial NOT NULL)")
    return name


def sink_to(server: PostgresServer, table: str, *fields: str, task: int = 1, **more: Any) -> PostgresSink:
    place = TaskPlace(component=f"sink-{table}", task=task, source=fields or ("word", "count"))
    return made(PostgresSink(), server.config(table=table, **more), place)


def rows(server: PostgresServer, table: str) -> list[tuple[Any, ...]]:
    return server.ask(f"SELECT word, count FROM {table} ORDER BY word")


def staged(server: PostgresServer) -> int:
    return int(server.ask("SELECT count(*) FROM heronry_staged")[0][0])


def test_rows_appear_once_after_repeated_commits(server: PostgresServer, table: str) -> None:
    sink = sink_to(server, table)
    assert sink.prepare(checkpoint(1)) is None
    sink.process(row(word="a", count=1))
    token = sink.prepare(checkpoint(2))
    sink.process(row(word="b", count=2))
    later = sink.prepare(checkpoint(3))
    sink.process(row(word="c", count=3))  # the process dies
    sink.close()
    other = sink_to(server, table, task=2)
    assert (rows(server, table), sorted(other.prepared())) == ([], [token, later])
    sinks = [other, sink_to(server, table), sink_to(server, table, task=3)]
    commits = [threading.Thread(target=each.commit, args=(2, token)) for each in sinks]
    for commit in commits:
        commit.start()
    for commit in commits:
        commit.join()
    other.commit(2, token)
    other.abort(token)
    other.commit(2, token)
    assert rows(server, table) == [("a", 1)]
    other.abort(later)
    other.abort(later)
    assert (other.prepared(), rows(server, table), staged(server)) == ([], [("a", 1)], 0)
    with pytest.raises(ConnectError, match=r"batch 1-3-1-abc was prepared for checkpoint 3 and is not in heronry_chec"):
        other.commit(3, later)
    for each in sinks:
        each.close()


def test_upsert_keeps_the_last_row_of_a_key_across_chunks_and_checkpoints(
    server: PostgresServer, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_sink, "ROWS_A_CHUNK", 3)
    sink = sink_to(server, table, key=["word"])
    for number in (1, 2):
        for n in range(20):
            sink.process(row(word=f"w{n % 4}", count=100 * number + n))
        sink.commit(number, sink.prepare(checkpoint(number)))
    assert rows(server, table) == [(f"w{n}", 216 + n) for n in range(4)]
    sink.close()


def test_values_of_each_type_are_stored_unchanged(server: PostgresServer) -> None:
    values: dict[str, tuple[str, Any]] = {
        "a": ("bigint", -(2**63)), "b": ("numeric", Decimal("1234567890.000000000000000000001")),
        "c": ("double precision", 0.1 + 0.2), "d": ("boolean", True), "e": ("bytea", b"\x00\xff\\"),
        "f": ("timestamptz", dt.datetime(2026, 1, 2, 3, 4, 5, 678901, dt.UTC)), "g": ("date", dt.date(2026, 1, 2)),
        "h": ("uuid", uuid.UUID(int=7)), "i": ("jsonb", {"k": [1, "é", None]}), "j": ("integer[]", [1, 2, 3]),
        "k": ("text", "é 'quoted' \"twice\" \\ \n"), "l": ("text", None), "m": ("numeric", 2**100),
        "n": ("double precision", float("inf")), "odd Name": ("text", ""),
    }  # fmt: skip
    server.ask("CREATE SCHEMA IF NOT EXISTS other")
    columns = ", ".join(f'"{name}" {kind}' for name, (kind, _) in values.items())
    server.ask(f"CREATE TABLE other.kinds ({columns})")
    sink = sink_to(server, "other.kinds", *values)
    sink.process(row(**{name: value for name, (_, value) in values.items()}))
    sink.commit(1, sink.prepare(checkpoint(1)))
    (found,) = server.ask("SELECT * FROM other.kinds")
    assert list(found) == [value for _, value in values.values()]
    sink.close()


def test_row_that_does_not_fit_the_table_is_rejected_before_a_checkpoint(
    server: PostgresServer, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_to(server, table)
    with pytest.raises(ConnectError, match=r"field 'count' is None .*that column of counts_.* is NOT NULL"):
        sink.process(row(word="a", count=None))
    with pytest.raises(ConnectError, match=r"field 'word' is .*zero byte"):
        sink.process(row(word="a\0", count=1))
    sink.process(row(word="a", count="many"))
    with pytest.raises(
        ConnectError, match=r'staging rows for table counts_.*invalid input syntax for type bigint: "many"'
    ):
        sink.prepare(checkpoint(1))
    sink.close()
    with pytest.raises(ConnectError, match=r'column "colour" of relation .* does not exist'):
        sink_to(server, table, "word", "colour")
    with pytest.raises(ConnectError, match=r'relation "none" does not exist'):
        sink_to(server, "none")
    with pytest.raises(ConnectError, match=r"no unique or exclusion constraint matching the ON CONFLICT"):
        sink_to(server, table, key=["count"])
    with pytest.raises(BadConfig, match=r"'id' is not a field of the input .word, count."):
        sink_to(server, table, key=["id"])


def test_duplicate_key_fails_the_commit_and_stays_prepared(server: PostgresServer, table: str) -> None:
    server.ask(f"INSERT INTO {table} VALUES ('a', 7)")
    sink = sink_to(server, table)
    sink.process(row(word="a", count=1))
    token = sink.prepare(checkpoint(1))
    with pytest.raises(ConnectError, match=r"duplicate key value violates unique constraint"):
        sink.commit(1, token)
    assert (sink.prepared(), rows(server, table)) == ([token], [("a", 7)])
    server.ask(f"DELETE FROM {table}")
    sink.commit(1, token)
    assert rows(server, table) == [("a", 1)]
    sink.close()


def test_prepared_transaction_survives_a_server_restart_and_is_committed(
    server: PostgresServer, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    sink = sink_to(server, table)
    sink.process(row(word="a", count=1))
    token = sink.prepare(checkpoint(1))
    server.kill()
    sink.process(row(word="b", count=2))
    with pytest.raises(
        ConnectError, match=r"the connection to PostgreSQL at 127.0.0.1:\d+, database postgres, was lost"
    ):
        sink.prepare(checkpoint(2))
    server.start()
    assert sink.prepared() == [token]
    sink.commit(1, token)
    assert rows(server, table) == [("a", 1)]
    sink.close()
    assert server.password not in caplog.text


def test_connection_errors_do_not_show_the_password(server: PostgresServer, table: str, tmp_path: Any) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("hush hush")
    with pytest.raises(ConnectError, match=r"cannot be reached .*password authentication failed") as raised:
        sink_to(server, table, **{"password.file": str(wrong)})
    assert "hush" not in str(raised.value)
    with pytest.raises(ConnectError, match=r"cannot be reached .*see that it runs"):
        sink_to(server, table, dsn="host=127.0.0.1 port=9 dbname=x user=y")
    with pytest.raises(ConnectError, match=r"the file of 'user.postgres.password.file', .* cannot be read"):
        sink_to(server, table, **{"password.file": str(tmp_path / "none")})


def test_old_tokens_are_removed(server: PostgresServer, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_sink, "KEPT_CHECKPOINTS", 2)
    sink = sink_to(server, table)
    for number in range(1, 7):
        sink.process(row(word=f"w{number}", count=number))
        sink.commit(number, sink.prepare(checkpoint(number)))
    kept = server.ask("SELECT checkpoint FROM heronry_checkpoints WHERE step LIKE %s ORDER BY 1", f"%{table}")
    assert [number for (number,) in kept] == [4, 5, 6]
    sink.close()
