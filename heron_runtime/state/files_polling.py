"""The polling thread of a client of the files store, which finds changes and calls watches and listeners.

It looks at one change counter each interval (``glance``: where the files show that nothing was written, without asking
SQLite), and whether the owners of watched nodes live. When either changed, it compares what is watched with what was
seen, and calls those whose part differs. Where nobody is to be told anything it looks each second, for the sake of the
session. That a store which did not answer is back is found here, too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from heron_runtime.state.files_session import Session
from heron_runtime.state.files_tree import FilesTree
from heron_runtime.state.glance import Glance, traces_of
from heron_runtime.state.rows import Seen, change_number, is_known, owners_of
from heron_runtime.state.store import SessionState, StoreError
from heron_runtime.state.watches import Watch, WatchTable, call

UNHEARD_POLLS = 5  # intervals between two polls of a client that asked to be told nothing

log = logging.getLogger(__name__)


class SeenWatch(Watch):
    """A watch, and what was seen there last (None: nothing is known)."""

    def __init__(self, path: str, changed: Callable[[str], None], seen: Seen | None) -> None:
        super().__init__(path, changed)
        self.seen = seen


class Polling:
    """The thread runs from the first call of ``want`` after ``start`` until ``stop``."""

    def __init__(
        self, tree: FilesTree, session: Session, table: WatchTable[SeenWatch], interval_secs: float, join_secs: float
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
        self._look_again = False  # a watch was added, which the last look did not see
        self._bell = threading.Lock()  # free when the thread is wanted at once; cheaper than an Event
        self._bell.acquire()
        # Owned by the thread.
        self._change = -1
        self._owners: frozenset[str] = frozenset()  # of watched nodes
        self._glance = Glance()
        self._glanced = (str(tree.path), f"{tree.path}-wal")

    def start(self) -> None:
        """The store is open."""
        with self._lock:
            self._started = True
        if self._table:
            self.want()

    def want(self) -> None:
        """Somebody is to be told, or there is a session to be watched."""
        with self._lock:
            if self._started and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="store-poll", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """No call begins after this, unless it is called by a callback, which ends first."""
        with self._lock:
            self._started = False
            thread, self._thread = self._thread, None
        self.ring()
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._join_secs)

    def ring(self) -> None:
        """Look now."""
        with suppress(RuntimeError):  # somebody has rung already
            self._bell.release()

    def look_again(self) -> None:
        """A watch was added."""
        with self._lock:
            self._look_again = True
        self.want()
        self.ring()

    def tell(self, state: SessionState) -> None:
        """Have the listeners told; where the store answers again, every watch is called, too."""
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
        """False if a poll would find what the last one found. Costs little: the caches are cold each time."""
        owned = self._session.owned
        if self._session.state is not SessionState.CONNECTED or (owned is not None and not owned.alive()):
            return True
        try:
            if self._glance.needed(time.monotonic(), traces_of(self._glanced)):
                return True
            return len(self._tree.alive(self._owners)) < len(self._owners)
        except OSError:
            return True  # the poll will say why

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
            before = None  # the read itself says what is wrong
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
        with self._lock:  # this very poll may have found that the store is back
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
        while self._to_tell:  # nobody else takes
            self._table.tell(self._to_tell.popleft())
