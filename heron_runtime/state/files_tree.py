"""The tree of the files store: reading and writing it in transactions of the database (``database``, ``rows``).

Nobody is in charge of the dead: readers pass over nodes of dead owners, and whoever writes next, or watches, removes
them in its own transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from pathlib import Path

from heron_runtime.state import sessions
from heron_runtime.state.database import Database
from heron_runtime.state.filesystem import explain_os_error, prepare_folder
from heron_runtime.state.rows import Seen, change_number, is_known, known_sessions, lookup, write
from heron_runtime.state.store import Node, Operation, SessionLost, StoreUnavailable, TransactionFailed
from heron_runtime.state.transaction import Changes, evaluate, needs_session

DATABASE_NAME = "state.db"


class FilesTree:
    """The nodes in ``folder``, and whether their owners live. Any thread may use it."""

    def __init__(self, folder: Path, wait_secs: float) -> None:
        self._folder = folder
        self._sessions_folder = folder / "sessions"
        self.path = folder / DATABASE_NAME
        # Two connections, so that readers and polls go on while a writer waits for the lock.
        self.reader = Database(self.path, wait_secs)
        self.writer = Database(self.path, wait_secs)

    def open(self) -> None:
        """Make the folder where it is missing, and connect. Raises StoreError."""
        prepare_folder(self._folder, self.path)
        try:
            self.reader.open()
            self.writer.open()
            with self.reader.read() as connection:
                sessions.sweep(self._sessions_folder, known_sessions(connection))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Disconnect. Idempotent."""
        self.reader.close()
        self.writer.close()

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Each node, or None."""
        with self.reader.read() as connection:
            records = [lookup(connection, path) for path in paths]
            alive = self.alive({found.owner for found in records if found is not None and found.owner is not None})
        return [
            None
            if found is None or (found.owner is not None and found.owner not in alive)
            else Node(found.data, found.version, found.owner is not None)
            for found in records
        ]

    def children(self, path: str) -> list[str]:
        """Names directly below ``path``, sorted."""
        with self.reader.read() as connection:
            # "0" is the character after "/": all that begins with "PATH/".
            rows = connection.execute(
                "SELECT path, owner FROM nodes WHERE path > ?1 || '/' AND path < ?1 || '0'", (path,)
            ).fetchall()
            alive = self.alive({owner for _, owner in rows if owner is not None})
            found = {p[len(path) + 1 :].partition("/")[0] for p, owner in rows if owner is None or owner in alive}
            return sorted(found)

    def look(self, connection: sqlite3.Connection, path: str) -> Seen:
        """What a watch of ``path`` compares, within a reading of the caller's."""
        rows = connection.execute(
            "SELECT path, created, version, owner FROM nodes WHERE path = ?1 OR parent = ?1 ORDER BY path", (path,)
        ).fetchall()
        alive = self.alive({row[3] for row in rows if row[3] is not None})
        return tuple((p, created, version) for p, created, version, owner in rows if owner is None or owner in alive)

    def alive(self, owners: Collection[str]) -> set[str]:
        """Those of these sessions that live."""
        return {owner for owner in owners if sessions.is_alive(self._sessions_folder, owner)}

    def commit(
        self, operations: Sequence[Operation], session: sessions.OwnedSession | None
    ) -> tuple[Changes | TransactionFailed, bool]:
        """Apply, or say why not; and whether ``session`` turned out to be over.

        A refusal is returned, since the removal of the dead is to be committed anyhow.
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
        """Remove what dead sessions owned."""
        with self.writer.write() as connection:
            self._remove_dead(connection)

    def begin_session(self, timeout_secs: float) -> sessions.OwnedSession:
        """A new session of this process. Raises StoreError."""
        try:
            session = sessions.OwnedSession(self._sessions_folder, timeout_secs)
        except FileNotFoundError as error:
            raise StoreUnavailable(f"{error.filename} is gone: the store's folder was removed.") from error
        except OSError as error:
            raise explain_os_error(error, self._sessions_folder) from error
        try:
            with self.writer.write() as connection:
                connection.execute("INSERT INTO sessions VALUES (?)", (session.id,))
        except BaseException:
            session.end()
            raise
        return session

    def end_session(self, session: sessions.OwnedSession) -> None:
        """Remove a session of this process and what it owns. Who leaves removes the dead, too: a ``heron kill`` that
        had to end processes by force is the last that looks at the store."""
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
            sessions.remove_file(self._sessions_folder, session)  # if this is undone, it is still dead
