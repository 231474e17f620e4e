"""SQLite database of the files store: connections, transactions, rows and the tree of nodes.

With write-ahead logging, readers continue during a write and see whole transactions only. `BEGIN IMMEDIATE` takes the
only lock of the store and waits for it up to `wait_secs`. Only SQLite opens the database file: POSIX locks belong to
the process, and closing any other descriptor would drop those of SQLite.

Functions on rows run within a transaction of their caller. Readers pass over nodes of dead owners; the next writer, or
a client with watches, removes them in its own transaction.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from heron_runtime.state import files_leases
from heron_runtime.state.filesystem import explain_database_error, explain_os_error, prepare_folder
from heron_runtime.state.store import (
    Node,
    Operation,
    SessionLost,
    StoreError,
    StoreMissing,
    StoreUnavailable,
    TransactionFailed,
    parent,
)
from heron_runtime.state.store_base import Changes, Record, evaluate, needs_session

SCHEMA_VERSION = 1
_APPLICATION_ID = 0x4852_4E53  # "HRNS"
_SCHEMA = (
    # ``created`` is the number of the change that created the node. It distinguishes nodes of the same path.
    "CREATE TABLE nodes (path TEXT PRIMARY KEY, parent TEXT NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL,"
    " owner TEXT, created INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX nodes_by_parent ON nodes (parent)",
    "CREATE INDEX nodes_by_owner ON nodes (owner) WHERE owner IS NOT NULL",
    "CREATE TABLE sessions (id TEXT PRIMARY KEY) WITHOUT ROWID",
    # One row: the number of changes so far. Watchers poll only this.
    "CREATE TABLE changes (number INTEGER NOT NULL)",
    "INSERT INTO changes VALUES (0)",
)


class Database:
    """Connection that threads share, one transaction at a time."""

    def __init__(self, path: Path, wait_secs: float) -> None:
        self.path = path
        self.wait_secs = wait_secs
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] = (0, 0)

    def open(self) -> None:
        """Connect, and create the tables in a new file. Raises StoreError."""
        with self._lock, self._explained():
            self._connect()

    def close(self) -> None:
        """Disconnect. Idempotent."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Enter a read transaction, which has a consistent view. Raises StoreError."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Enter a write transaction, which holds the store's lock. An exception rolls it back. Raises StoreError."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    def damage(self) -> list[str]:
        """Return the findings of SQLite's own check; empty if the file is sound."""
        with self.read() as connection:
            report = [str(row[0]) for row in connection.execute("PRAGMA quick_check(5)")]
        return [] if report == ["ok"] else report

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._lock, self._explained():
            connection = self._checked()
            connection.execute(begin)
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise explain_database_error(error, self.path, self.wait_secs) from error
        except FileNotFoundError as error:
            raise StoreUnavailable(f"{error.filename or self.path} is missing: the store was removed.") from error
        except OSError as error:
            raise explain_os_error(error, self.path.parent) from error

    def _checked(self) -> sqlite3.Connection:
        """Return the connection; reopen it if the file was replaced, since SQLite would keep the removed one."""
        if self._connection is None:
            raise StoreUnavailable("the state store is not open yet, or not any more")
        status = os.stat(self.path)
        if (status.st_dev, status.st_ino) != self._file:
            self._connection.close()
            self._connect()
        return self._connection

    def _connect(self) -> None:
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode=rw",
            uri=True,
            timeout=self.wait_secs,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            status = os.stat(self.path)
            _patiently(self.wait_secs, lambda: _set_up(connection, self.path))
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._file = (status.st_dev, status.st_ino)


def _patiently(wait_secs: float, attempt: Callable[[], None]) -> None:
    """Repeat while the database is busy, since SQLite does not wait when the journal mode changes."""
    deadline = time.monotonic() + wait_secs
    pause = 0.002
    while True:
        try:
            attempt()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(pause)
        pause = min(pause * 2, 0.1)


def _set_up(connection: sqlite3.Connection, path: Path) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        if mode != "wal":
            raise StoreError(f"{path}: this file system cannot share memory between processes. Choose a local disk.")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA journal_size_limit={4 * 1024 * 1024}")
    connection.execute("BEGIN")  # consistent view, since another process may be creating the tables
    made = _schema_version(connection, path) == SCHEMA_VERSION and _has_identity(connection)
    connection.execute("COMMIT")
    if made:
        return
    connection.execute("BEGIN IMMEDIATE")
    if _schema_version(connection, path) == 0:
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    for statement in _IDENTITY:
        connection.execute(statement)
    connection.execute("COMMIT")


