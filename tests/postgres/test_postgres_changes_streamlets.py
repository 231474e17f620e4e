"""Changes of tables as the source of a program: engines agree, and only growing sources confirm changes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from heronry.connect.pgoutput import lsn_of
from heronry.streamlet import postgres_changes
from heronry.streamlet.servers import ServerSource, pieces_of, ranges_of
from tests.postgres import changes_story as story
from tests.support.servers.postgres import PostgresServer
from tests.support.streamlets.online_engine import importable
from tests.support.streamlets.server_programs import differences, in_reference, online, program, world

_numbers = itertools.count(1)


@pytest.fixture
def slot(server: PostgresServer) -> Iterator[str]:
    """Yield a slot with ninety rows, some of them changed."""
    name = f"followed_{next(_numbers)}"
    server.ask(f"CREATE TABLE {name} (n bigint PRIMARY KEY, word text, price numeric)")
    server.ask(f"CREATE PUBLICATION {name} FOR TABLE {name}")
    with server.connect() as connection, story.slot(connection, name):
        add(server, name, 0, 89)
        server.ask(f"UPDATE {name} SET word = 'x' WHERE mod(n, 10) = 1")
        server.ask(f"DELETE FROM {name} WHERE mod(n, 10) = 2")
        yield name


def add(server: PostgresServer, table: str, first: int, last: int) -> None:
    server.ask(f"INSERT INTO {table} SELECT n, 'w' || n / 30, n * 0.10 FROM generate_series({first}, {last}) n")


def source(server: PostgresServer, slot: str, **more: Any) -> ServerSource:
    given: dict[str, Any] = {"grows": False, "rows": 7, "password_file": server.password_file, **more}
    return postgres_changes(server.dsn, slot, slot, ["op", "word", "n"], **given)


def confirmed(server: PostgresServer, slot: str) -> int:
    ((found,),) = server.ask("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s", slot)
    return lsn_of(found)


def test_engines_agree_across_faults_without_confirming(server: PostgresServer, slot: str, tmp_path: Path) -> None:
    read, begun = source(server, slot), confirmed(server, slot)
    expected = in_reference(read)
    assert len(expected["records"]) == 90 + 9 + 9
    assert differences(expected, online(read, tmp_path, kills=2)) == {}
    assert confirmed(server, slot) == begun


def test_growing_source_confirms_changes_by_checkpoints(server: PostgresServer, slot: str, tmp_path: Path) -> None:
    builder = program(source(server, slot, grows=True, poll_secs=0.001), tmp_path, parallelism=1)
    begun = confirmed(server, slot)
    with importable(builder):
        made = world(builder, tmp_path)
        for number in range(1, 20):
            made.run_on(1.3)
            if number % 3 == 0:
                made.kill(made.random.choice(made.plan.tasks()))
            add(server, slot, 100 * number, 100 * number + 9)
            if confirmed(server, slot) > begun and number > 6:
                break
        made.stop()
    assert confirmed(server, slot) > begun
    (last,) = ranges_of(source(server, slot), "test")
    assert lsn_of(last.begin[0]) == confirmed(server, slot)


def test_range_ends_at_the_end_of_the_log(server: PostgresServer, slot: str) -> None:
    read = source(server, slot)
    ranges = ranges_of(read, "test")
    add(server, slot, 200, 219)
    found = [record for _, _, records in pieces_of(read, ranges, "test") for record in records]
    assert len(found) == 108
    with closing(read.open("test")) as reader:
        behind = reader.bounds(slot, json.loads(json.dumps(ranges[0].end)))
    assert behind is not None
    rest = [record["n"] for _, _, records in pieces_of(read, [behind], "test") for record in records]
    assert rest == list(range(200, 220)), "the next range begins where one ends"


def test_plan_describes_the_source(server: PostgresServer) -> None:
    made = postgres_changes(server.dsn, "orders", "shop")
    assert made.fields == ("op", "table", "new", "old", "unchanged")
    assert list(made.problems()) == []
    assert str(made) == f"postgres-changes orders at {server.dsn}"
    (said,) = postgres_changes(f"{server.dsn} password=secret", "orders", "shop").problems()
    assert "holds a password" in said
