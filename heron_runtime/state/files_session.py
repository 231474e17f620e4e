"""The session of a client of the files store: what it owns, and what it knows of the store.

* It begins with the first ephemeral node, so a client that only reads or writes plain nodes owns no lock file.
* An owner that was stopped past its lease finds itself LOST: its own clock tells it, or its session is no longer in the
  database, which every transaction and every poll looks up. The next transaction begins anew.
* SUSPENDED means that the file did not answer in time: its lock held by a stopped process, a failing disk, a removed
  folder.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from heron_runtime.state.files_tree import FilesTree
from heron_runtime.state.sessions import OwnedSession
from heron_runtime.state.store import SessionState, StoreError, StoreUnavailable

log = logging.getLogger(__name__)


class Session:
    """``tell`` is called with each new state, in order; it must not wait."""

    def __init__(self, tree: FilesTree, timeout_secs: float, tell: Callable[[SessionState], None]) -> None:
        self.timeout_secs = timeout_secs
        self._tree = tree
        self._tell = tell
        self._lock = threading.RLock()  # guards what follows
        self.owned: OwnedSession | None = None  # None: not begun yet, or lost
        self.state = SessionState.CONNECTED

    def begin(self) -> None:
        """Own a session, if not already. Raises StoreError."""
        with self._lock:
            if self.owned is None:
                self.owned = self._tree.begin_session(self.timeout_secs)

    def lose(self, owned: OwnedSession) -> None:
        """It turned out that this session is over."""
        with self._lock:
            if self.owned is not owned:
                return
            self.owned = None
            self._become(SessionState.LOST)
        owned.end()

    def end(self) -> None:
        """Give up what is owned. Idempotent."""
        with self._lock:
            owned, self.owned = self.owned, None
        if owned is None:
            return
        try:
            self._tree.end_session(owned)
        except StoreError as error:
            log.warning("closing the store: %s", error)  # its nodes go as soon as its lock does, below
        owned.end()

    @contextmanager
    def answering(self, polling: bool = False) -> Iterator[None]:
        """Note whether the store answers. A poll finds out that a store is back, but begins no new session."""
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
