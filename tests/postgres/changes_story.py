"""Random transactions on a table, and the invariant of the changes that a replication slot reports for them.

Two writers with overlapping transactions play a story. A reader follows, takes positions, restarts at some of them and
confirms others. The changes of the first n transactions, applied to an empty table, must give the table as it was when
the n-th had committed.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import strategies as st

from heronry.connect.polling import Range, rows_of
from heronry.connect.postgres_changes import ChangeReader
from tests.support.servers.postgres import PostgresServer

TABLE, SLOT, PUBLICATION = "story", "story_slot", "story_tables"
FIELDS = ("op", "table", "new", "old", "unchanged", "lsn", "index")
LARGE = 2500  # characters, which are stored outside the row
Rows = dict[int, tuple[Any, ...]]


class Turn(NamedTuple):
    """Two overlapping transactions and the actions of the reader after them.

    The transactions are statements of each, whether it commits, and which is first.
    """

    writes: tuple[list[tuple[str, int]], list[tuple[str, int]]]
    commits: tuple[bool, bool]
    second_first: bool
    truncates: bool
    reads: int
    restarts: bool
    confirms: bool


_statements = st.lists(
    st.tuples(st.sampled_from(["insert", "touch", "grow", "delete", "move"]), st.integers(0, 1)), max_size=5
)
_turns = st.builds(
    Turn, st.tuples(_statements, _statements), st.tuples(st.booleans(), st.booleans()), st.booleans(),
    st.sampled_from([False] * 5 + [True]), st.integers(0, 4), st.sampled_from([False, False, True]), st.booleans(),
)  # fmt: skip
stories = st.tuples(st.lists(_turns, min_size=1, max_size=5), st.integers(1, 4))


class Ground(NamedTuple):
    """Server with the table, and connections, shared by stories."""

    server: PostgresServer
    writers: tuple[Any, Any]
    watcher: Any


@contextlib.contextmanager
def ground(server: PostgresServer) -> Iterator[Ground]:
    """Yield a prepared server, and remove everything afterwards."""
    with contextlib.ExitStack() as stack:
        one, other, watcher = (stack.enter_context(server.connect()) for _ in range(3))
        watcher.execute(f"CREATE TABLE {TABLE} (id int PRIMARY KEY, n numeric, large text)")
        stack.callback(lambda: watcher.execute(f"DROP TABLE {TABLE}"))
        watcher.execute(f"ALTER TABLE {TABLE} ALTER large SET STORAGE EXTERNAL")
        watcher.execute(f"CREATE PUBLICATION {PUBLICATION} FOR TABLE {TABLE}")
        stack.callback(lambda: watcher.execute(f"DROP PUBLICATION {PUBLICATION}"))
        yield Ground(server, (one, other), watcher)


@contextlib.contextmanager
def slot(connection: Any, name: str = SLOT) -> Iterator[None]:
    """Create a slot for the duration of the block."""
    connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
    try:
        yield
    finally:
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", (name,)
        )


def reader(server: PostgresServer, rows: int, fields: tuple[str, ...] = FIELDS) -> ChangeReader:
    config = server.config(slot=SLOT, publication=PUBLICATION, rows=rows, **{"poll.secs": 0.000_001})
    return ChangeReader(config, fields, "story")


def write(connection: Any, statements: list[tuple[str, int]], mine: int) -> None:
    """Execute statements of a writer, which has its own ids."""
    for what, number in statements:
        key, other = 2 * number + mine, 2 * (1 - number) + mine
        sql = {
            "insert": f"INSERT INTO {TABLE} VALUES ({key}, {number}.10, repeat('s', {LARGE})) ON CONFLICT DO NOTHING",
            "touch": f"UPDATE {TABLE} SET n = n + 1 WHERE id = {key}",
            "grow": f"UPDATE {TABLE} SET large = repeat('{number}', {LARGE} * ({number} + 1)) WHERE id = {key}",
            "delete": f"DELETE FROM {TABLE} WHERE id = {key}",
            "move": f"UPDATE {TABLE} SET id = {other} WHERE id = {key} "
                    f"AND NOT EXISTS (SELECT 1 FROM {TABLE} WHERE id = {other})",
        }[what]  # fmt: skip
        connection.execute(sql)


def played(rows: list[Any], before: Rows | None = None) -> list[Rows]:
    """Return the table after each transaction in these changes."""
    table: Rows = dict(before or {})
    states: list[Rows] = []
    last = None
    for op, name, new, old, unchanged, lsn, index in rows:
        assert name == f"public.{TABLE}"
        if lsn != last:
            states.append(table)
            assert index == 0, "a transaction is read from its first change on"
        last = lsn
        table = dict(table)
        was = table.pop(old["id"], None) if old is not None else None
        if op == "truncate":
            table = {}
        elif new is not None:
            assert unchanged in ([], ["large"])
            assert ("large" in new) != bool(unchanged)
            large = was[1] if was is not None and unchanged else new.get("large")
            assert new["id"] not in table, "an insert, or an update, of a row that is there"
            table[new["id"]] = (new["n"], large)
        states[-1] = table
    return states


class Follower:
    """Reader of the slot from position to position; positions pass through JSON."""

    def __init__(self, server: PostgresServer, rows: int) -> None:
        self._server, self._rows = server, rows
        self.reader = reader(server, rows)
        self.position: Any = None
        self.found: list[Any] = []

    def read(self) -> bool:
        """Read a piece."""
        found = self.reader.read(SLOT, self.position)
        if found is not None:
            self.found += found[0]
            self.position = json.loads(json.dumps(found[1]))
        return found is not None

    def go(self, turn: Turn) -> None:
        """Do the reader's part of a turn."""
        for _ in range(turn.reads):
            self.read()
        if turn.restarts:
            self.reader.close()
            self.reader = reader(self._server, self._rows)

    def close(self) -> None:
        self.reader.close()

    def catch_up(self) -> None:
        """Read up to the current end of the log."""
        until = self.reader.bounds(SLOT, self.position)
        while until is not None and self.reader.bounds(SLOT, self.position) is not None:
            self.read()
            time.sleep(0.000_001)


