"""One connection to the files store's SQLite database: opening, transactions, and errors in words.

Write-ahead logging lets readers go on while somebody writes, and shows them whole transactions only. ``BEGIN
IMMEDIATE`` takes the one lock of the store, waiting for it at most ``wait_secs``. The database file itself is never
opened but by SQLite: closing any other descriptor would drop SQLite's locks (POSIX locks belong to the process).
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from heron_runtime.state.filesystem import explain_database_error, explain_os_error
from heron_runtime.state.store import StoreError, StoreUnavailable

SCHEMA_VERSION = 1
_APPLICATION_ID = 0x4852_4E53  # "HRNS"
_SCHEMA = (
    # ``created`` is the number of the change that made the node: it tells a node from its namesake before it.
    "CREATE TABLE nodes (path TEXT PRIMARY KEY, parent TEXT NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL,"
    " owner TEXT, created INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX nodes_by_parent ON nodes (parent)",
    "CREATE INDEX nodes_by_owner ON nodes (owner) WHERE owner IS NOT NULL",
    "CREATE TABLE sessions (id TEXT PRIMARY KEY) WITHOUT ROWID",
    # One row: the number of changes so far, which is all that watchers poll.
    "CREATE TABLE changes (number INTEGER NOT NULL)",
    "INSERT INTO changes VALUES (0)",
)


class Database:
    """A connection that threads share, one transaction at a time."""

    def __init__(self, path: Path, wait_secs: float) -> None:
        self.path = path
        self.wait_secs = wait_secs
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] = (0, 0)

    def open(self) -> None:
        """Connect; make the tables in a new file. Raises StoreError."""
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
        """A consistent view. Raises StoreError."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Hold the store's lock; committed at the end, undone if an exception leaves the block. Raises StoreError."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    def damage(self) -> list[str]:
        """What SQLite's own check finds wrong with the file; empty if it is sound."""
        with self.read() as connection:
            found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(5)")]
        return [] if found == ["ok"] else found

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
            raise StoreUnavailable(f"{error.filename or self.path} is gone: the store's folder was removed.") from error
        except OSError as error:
            raise explain_os_error(error, self.path.parent) from error

    def _checked(self) -> sqlite3.Connection:
        """The connection, made anew if the file was replaced: SQLite itself would go on with the removed one."""
        if self._connection is None:
            raise StoreUnavailable("the state store is not open yet, or not any more")
        found = os.stat(self.path)
        if (found.st_dev, found.st_ino) != self._file:
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
            found = os.stat(self.path)
            _patiently(self.wait_secs, lambda: _set_up(connection, self.path))
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._file = (found.st_dev, found.st_ino)


def _patiently(wait_secs: float, attempt: Callable[[], None]) -> None:
    """Repeat while the database is busy: SQLite does not wait by itself when the journal mode changes."""
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
    connection.execute("BEGIN")  # one view of all that is read: another process may be making the tables just now
    made = _schema_version(connection, path) == SCHEMA_VERSION
    connection.execute("COMMIT")
    if made:
        return
    connection.execute("BEGIN IMMEDIATE")
    if _schema_version(connection, path) == 0:
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _schema_version(connection: sqlite3.Connection, path: Path) -> int:
    """0 for a new file. Raises StoreError for a file of another program or of another version."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    if (application, version) == (_APPLICATION_ID, SCHEMA_VERSION) or (version == 0 and tables == 0):
        return version
    raise StoreError(
        f"{path} was made by another program or another version of Heronry. "
        f"Kill its topologies with that version, or move {path.parent} away."
    )
