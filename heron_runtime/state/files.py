"""Files store: a SQLite database in a private folder, the embedded default of the `local` cluster.

Every transaction holds the write lock of SQLite; readers see whole transactions (`files_database`). An ephemeral node
lives as long as the session of its owner, a locked file with a lease (`files_leases`).

The session of a client begins with its first ephemeral node. An owner that was stopped past its lease finds itself
LOST: by its own clock, or since its session is missing from the database, which every transaction and poll looks up.
The next transaction begins a new session. SUSPENDED means that the file did not answer in time: a stopped process holds
its lock, the disk fails, or the folder was removed.

A thread polls for changes and calls watches and listeners. In each interval it reads one change counter and checks
whether the owners of watched nodes live. If either changed, it compares watched nodes with what it saw before. Without
watches and listeners it polls once a second, for the session.

A transaction that finds nothing new costs about 250 µs of CPU, and several processes of every topology would begin
five a second. Two calls of `stat` replace it while size and time of the database and of its log stay the same, with
three bounds:

* A commit shows in the log *before* readers may see it (SQLite syncs in between). A log is therefore trusted only when
  its last write is `SETTLED_SECS` old, which also covers file systems with coarse clocks.
* A clock that was set back gives old times to new writes: times in the future are not trusted either.
* Disks may fail and syncs may take longer: the database is read every `SURE_EVERY_SECS` in any case.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from heron_runtime.state.files_database import FilesTree, Seen, change_number, is_known, owners_of
from heron_runtime.state.files_leases import SessionLease
from heron_runtime.state.store import (
    Create,
    Node,
    Operation,
    SessionState,
    StoreError,
    StoreParameters,
    StoreUnavailable,
    TransactionFailed,
    check_folder,
    check_node,
    check_operations,
)  # fmt: skip
from heron_runtime.state.store_base import Watch, WatchTable, call

SETTLED_SECS = 5.0
SURE_EVERY_SECS = 2.0

Trace = tuple[int, int, int, int] | None  # device, inode, size, time of the last write in ns; None: no such file


def traces_of(paths: Sequence[str]) -> tuple[Trace, ...]:
    """Return the traces of these files. Raises OSError, except for missing files."""
    return tuple(map(_trace, paths))


def _trace(path: str) -> Trace:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@dataclass(slots=True)
class FileChangeDetector:
    """Detector of changes since the last read. ``now`` is in monotonic seconds, ``wall`` in seconds since 1970."""

    _traces: tuple[Trace, ...] | None = None
    _trusted_until: float = float("-inf")

    def needed(self, now: float, traces: tuple[Trace, ...]) -> bool:
        """Return True if the database must be read."""
        return now >= self._trusted_until or traces != self._traces

    def has_read(self, now: float, wall: float, traces: tuple[Trace, ...]) -> None:
        """Record a read of the database.

        All arguments are from before the read, so that changes during the read are detected later.
        """
        written = [trace[3] / 1e9 for trace in traces if trace is not None]
        settled = bool(written) and wall - max(written) >= SETTLED_SECS
        self._traces = traces
        self._trusted_until = now + SURE_EVERY_SECS if settled else now

    def forget(self) -> None:
        """Require a read at the next check, even if the files are unchanged."""
        self._trusted_until = float("-inf")


log = logging.getLogger(__name__)


class FilesSession:
    """Session of a client and its state. ``tell`` is called with each new state, in order, and must not block."""

    def __init__(self, tree: FilesTree, timeout_secs: float, tell: Callable[[SessionState], None]) -> None:
        self.timeout_secs = timeout_secs
        self._tree = tree
        self._tell = tell
        self._lock = threading.RLock()  # guards what follows
        self.owned: SessionLease | None = None  # None: not begun yet, or lost
        self.state = SessionState.CONNECTED

    def begin(self) -> None:
        """Begin a session, unless this client has one. Raises StoreError."""
        with self._lock:
            if self.owned is None:
                self.owned = self._tree.begin_session(self.timeout_secs)

    def lose(self, owned: SessionLease) -> None:
        """Record that this session is over."""
        with self._lock:
            if self.owned is not owned:
                return
            self.owned = None
            self._become(SessionState.LOST)
        owned.end()

    def end(self) -> None:
        """End the session and remove its nodes. Idempotent."""
        with self._lock:
            owned, self.owned = self.owned, None
        if owned is None:
            return
        try:
            self._tree.end_session(owned)
        except StoreError as error:
            log.warning("closing the store: %s", error)  # its nodes disappear when its lock is released below
        owned.end()

    @contextmanager
    def answering(self, polling: bool = False) -> Iterator[None]:
        """Update the state of the session by the success or failure of the block.

        A successful poll ends SUSPENDED, but not LOST, which ends with the next operation of the client.
        """
        try:
            yield
        except StoreError as error:
            if polling or isinstance(error, StoreUnavailable):
                with self._lock:
                    if self.state is SessionState.CONNECTED:
                        self._become(SessionState.SUSPENDED)
            raise
        with self._lock:
            if self.state is SessionState.SUSPENDED or (self.state is SessionState.LOST and not polling):
                self._become(SessionState.CONNECTED)

    def _become(self, state: SessionState) -> None:
        if self.state is not state:
            self.state = state
            self._tell(state)


UNHEARD_POLLS = 5  # intervals between two polls of a client without watches and listeners


class SeenWatch(Watch):
    """Watch with the last observed versions of its nodes (None: unknown)."""

    def __init__(self, path: str, changed: Callable[[str], None], seen: Seen | None) -> None:
        super().__init__(path, changed)
        self.seen = seen


class FilesPoller:
    """Poller of the database. Its thread runs from the first call of ``want`` after ``start`` until ``stop``."""

    def __init__(
        self,
        tree: FilesTree,
        session: FilesSession,
        table: WatchTable[SeenWatch],
        interval_secs: float,
        join_secs: float,
    ) -> None:
        self._tree = tree
        self._session = session
        self._table = table
        self._interval_secs = interval_secs
        self._join_secs = join_secs
        self._lock = threading.Lock()  # guards what follows
        self._started = False
        self._thread: threading.Thread | None = None
        self._to_tell: deque[SessionState] = deque()
        self._fire_all = False  # every watch is to be called
        self._look_again = False  # a watch was added after the last poll
        self._bell = threading.Lock()  # released to wake the thread up; cheaper than an Event
        self._bell.acquire()
        # Owned by the thread.
        self._change = -1
        self._owners: frozenset[str] = frozenset()  # of watched nodes
        self._glance = FileChangeDetector()
        self._glanced = (str(tree.path), f"{tree.path}-wal")

    def start(self) -> None:
        """Allow polling, since the store is open. Start the thread if there are watches or listeners."""
        with self._lock:
            self._started = True
        if self._table:
            self.want()

    def want(self) -> None:
        """Start the thread if the store is open. Call this when there is a watch, listener or session to observe."""
        with self._lock:
            if self._started and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="store-poll", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Stop the thread. No callback starts after this returns. May be called by a callback, which then finishes."""
        with self._lock:
            self._started = False
            thread, self._thread = self._thread, None
        self.ring()
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._join_secs)

    def ring(self) -> None:
        """Wake the thread up for a poll."""
        with suppress(RuntimeError):  # the loop has stopped
            self._bell.release()

    def look_again(self) -> None:
        """Poll now, since a watch was added."""
        with self._lock:
            self._look_again = True
        self.want()
        self.ring()

    def tell(self, state: SessionState) -> None:
        """Notify the listeners; after a reconnect, call every watch as well."""
        with self._lock:
            self._to_tell.append(state)
            self._fire_all |= state is SessionState.CONNECTED
        self.ring()

    # -- on the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._thread is threading.current_thread():
            if self._to_tell or self._fire_all or self._look_again or self._may_have_changed():
                self._poll_and_tell()
            self._bell.acquire(timeout=self._interval_secs * (1 if self._table else UNHEARD_POLLS))

    def _may_have_changed(self) -> bool:
        """Return False if a poll would not find changes. This must be cheap, since CPU caches are cold at each call."""
        owned = self._session.owned
        if self._session.state is not SessionState.CONNECTED or (owned is not None and not owned.alive()):
            return True
        try:
            if self._glance.needed(time.monotonic(), traces_of(self._glanced)):
                return True
            return len(self._tree.alive(self._owners)) < len(self._owners)
        except OSError:
            return True  # the poll will report the error

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

    def _poll(self, fire_all: bool, look_again: bool) -> None:
        try:
            before = time.monotonic(), time.time(), traces_of(self._glanced)
        except OSError:
            before = None  # the read itself will report the error
        owned, watches = self._session.owned, self._table.watches()
        with self._session.answering(polling=True), self._tree.reader.read() as connection:
            change = change_number(connection)
            lost = owned is not None and not (owned.alive() and is_known(connection, owned.id))
            died = self._owners - self._tree.alive(self._owners)
            looked: dict[str, Seen] = {}
            if change != self._change or died or look_again:
                looked = {watch.path: self._tree.look(connection, watch.path) for watch in watches}
                self._owners = owners_of(connection, looked)
        if lost and owned is not None:
            self._session.lose(owned)
        self._change = change
        if before is not None:
            self._glance.has_read(*before)
        with self._lock:  # this poll may have found that the store is back
            fire_all, self._fire_all = fire_all or self._fire_all, False
        for watch in watches:
            seen = looked.get(watch.path, watch.seen)
            if fire_all or seen != watch.seen:
                watch.seen = seen
                call(watch.changed, watch.path)
        if died:
            with self._session.answering(polling=True):
                self._tree.remove_dead()

    def _tell_listeners(self) -> None:
        while self._to_tell:  # this thread is the only consumer
            self._table.tell(self._to_tell.popleft())


