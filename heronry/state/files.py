"""The files store: a SQLite database in a private folder, the embedded default of the ``local`` cluster.

* One lock: every transaction holds SQLite's write lock; readers see whole transactions (``database``).
* An ephemeral node lives while its owner's session does (``sessions``: a locked file with a lease). Nobody is in charge
  of the dead: readers pass over nodes of dead owners, and whoever writes next, or watches, removes them in its own
  transaction.
* An owner that was stopped past its lease finds itself LOST: its own clock tells it, or its session is no longer in the
  database, which every transaction and every poll looks up.
* Watches: a thread looks at one change counter each 200 ms (``glance``: where the files show that nothing was written,
  without asking SQLite), and whether the owners of watched nodes live. When either changed, it compares what it watches
  with what it saw, and calls those whose part differs. A client that is to be told nothing looks each second, for the
  sake of its session.
* SUSPENDED means that the file did not answer in time (its lock held by a stopped process, a failing disk, a removed
  folder); the thread finds out when it answers again.

A session is begun by the first ephemeral node, so a client that only reads or writes plain nodes owns no lock file.
"""

from __future__ import annotations

import itertools
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from heronry.state import sessions
from heronry.state.database import Database
from heronry.state.filesystem import prepare_folder
from heronry.state.glance import Glance, traces_of
from heronry.state.rows import Seen, change_number, is_known, lookup, owners_of, write
from heronry.state.store import (
    Create,
    Node,
    Operation,
    SessionLost,
    SessionState,
    StoreError,
    StoreUnavailable,
    TransactionFailed,
)
from heronry.state.transaction import Outcome, evaluate, needs_session
from heronry.state.validation import check_folder, check_node, check_operations

log = logging.getLogger(__name__)

DATABASE_NAME = "state.db"
UNHEARD_POLLS = 5  # intervals between two polls of a client that asked to be told nothing


class _Watch:
    """A watched path, what was seen there last (None: nothing is known), and whom to call."""

    def __init__(self, path: str, changed: Callable[[str], None]) -> None:
        self.path = path
        self.changed = changed
        self.seen: Seen | None = None