def _schema_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema version, 0 for a new file. Raises StoreError for a file of another program or version."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    if (application, version) == (_APPLICATION_ID, SCHEMA_VERSION) or (version == 0 and tables == 0):
        return version
    raise StoreError(
        f"{path} was made by another program or another version of Heronry. "
        f"Kill its topologies with that version, or move {path.parent} away."
    )


# Added to stores of earlier releases at their next start. A random text, drawn once for each database.
_IDENTITY = (
    "CREATE TABLE IF NOT EXISTS identity (id TEXT NOT NULL)",
    "INSERT INTO identity SELECT lower(hex(randomblob(16))) WHERE NOT EXISTS (SELECT 1 FROM identity)",
)


def _has_identity(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'identity'").fetchone()[0])


Seen = tuple[tuple[str, int, int], ...]  # (path, created, version) of a node and its children


def change_number(connection: sqlite3.Connection) -> int:
    """Return the number of changes so far."""
    return int(connection.execute("SELECT number FROM changes").fetchone()[0])


def known_sessions(connection: sqlite3.Connection) -> set[str]:
    """Return all sessions in the database."""
    return {str(row[0]) for row in connection.execute("SELECT id FROM sessions")}


def is_known(connection: sqlite3.Connection, session: str) -> bool:
    """Return True if the session is in the database. Its owner may be dead."""
    return connection.execute("SELECT 1 FROM sessions WHERE id = ?", (session,)).fetchone() is not None


def owners_of(connection: sqlite3.Connection, looked: Mapping[str, Seen]) -> frozenset[str]:
    """Return the sessions that own any of the nodes in `looked`."""
    paths = {path for seen in looked.values() for path, _, _ in seen}
    rows = (connection.execute("SELECT owner FROM nodes WHERE path = ?", (path,)).fetchone() for path in paths)
    return frozenset(str(row[0]) for row in rows if row is not None and row[0] is not None)


def lookup(connection: sqlite3.Connection, path: str) -> Record | None:
    """Return the record of a node, or None."""
    row = connection.execute("SELECT data, version, owner, created FROM nodes WHERE path = ?", (path,)).fetchone()
    return None if row is None else Record(bytes(row[0]), row[1], row[2], row[3])


def write(connection: sqlite3.Connection, writes: Mapping[str, Record | None], change: int) -> None:
    """Write or remove (None) nodes, and set the number of changes to `change`."""
    for path, record in writes.items():
        if record is None:
            connection.execute("DELETE FROM nodes WHERE path = ?", (path,))
        else:
            connection.execute(
                "INSERT OR REPLACE INTO nodes (path, parent, data, version, owner, created) VALUES (?, ?, ?, ?, ?, ?)",
                (path, parent(path), record.data, record.version, record.owner, record.created),
            )
    connection.execute("UPDATE changes SET number = ?", (change,))


DATABASE_NAME = "state.db"


class FilesTree:
    """Tree of nodes in ``folder``, without those of dead owners. Any thread may use it."""

    def __init__(self, folder: Path, wait_secs: float) -> None:
        self._folder = folder
        self._sessions_folder = folder / "sessions"
        self.path = folder / DATABASE_NAME
        # Two connections, so that readers and polls continue while a writer waits for the lock.
        self.reader = Database(self.path, wait_secs)
        self.writer = Database(self.path, wait_secs)

    def open(self, create: bool) -> None:
        """Create the folder if it is missing and ``create`` is set, and connect. Raises StoreMissing, StoreError."""
        if not create and not self.path.exists() and (self._folder.is_dir() or not self._folder.exists()):
            raise StoreMissing(f"{self._folder}: the state store does not exist, or its folder was removed")
        prepare_folder(self._folder, self.path)
        try:
            self.reader.open()
            self.writer.open()
            with self.reader.read() as connection:
                files_leases.sweep(self._sessions_folder, known_sessions(connection))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Disconnect. Idempotent."""
        self.reader.close()
        self.writer.close()

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Return each node, or None."""
        with self.reader.read() as connection:
            records = [lookup(connection, path) for path in paths]
            alive = self.alive({record.owner for record in records if record is not None and record.owner is not None})
        return [
            None
            if record is None or (record.owner is not None and record.owner not in alive)
            else Node(record.data, record.version, record.owner is not None)
            for record in records
        ]

    def children(self, path: str) -> list[str]:
        """Return the names directly below ``path``, sorted."""
        with self.reader.read() as connection:
            # "0" is the character after "/", so this selects all paths that begin with "PATH/".
            rows = connection.execute(
                "SELECT path, owner FROM nodes WHERE path > ?1 || '/' AND path < ?1 || '0'", (path,)
            ).fetchall()
            alive = self.alive({owner for _, owner in rows if owner is not None})
            names = {p[len(path) + 1 :].partition("/")[0] for p, owner in rows if owner is None or owner in alive}
            return sorted(names)

    def identity(self) -> str:
        """Return the random text that this database got when it was created."""
        with self.reader.read() as connection:
            return str(connection.execute("SELECT id FROM identity").fetchone()[0])

    def look(self, connection: sqlite3.Connection, path: str) -> Seen:
        """Return the values that a watch of `path` compares, within a read of the caller."""
        rows = connection.execute(
            "SELECT path, created, version, owner FROM nodes WHERE path = ?1 OR parent = ?1 ORDER BY path", (path,)
        ).fetchall()
        alive = self.alive({row[3] for row in rows if row[3] is not None})
        return tuple((p, created, version) for p, created, version, owner in rows if owner is None or owner in alive)

    def alive(self, owners: Collection[str]) -> set[str]:
        """Return those of these sessions that are alive."""
        return {owner for owner in owners if files_leases.is_alive(self._sessions_folder, owner)}

    def commit(
        self, operations: Sequence[Operation], session: files_leases.SessionLease | None
    ) -> tuple[Changes | TransactionFailed, bool]:
        """Apply operations in one transaction, and remove nodes of dead owners.

        Returns:
            The changes or the reason of a refusal, and True if ``session`` is over. A refusal is returned rather than
            raised, so that the removal of nodes of dead owners is committed.
        """
        with self.writer.write() as connection:
            self._remove_dead(connection)
            lost = session is not None and not (session.alive() and is_known(connection, session.id))
            if lost and needs_session(operations):
                return SessionLost(
                    operations[0].path, 0, "this client's session is over; try again with a new one"
                ), lost
            mine = None if session is None or lost else session.id
            change = change_number(connection) + 1
            try:
                changes = evaluate(operations, lambda path: lookup(connection, path), mine, change)
            except TransactionFailed as error:
                return error, lost
            if changes.writes:
                write(connection, changes.writes, change)
            return changes, lost

    def remove_dead(self) -> None:
        """Remove dead sessions and their nodes."""
        with self.writer.write() as connection:
            self._remove_dead(connection)

    def begin_session(self, timeout_secs: float) -> files_leases.SessionLease:
        """Create a session of this process. Raises StoreError."""
        try:
            session = files_leases.SessionLease(self._sessions_folder, timeout_secs)
        except FileNotFoundError as error:
            raise StoreUnavailable(f"{error.filename} is missing: the store's folder was removed.") from error
        except OSError as error:
            raise explain_os_error(error, self._sessions_folder) from error
        try:
            with self.writer.write() as connection:
                connection.execute("INSERT INTO sessions VALUES (?)", (session.id,))
        except BaseException:
            session.end()
            raise
        return session

    def end_session(self, session: files_leases.SessionLease) -> None:
        """Remove a session of this process and its nodes, and all dead sessions.

        A ``heron kill`` that had to kill processes may be the last client of the store, so it must remove their
        sessions.
        """
        with self.writer.write() as connection:
            self._remove_sessions(connection, [session.id])
            self._remove_dead(connection)

    def _remove_dead(self, connection: sqlite3.Connection) -> None:
        known = known_sessions(connection)
        self._remove_sessions(connection, known - self.alive(known))

    def _remove_sessions(self, connection: sqlite3.Connection, ended: Collection[str]) -> None:
        for session in ended:
            paths = [str(r[0]) for r in connection.execute("SELECT path FROM nodes WHERE owner = ?", (session,))]
            if paths:
                write(connection, dict.fromkeys(paths), change_number(connection) + 1)
            connection.execute("DELETE FROM sessions WHERE id = ?", (session,))
            files_leases.remove_file(self._sessions_folder, session)  # if this is undone, it is still dead
