"""What the files store reads and writes in its tables (``database``), node by node. No locks, no rules.

Every function runs within a transaction of its caller.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from heron_runtime.state.transaction import Record
from heron_runtime.state.validation import parent

Seen = tuple[tuple[str, int, int], ...]  # (path, created, version) of a node and its children


def change_number(connection: sqlite3.Connection) -> int:
    """How many changes there have been."""
    return int(connection.execute("SELECT number FROM changes").fetchone()[0])


def known_sessions(connection: sqlite3.Connection) -> set[str]:
    """Every session that stands in the database."""
    return {str(row[0]) for row in connection.execute("SELECT id FROM sessions")}


def is_known(connection: sqlite3.Connection, session: str) -> bool:
    """True if the session stands in the database; whether its owner lives is another question."""
    return connection.execute("SELECT 1 FROM sessions WHERE id = ?", (session,)).fetchone() is not None


def owners_of(connection: sqlite3.Connection, looked: Mapping[str, Seen]) -> frozenset[str]:
    """The sessions that own any of the nodes that were looked at."""
    paths = {path for seen in looked.values() for path, _, _ in seen}
    found = (connection.execute("SELECT owner FROM nodes WHERE path = ?", (path,)).fetchone() for path in paths)
    return frozenset(str(row[0]) for row in found if row is not None and row[0] is not None)


def lookup(connection: sqlite3.Connection, path: str) -> Record | None:
    """The node as it stands in the database, or None."""
    row = connection.execute("SELECT data, version, owner, created FROM nodes WHERE path = ?", (path,)).fetchone()
    return None if row is None else Record(bytes(row[0]), row[1], row[2], row[3])


def write(connection: sqlite3.Connection, writes: Mapping[str, Record | None], change: int) -> None:
    """Put or remove (None) these nodes, as the change of this number."""
    for path, record in writes.items():
        if record is None:
            connection.execute("DELETE FROM nodes WHERE path = ?", (path,))
        else:
            connection.execute(
                "INSERT OR REPLACE INTO nodes (path, parent, data, version, owner, created) VALUES (?, ?, ?, ?, ?, ?)",
                (path, parent(path), record.data, record.version, record.owner, record.created),
            )
    connection.execute("UPDATE changes SET number = ?", (change,))