JOIN_SECS = 5.0


class FilesStore:
    """Client of the store in ``folder``. Several may be open in one process, and any thread may use them."""

    def __init__(
        self,
        folder: str | Path,
        *,
        session_timeout_secs: float = 6.0,
        poll_interval_secs: float = 0.2,
        wait_secs: float = 10.0,
        create: bool = True,
    ) -> None:
        self._create = create
        self._opening = threading.Lock()
        self._opened = False  # guarded by it
        self._table: WatchTable[SeenWatch] = WatchTable()
        self._tree = FilesTree(Path(folder), wait_secs)
        self._session = FilesSession(self._tree, session_timeout_secs, lambda state: self._polling.tell(state))
        self._polling = FilesPoller(self._tree, self._session, self._table, poll_interval_secs, wait_secs + JOIN_SECS)

    def open(self) -> None:
        """Create the folder if it is missing, and connect. Raises StoreError, without ``create`` also StoreMissing."""
        with self._opening:
            if not self._opened:
                self._tree.open(self._create)
                self._opened = True
                self._polling.start()

    def close(self) -> None:
        """End the session and stop the threads. Idempotent."""
        with self._opening:
            if not self._opened:
                return
            self._opened = False
        self._polling.stop()
        self._session.end()
        self._tree.close()

    def get(self, path: str) -> Node | None:
        """Return the node, or None."""
        return self.get_all((path,))[0]

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Return the nodes at one point in time."""
        for path in paths:
            check_node(path)
        with self._session.answering():
            return self._tree.get_all(paths)

    def children(self, path: str) -> list[str]:
        """Return the names directly below ``path``, sorted."""
        check_folder(path)
        with self._session.answering():
            return self._tree.children(path)

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        """Apply all operations, or none. Raises a subclass of TransactionFailed, or StoreError."""
        check_operations(operations)
        with self._session.answering():
            if any(isinstance(o, Create) and o.ephemeral for o in operations):
                self._session.begin()
                self._polling.want()
            owned = self._session.owned
            outcome, lost = self._tree.commit(operations, owned)
        if owned is not None and lost:
            self._session.lose(owned)
        self._polling.ring()
        if isinstance(outcome, TransactionFailed):
            raise outcome
        return outcome.versions

    def watch(self, path: str, changed: Callable[[str], None]) -> Callable[[], None]:
        """Call ``changed(path)`` on the store's thread after changes. Return a function that removes the watch."""
        check_folder(path)
        seen: Seen | None
        try:
            with self._session.answering(), self._tree.reader.read() as connection:
                seen = self._tree.look(connection, path)
        except StoreUnavailable:
            seen = None  # it is called once the store answers
        undo = self._table.watch(SeenWatch(path, changed, seen))
        self._polling.look_again()
        return undo

    def on_session(self, changed: Callable[[SessionState], None]) -> Callable[[], None]:
        """Call ``changed`` on the store's thread when the session's state changes. Return a function that undoes it."""
        undo = self._table.listen(changed)
        self._polling.want()
        return undo

    def session(self) -> SessionState:
        """Return the current state of the session."""
        return self._session.state

    def identity(self, *, create: bool = False) -> str:
        """See ``heron_runtime.state.store.Identified``."""
        with self._session.answering():
            return self._tree.identity()

    def damage(self) -> list[str]:
        """Return the damage inside the database file, empty if it is sound. For `heron doctor`."""
        return self._tree.reader.damage()


def store_of_url(parameters: StoreParameters) -> FilesStore:
    """Return the store of ``files:///path``. Raises StoreError."""
    parameters.refuse_credential()
    url = parameters.url
    if url.netloc or not url.path.startswith("/") or url.path == "/":
        raise StoreError(
            f"{url.geturl()!r}: give an absolute folder, as files:///home/me/heronry/state (three slashes)"
        )
    return FilesStore(unquote(url.path), session_timeout_secs=parameters.session_timeout_secs, create=parameters.create)