class FilesStore:
    """A client of the store in ``folder``. Several may be open in one process; all may be used by any thread."""

    def __init__(
        self,
        folder: str | Path,
        *,
        session_timeout_secs: float = 6.0,
        poll_interval_secs: float = 0.2,
        wait_secs: float = 10.0,
    ) -> None:
        self._folder = Path(folder)
        self._sessions_folder = self._folder / "sessions"
        self._session_timeout_secs = session_timeout_secs
        self._poll_interval_secs = poll_interval_secs
        # Two connections, so that readers and polls go on while a writer waits for the lock.
        self._reader = Database(self._folder / DATABASE_NAME, wait_secs)
        self._writer = Database(self._folder / DATABASE_NAME, wait_secs)
        self._lock = threading.RLock()  # guards everything below
        self._opened = False
        self._state = SessionState.CONNECTED
        self._session: sessions.OwnedSession | None = None
        self._keys = itertools.count()
        self._watches: dict[int, _Watch] = {}
        self._listeners: dict[int, Callable[[SessionState], None]] = {}
        self._to_tell: deque[SessionState] = deque()
        self._fire_all = False  # every watch is to be called
        self._look_again = False  # a watch was added, which the last look did not see
        self._thread: threading.Thread | None = None
        self._bell = threading.Lock()  # free when the polling thread is wanted at once; cheaper than an Event
        self._bell.acquire()
        self._stopping = False
        # Owned by the polling thread.
        self._polled_change = -1
        self._glance = Glance()
        self._glanced = (str(self._reader.path), f"{self._reader.path}-wal")
        self._watched_owners: frozenset[str] = frozenset()

    # -- StateStore ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Make the folder where it is missing, and connect. Raises StoreError."""
        with self._lock:
            if self._opened:
                return
            prepare_folder(self._folder, self._reader.path)
            try:
                self._reader.open()
                self._writer.open()
                with self._reader.read() as connection:
                    known = {str(row[0]) for row in connection.execute("SELECT id FROM sessions")}
                    sessions.sweep(self._sessions_folder, known)
            except BaseException:
                self._reader.close()
                self._writer.close()
                raise
            self._opened = True
            self._stopping = False
            if self._listeners or self._watches:
                self._start_thread()

    def close(self) -> None:
        """End the session and stop the threads. Idempotent."""
        with self._lock:
            if not self._opened:
                return
            self._opened = False
            self._stopping = True
            thread, self._thread = self._thread, None
            session, self._session = self._session, None
        self._ring()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=self._writer.wait_secs + 5)
        if session is not None:
            try:
                with self._writer.write() as connection:
                    self._remove_sessions(connection, [session.id])
            except StoreError as error:
                log.warning("closing the store: %s", error)  # its nodes go as soon as its lock does, below
            session.end()
        self._reader.close()
        self._writer.close()

    def get(self, path: str) -> Node | None:
        """The node, or None."""
        check_node(path)
        with self._answering(), self._reader.read() as connection:
            record = lookup(connection, path)
            if record is None or (record.owner is not None and not self._is_alive(record.owner)):
                return None
            return Node(record.data, record.version, record.owner is not None)

    def children(self, path: str) -> list[str]:
        """Names directly below ``path``, sorted."""
        check_folder(path)
        with self._answering(), self._reader.read() as connection:
            rows = connection.execute("SELECT path, owner FROM nodes WHERE parent = ?", (path,)).fetchall()
            alive = self._alive({owner for _, owner in rows if owner is not None})
            return sorted(p[len(path) + 1 :] for p, owner in rows if owner is None or owner in alive)

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        """All or nothing. Raises a subclass of TransactionFailed, or StoreError."""
        check_operations(operations)
        with self._answering():
            session = self._own_session(begin=any(isinstance(o, Create) and o.ephemeral for o in operations))
            outcome: Outcome | TransactionFailed
            with self._writer.write() as connection:
                self._remove_dead(connection)
                mine = None
                if session is not None and session.alive() and is_known(connection, session.id):
                    mine = session.id
                outcome = self._evaluate(connection, operations, session, mine)
        if session is not None and mine is None:
            self._lose(session)
        self._ring()
        if isinstance(outcome, TransactionFailed):
            raise outcome
        return outcome.versions

    def watch(self, path: str, changed: Callable[[str], None]) -> Callable[[], None]:
        """Call ``changed(path)`` on the store's thread after changes; returns the undo."""
        watch = _Watch(check_folder(path), changed)
        try:
            with self._answering(), self._reader.read() as connection:
                watch.seen = self._look(connection, path)
        except StoreUnavailable:
            pass  # nothing is known: it is called once the store answers
        with self._lock:
            key = next(self._keys)
            self._watches[key] = watch
            self._look_again = True
            self._start_thread()
        self._ring()
        return lambda: self._forget(key)

    def on_session(self, changed: Callable[[SessionState], None]) -> Callable[[], None]:
        """Call ``changed`` on the store's thread when the session's state changes; returns the undo."""
        with self._lock:
            key = next(self._keys)
            self._listeners[key] = changed
            self._start_thread()
        return lambda: self._forget(key)

    def session(self) -> SessionState:
        """The session's state now."""
        with self._lock:
            return self._state

    def damage(self) -> list[str]:
        """What is wrong inside the database file; empty if it is sound. For ``heron doctor``."""
        return self._reader.damage()

    # -- transactions ----------------------------------------------------------------------------------------------

    def _evaluate(
        self,
        connection: sqlite3.Connection,
        operations: Sequence[Operation],
        session: sessions.OwnedSession | None,
        mine: str | None,
    ) -> Outcome | TransactionFailed:
        """Apply, or say why not; a refusal is returned, since the removal of the dead is to be committed anyhow."""
        if session is not None and mine is None and needs_session(operations):
            return SessionLost(operations[0].path, 0, "this client's session is over; try again with a new one")
        change = change_number(connection) + 1
        try:
            outcome = evaluate(operations, lambda path: lookup(connection, path), mine, change)
        except TransactionFailed as error:
            return error
        if outcome.writes:
            write(connection, outcome.writes, change)
        return outcome

    def _remove_dead(self, connection: sqlite3.Connection) -> None:
        known = [str(row[0]) for row in connection.execute("SELECT id FROM sessions")]
        dead = [session for session in known if not self._is_alive(session)]
        if dead:
            self._remove_sessions(connection, dead)

    def _remove_sessions(self, connection: sqlite3.Connection, ended: Sequence[str]) -> None:
        for session in ended:
            paths = [str(r[0]) for r in connection.execute("SELECT path FROM nodes WHERE owner = ?", (session,))]
            if paths:
                write(connection, dict.fromkeys(paths), change_number(connection) + 1)
            connection.execute("DELETE FROM sessions WHERE id = ?", (session,))
            sessions.remove_file(self._sessions_folder, session)  # if this is undone, it is still dead

    # -- the session -----------------------------------------------------------------------------------------------

    def _own_session(self, begin: bool) -> sessions.OwnedSession | None:
        with self._lock:
            if self._session is not None or not begin:
                return self._session
            try:
                session = sessions.OwnedSession(self._sessions_folder, self._session_timeout_secs)
            except FileNotFoundError as error:
                raise StoreUnavailable(f"{error.filename} is gone: the store's folder was removed.") from error
            except OSError as error:
                raise StoreError(f"{self._sessions_folder}: no session can be begun: {error.strerror}") from error
            try:
                with self._writer.write() as connection:
                    connection.execute("INSERT INTO sessions VALUES (?)", (session.id,))
            except BaseException:
                session.end()
                raise
            self._session = session
            self._start_thread()
            return session

    def _lose(self, session: sessions.OwnedSession) -> None:
        with self._lock:
            if self._session is not session:
                return
            self._session = None
            self._become(SessionState.LOST)
        session.end()

    def _is_alive(self, session: str) -> bool:
        return sessions.is_alive(self._sessions_folder, session)

    def _alive(self, owners: Collection[str]) -> set[str]:
        return {owner for owner in owners if self._is_alive(owner)}

    @contextmanager
    def _answering(self, polling: bool = False) -> Iterator[None]:
        """Note whether the store answers. A poll finds out that a store is back, but begins no new session."""
        try:
            yield
        except StoreError as error:
            if polling or isinstance(error, StoreUnavailable):
                with self._lock:
                    if self._state is SessionState.CONNECTED:
                        self._become(SessionState.SUSPENDED)
            raise
        with self._lock:
            if self._state is SessionState.SUSPENDED or (self._state is SessionState.LOST and not polling):
                self._become(SessionState.CONNECTED)
                self._fire_all = True

    def _become(self, state: SessionState) -> None:
        if self._state is not state:
            self._state = state
            self._to_tell.append(state)
            self._ring()

    # -- the polling thread ----------------------------------------------------------------------------------------

    def _start_thread(self) -> None:
        if self._thread is None and self._opened:
            self._thread = threading.Thread(target=self._poll_forever, name="store-poll", daemon=True)
            self._thread.start()

    def _ring(self) -> None:
        """Let the polling thread look now."""
        with suppress(RuntimeError):  # somebody has rung already
            self._bell.release()

    def _poll_forever(self) -> None:
        while not self._stopping:
            if self._to_tell or self._fire_all or self._look_again or self._may_have_changed():
                self._poll_and_tell()
            heard = self._watches or self._listeners
            self._bell.acquire(timeout=self._poll_interval_secs * (1 if heard else UNHEARD_POLLS))

    def _poll_and_tell(self) -> None:
        self._tell_listeners()
        with self._lock:
            fire_all, self._fire_all = self._fire_all, False
            look_again, self._look_again = self._look_again, False
        try:
            self._poll(fire_all, look_again)
        except Exception as error:
            self._glance.forget()
            with self._lock:
                self._fire_all |= fire_all
                self._look_again |= look_again
            if not isinstance(error, StoreError):
                log.exception("polling the store")  # a store that does not answer shows in the session's state
        self._tell_listeners()

    def _may_have_changed(self) -> bool:
        """False if a poll would find what the last one found. Costs little: the caches are cold each time."""
        session = self._session
        if self._state is not SessionState.CONNECTED or (session is not None and not session.alive()):
            return True
        try:
            if self._glance.needed(time.monotonic(), traces_of(self._glanced)):
                return True
            return not all(map(self._is_alive, self._watched_owners))
        except OSError:
            return True  # the poll will say why

    def _poll(self, fire_all: bool, look_again: bool) -> None:
        try:
            before = time.monotonic(), time.time(), traces_of(self._glanced)
        except OSError:
            before = None  # the read itself says what is wrong
        with self._lock:
            session, watches = self._session, list(self._watches.values())
        with self._answering(polling=True), self._reader.read() as connection:
            change = change_number(connection)
            lost = session is not None and not (session.alive() and is_known(connection, session.id))
            died = self._watched_owners - self._alive(self._watched_owners)
            looked: dict[str, Seen] = {}
            if change != self._polled_change or died or look_again:
                looked = {watch.path: self._look(connection, watch.path) for watch in watches}
                self._watched_owners = owners_of(connection, looked)
        if lost and session is not None:
            self._lose(session)
        self._polled_change = change
        if before is not None:
            self._glance.has_read(*before)
        with self._lock:  # this very poll may have found that the store is back
            fire_all, self._fire_all = fire_all or self._fire_all, False
        for watch in watches:
            seen = looked.get(watch.path, watch.seen)
            if fire_all or seen != watch.seen:
                watch.seen = seen
                _call(watch.changed, watch.path)
        if died:
            with self._answering(polling=True), self._writer.write() as connection:
                self._remove_dead(connection)

    def _look(self, connection: sqlite3.Connection, path: str) -> Seen:
        rows = connection.execute(
            "SELECT path, created, version, owner FROM nodes WHERE path = ?1 OR parent = ?1 ORDER BY path", (path,)
        ).fetchall()
        alive = self._alive({row[3] for row in rows if row[3] is not None})
        return tuple((p, created, version) for p, created, version, owner in rows if owner is None or owner in alive)

    def _tell_listeners(self) -> None:
        while True:
            with self._lock:
                if not self._to_tell:
                    return
                state = self._to_tell.popleft()
                listeners = list(self._listeners.values())
            for listener in listeners:
                _call(listener, state)

    def _forget(self, key: int) -> None:
        with self._lock:
            self._watches.pop(key, None)
            self._listeners.pop(key, None)


def _call(callback: Callable[..., None], argument: object) -> None:
    try:
        callback(argument)
    except Exception:
        log.exception("a callback of the store failed")