def check(ground: Ground, story: tuple[list[Turn], int]) -> None:
    """Check the invariant for one story."""
    turns, rows = story
    for connection in (*ground.writers, ground.watcher):
        connection.execute("ROLLBACK")  # left open by an earlier story
    ground.watcher.execute(f"TRUNCATE {TABLE}")
    expected: list[Rows] = []
    ranges: list[tuple[int, Range]] = []
    with slot(ground.watcher), contextlib.closing(Follower(ground.server, rows)) as follower:
        for turn in turns:
            play(turn, ground, expected)
            if (wanted := follower.reader.bounds(SLOT)) is not None:
                ranges.append((len(expected), wanted))
            follower.go(turn)
        for count, wanted in ranges:
            found = [row for piece in rows_of(follower.reader, wanted) for row in piece]
            assert played(found) == expected[:count], "a range has what was committed before its end"
        for turn in turns:
            if turn.confirms and follower.position is not None:
                follower.reader.confirm(SLOT, follower.position)
            follower.go(turn)
        follower.catch_up()
        assert played(follower.found) == expected


def play(turn: Turn, ground: Ground, expected: list[Rows]) -> None:
    """Play a turn of the writers; add the table after each commit that has changed it."""
    _, writers, watcher = ground
    if turn.truncates:
        watcher.execute(f"TRUNCATE {TABLE}")
        expected.append({})
    for mine, writer in enumerate(writers):
        writer.execute("BEGIN")
        write(writer, turn.writes[mine], mine)
    for mine in (1, 0) if turn.second_first else (0, 1):
        written = writers[mine].execute("SELECT pg_current_xact_id_if_assigned()").fetchone()[0]
        writers[mine].execute("COMMIT" if turn.commits[mine] else "ROLLBACK")
        if turn.commits[mine] and written is not None:
            rows = watcher.execute(f"SELECT id, n, large FROM {TABLE}").fetchall()
            expected.append({key: (n, large) for key, n, large in rows})
