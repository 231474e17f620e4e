"""Rows of a table as the source of a program: engines agree, and missing objects are reported."""

from __future__ import annotations

import itertools
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from heronry.connect.polling import rows_of
from heronry.connect.settings import BadConfig, ConnectError
from heronry.streamlet import sql_rows, to_table
from heronry.streamlet.reference import run
from heronry.streamlet.server_sinks import ServerSink
from heronry.streamlet.servers import ServerSource, pieces_of, ranges_of
from tests.support.servers.postgres import PostgresServer
from tests.support.streamlets.server_programs import differences, in_reference, into_servers, online, write_online

_numbers = itertools.count(1)


@pytest.fixture
def table(server: PostgresServer) -> str:
    """Create a table of ninety rows, ten per time."""
    name = f"served_{next(_numbers)}"
    server.ask(f"CREATE TABLE {name} (at timestamptz, word text, n bigint, price numeric)")
    add(server, name, 0, 89)
    return name


def add(server: PostgresServer, table: str, first: int, last: int) -> None:
    server.ask(
        f"INSERT INTO {table} SELECT timestamptz '2026-01-01Z' + (n / 10) * interval '1.000001 s', 'w' || n / 30, n, "
        f"n * 0.10 FROM generate_series({first}, {last}) n"
    )


def source(server: PostgresServer, table: str, **more: Any) -> ServerSource:
    given: dict[str, Any] = {
        "bounds": ["2026-01-01 00:00:02+00", "2026-01-01 00:00:05+00"], "grows": False, "rows": 7,
        "password_file": server.password_file, **more,
    }  # fmt: skip
    return sql_rows(server.dsn, table, "at", ["word", "n"], **given)


def test_engines_agree_across_faults(server: PostgresServer, table: str, tmp_path: Path) -> None:
    read = source(server, table)
    expected = in_reference(read)
    assert len(expected["records"]) == 90
    assert differences(expected, online(read, tmp_path, kills=2)) == {}


def test_range_ends_at_the_end_of_the_table(server: PostgresServer, table: str) -> None:
    read = source(server, table)
    ranges = ranges_of(read, "test")
    add(server, table, 90, 109)
    found = [record["n"] for _, _, records in pieces_of(read, ranges, "test") for record in records]
    assert sorted(found) == list(range(90)), "also where several rows share the last value"
    with closing(read.open("test")) as reader:
        behind = [reader.bounds(wanted.split, json.loads(json.dumps(wanted.end))) for wanted in ranges]
        rest = [row for wanted in behind if wanted for rows in rows_of(reader, wanted) for row in rows]
    assert sorted(n for _, n in rest) == list(range(90, 110)), "the next range begins where one ends"
    server.ask(f"TRUNCATE {table}")
    assert ranges_of(read, "test") == ()


def test_missing_table_is_an_error(server: PostgresServer, table: str) -> None:
    with pytest.raises(ConnectError, match="has refused reading table absent"):
        ranges_of(source(server, "absent"), "test")
    with pytest.raises(BadConfig, match="has no column 'absent'"):
        ranges_of(sql_rows(server.dsn, table, "absent", ["n"], password_file=server.password_file), "test")
    with pytest.raises(ConnectError, match=r"column t.absent does not exist"):
        ranges_of(sql_rows(server.dsn, table, "at", ["absent"], password_file=server.password_file), "test")
    (said,) = sql_rows(f"{server.dsn} password=secret", table, "at", ["n"]).problems()
    assert "holds a password" in said
    assert "secret" not in said


def into(server: PostgresServer, table: str, *fields: str, **more: Any) -> ServerSink:
    return to_table(server.dsn, table, list(fields), password_file=server.password_file, **more)


def test_programs_write_rows_once_across_faults(server: PostgresServer, tmp_path: Path) -> None:
    server.ask("CREATE TABLE online_records (id int, word text, half float8)")
    server.ask("CREATE TABLE online_sums (key text PRIMARY KEY, value int)")
    records = into(server, "online_records", "id", "word", "half")
    builder = into_servers(records, into(server, "online_sums", "key", "value", key="key"))
    write_online(builder, tmp_path, kills=4)
    expected = run(builder.build())
    rows = server.ask("SELECT id, word, half FROM online_records ORDER BY id")
    assert rows == [tuple(record.values()) for record in sorted(expected["records"], key=lambda each: each["id"])]
    sums = server.ask("SELECT key, value FROM online_sums")
    assert sorted(sums) == sorted(map(tuple, expected["sums"]))
    assert server.ask("SELECT count(*) FROM heronry_staged") == [(0,)]
