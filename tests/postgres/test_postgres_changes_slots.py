"""Replication slots: errors with a remedy for unreadable or changed slots, exact values, and confirmation."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import os
import subprocess
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from heron_instance.core.state.task_state import SplitPositions
from heronry.api.config import Config
from heronry.connect.pgoutput import lsn_of
from heronry.connect.polling import rows_of
from heronry.connect.postgres_changes import ChangeReader, PostgresChanges
from heronry.connect.settings import BadConfig, ConnectError
from heronry.testing import Recorder
from tests.postgres import changes_story as story
from tests.support.connectors import TaskPlace
from tests.support.servers.postgres import PostgresServer, program_of
from tests.support.waiting import wait_until

SLOT = story.SLOT


@pytest.fixture
def ground(server: PostgresServer) -> Iterator[Any]:
    """Yield the connection of an observer, with a slot."""
    with story.ground(server) as made, story.slot(made.watcher):
        yield made.watcher


@contextlib.contextmanager
def reading(server: PostgresServer, *fields: str, **config: Any) -> Iterator[ChangeReader]:
    given = server.config(**{"slot": SLOT, "publication": story.PUBLICATION, "poll.secs": 0.000_001, **config})
    with contextlib.closing(ChangeReader(given, fields or story.FIELDS, "test")) as made:
        yield made


def refused(server: PostgresServer, match: str, **config: Any) -> None:
    with pytest.raises(ConnectError, match=match), reading(server, **config) as made:
        made.read(SLOT, None)


def test_unreadable_slots_are_rejected(server: PostgresServer, ground: Any) -> None:
    ground.execute(f"INSERT INTO {story.TABLE} VALUES (1)")
    refused(server, r"missing slot 'absent'.*pg_create_logical_replication_slot\('absent', 'pgoutput'\)", slot="absent")
    refused(server, "no_such.*CREATE PUBLICATION no_such", publication="no_such")
    ground.execute("SELECT pg_create_logical_replication_slot('other', 'test_decoding')")
    ground.execute("SELECT pg_create_physical_replication_slot('physical')")
    try:
        refused(server, "slot 'other' .* decodes by test_decoding, of database postgres", slot="other")
        refused(server, "slot 'physical' .* is physical", slot="physical")
    finally:
        ground.execute("SELECT pg_drop_replication_slot(n) FROM unnest(ARRAY['other', 'physical']) n")
    ground.execute(f"CREATE ROLE reads_changes LOGIN PASSWORD '{server.password}'")
    dsn = server.dsn.replace("user=heronry", "user=reads_changes")
    refused(server, "does not let reads_changes use a slot.*ALTER ROLE reads_changes REPLICATION", dsn=dsn)
    ground.execute("ALTER ROLE reads_changes REPLICATION")
    with reading(server, "op", dsn=dsn) as made:
        assert made.read(SLOT, None)[0] == [["insert"]], "REPLICATION is all that is needed"
    ground.execute("DROP ROLE reads_changes")


def test_changed_slot_is_rejected(server: PostgresServer, ground: Any) -> None:
    with reading(server) as made:
        ground.execute(f"INSERT INTO {story.TABLE} VALUES (1)")
        _, position = made.read(SLOT, None)
        other = (*position[:2], "1/1")
        with pytest.raises(ConnectError, match=r"is of server and timeline 1/1.*failover"):
            made.read(SLOT, other)
        ground.execute("SELECT pg_drop_replication_slot(%s)", (SLOT,))
        ground.execute(f"INSERT INTO {story.TABLE} VALUES (2)")
        with pytest.raises(ConnectError, match=r"missing slot.*changes since then are missing"):
            made.read(SLOT, position)
        ground.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
        ground.execute(f"INSERT INTO {story.TABLE} VALUES (3)")
        with pytest.raises(ConnectError, match=r"the changes between are lost.*was recreated"):
            made.read(SLOT, position)
        with pytest.raises(ConnectError, match="the changes between are lost"):
            made.bounds(SLOT, position)


def test_slot_whose_log_was_removed_is_an_error(server: PostgresServer, ground: Any) -> None:
    ground.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
    ground.execute("SELECT pg_reload_conf()")
    try:
        for _ in range(4):
            ground.execute("SELECT pg_logical_emit_message(false, 'fill', repeat('x', 1000000))")
            ground.execute("SELECT pg_switch_wal()")
        ground.execute("CHECKPOINT")
        refused(server, "is lost: the server has removed log that was not read yet.*Start over")
    finally:
        ground.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
        ground.execute("SELECT pg_reload_conf()")


def test_slot_with_another_reader_is_an_error(server: PostgresServer, ground: Any) -> None:
    ground.execute(f"INSERT INTO {story.TABLE} VALUES (1)")
    command = [
        program_of("pg_recvlogical"), "--dbname", server.dsn, "--slot", SLOT, "--start", "--no-loop", "--file", "-",
        "--option", "proto_version=1", "--option", f"publication_names={story.PUBLICATION}",
    ]  # fmt: skip
    environment = {**os.environ, "PGPASSWORD": server.password}
    with (
        reading(server, "id", **{"connect.timeout.secs": 1}) as made,
        subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as other,
    ):
        try:
            wait_until(
                lambda: ground.execute("SELECT active_pid FROM pg_replication_slots").fetchone()[0], "it is read"
            )
            with pytest.raises(ConnectError, match=r"is in use by the server's process [0-9]+ .*use a separate slot"):
                made.read(SLOT, None)
        finally:
            other.kill()
    with reading(server, "id") as made:
        assert made.read(SLOT, None)[0] == [[1]], "it is waited for"


def test_confirmed_positions_are_ends_of_records(server: PostgresServer, ground: Any) -> None:
    """Asynchronous commits have records of several pages (a number for each savepoint).

    The server first flushes them by whole pages, so the log on disk ends in the middle of a commit.
    """
    rounds, each = 6, 3000

    def write() -> None:
        with server.connect() as connection:
            connection.execute("SET synchronous_commit = off")
            for number in range(rounds):
                connection.execute(
                    f"DO $$ BEGIN FOR n IN {number * each}..{number * each + each - 1} LOOP "
                    f"BEGIN INSERT INTO {story.TABLE} VALUES (n); EXCEPTION WHEN division_by_zero THEN NULL; END; "
                    "END LOOP; END $$"
                )

    writer = threading.Thread(target=write)
    writer.start()
    found, position, turns = [], None, itertools.count()
    with reading(server, "id") as made:
        while True:
            over = not writer.is_alive()
            wanted = made.bounds(SLOT, position)
            if wanted is not None:
                found += [row[0] for rows in rows_of(made, wanted) for row in rows]
                position = wanted.end
                if next(turns) % 3 == 0:
                    made.confirm(SLOT, position)
            elif over:
                break
    assert found == list(range(rounds * each))


def test_values_are_exact(server: PostgresServer, ground: Any) -> None:
    ground.execute("SET TimeZone = 'Asia/Kolkata'")
    ground.execute(
        "CREATE TABLE kinds (id int PRIMARY KEY, n numeric(30, 10), at timestamptz, day date, raw bytea, f float8, "
        "late timestamptz, took interval, list int[], doc jsonb, u uuid, flag bool, large text)"
    )
    ground.execute("ALTER TABLE kinds ALTER large SET STORAGE EXTERNAL")
    ground.execute(f"ALTER PUBLICATION {story.PUBLICATION} ADD TABLE kinds")
    values = {
        "id": 1, "n": Decimal("12345678901234567890.1234567891"), "f": 0.1, "raw": b"\x00\xff\\",
        "at": dt.datetime(2026, 1, 1, 0, 0, 0, 1, dt.UTC), "day": dt.date(2026, 1, 1), "late": "infinity",
        "took": "1 mon 2 days 00:00:03", "list": [1, None], "doc": {"a": [1.5]}, "u": UUID(int=7), "flag": True,
        "large": "ü" * 3000,
    }  # fmt: skip
    given = {**values, "doc": '{"a": [1.5]}'}
    ground.execute(
        f"INSERT INTO kinds ({', '.join(given)}) VALUES ({', '.join(['%s'] * len(given))})", list(given.values())
    )
    ground.execute("UPDATE kinds SET n = 'NaN'")
    ground.execute("ALTER TABLE kinds REPLICA IDENTITY FULL")
    ground.execute("UPDATE kinds SET flag = NULL")
    with reading(server, "new", "old", "unchanged", "time") as made:
        (first, second, third), _ = made.read(SLOT, None)
        assert first[:3] == [values, None, []]
        assert abs(first[3] - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=10)
        assert "large" not in second[0]
        assert str(second[0]["n"]) == "NaN"
        assert second[1:3] == [{"id": 1}, ["large"]]
        assert (third[0]["flag"], third[0]["large"], third[1]["large"], third[2]) == (None, *[values["large"]] * 2, [])
    with (
        reading(server, "id", "large") as made,
        pytest.raises(ConnectError, match=r"column 'large' of public.kinds.*REPLICA IDENTITY FULL"),
    ):
        made.read(SLOT, None)
    ground.execute("DROP TABLE kinds")


class Source:
    """The spout, in a reliability mode."""

    def __init__(self, server: PostgresServer, mode: str, **more: Any) -> None:
        self.spout = PostgresChanges()
        self.recorder = Recorder.attach(self.spout)
        self.spout.keyed = SplitPositions(1, (1,), self.spout.splits)
        config = server.config(**{"slot": SLOT, "publication": story.PUBLICATION, "poll.secs": 0.000_001, **more})
        self.spout.initialize({**config, Config.TOPOLOGY_RELIABILITY_MODE: mode}, TaskPlace("c", 1, (1,), c=("id",)))

    def read(self, calls: int) -> list[Any]:
        for _ in range(calls):
            self.spout.next_tuple()
        return [row[0] for row in self.recorder.values()]


def test_slot_is_confirmed_up_to_positions_no_longer_needed(server: PostgresServer, ground: Any) -> None:
    def confirmed() -> int:
        (found,) = ground.execute(
            "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s", (SLOT,)
        ).fetchone()
        return lsn_of(found)

    def add(first: int, last: int) -> int:
        ground.execute(f"INSERT INTO {story.TABLE} SELECT generate_series({first}, {last})")
        return lsn_of(ground.execute("SELECT pg_current_wal_insert_lsn()").fetchone()[0])

    begun = confirmed()
    first, second = add(1, 5), add(6, 10)
    exact = Source(server, Config.EFFECTIVELY_ONCE, rows=3)
    assert exact.read(3) == list(range(1, 10))
    exact.spout.pre_save("4")
    exact.read(3)
    assert confirmed() == begun
    exact.spout.post_save("4")
    assert confirmed() == first, "a transaction that is read in part is kept"
    exact.spout.pre_save("5")
    exact.spout.pre_save("6")
    exact.spout.post_save("6")
    assert confirmed() == second
    exact.spout.close()

    third = add(11, 15)
    tracked = Source(server, Config.ATLEAST_ONCE)
    assert tracked.read(3) == list(range(11, 16))
    ids = [emitted.tup_id for emitted in tracked.recorder.emitted]
    for number in (4, 0, 2, 1):
        tracked.spout.ack(ids[number])
    tracked.spout.fail(ids[3])
    assert tracked.read(3) == [*range(11, 16), 14], "what fails is given again"
    assert confirmed() == second
    tracked.spout.ack(ids[3])
    tracked.read(2)
    assert confirmed() >= third
    tracked.spout.close()

    fourth = add(16, 20)
    at_most = Source(server, Config.ATMOST_ONCE, rows=3)
    assert at_most.read(1) == list(range(16, 21)), "whole transactions, for a slot is confirmed to an end of one"
    assert confirmed() >= fourth
    at_most.spout.close()


def test_missing_settings_are_reported_at_submit(server: PostgresServer) -> None:
    said = list(PostgresChanges.config_problems({"user.postgres.dsn": "host=h password=x", "user.postgres.slot": 1}))
    assert [part for text in said for part in ("slot", "publication", "password") if f"{part}" in text]
    assert len(said) == 3
    with pytest.raises(BadConfig, match=r"needs config 'user.postgres.publication'"):
        PostgresChanges().initialize(server.config(slot="s"), TaskPlace("c", 1, (1,), c=("id",)))
