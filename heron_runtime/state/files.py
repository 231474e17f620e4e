"""The files store: a SQLite database in a private folder, the embedded default of the ``local`` cluster.

One lock: every transaction holds SQLite's write lock; readers see whole transactions (``database``). An ephemeral node
lives while its owner's session does (``sessions``: a locked file with a lease). A client is made of three parts: the
tree in the database (``files_tree``), its own session (``files_session``), and a thread that finds changes and calls
(``files_polling``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote

from heron_runtime.state.files_polling import Polling, SeenWatch
from heron_runtime.state.files_session import Session
from heron_runtime.state.files_tree import FilesTree
from heron_runtime.state.rows import Seen
from heron_runtime.state.store import (
    Create,
    Node,
    Operation,
    SessionState,
    StoreError,
    StoreParameters,
    StoreUnavailable,
    TransactionFailed,
)  # fmt: skip
from heron_runtime.state.validation import check_folder, check_node, check_operations
from heron_runtime.state.watches import WatchTable

JOIN_SECS = 5.0


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
        self._opening = threading.Lock()
        self._opened = False  # guarded by it
        self._table: WatchTable[SeenWatch] = WatchTable()
        self._tree = FilesTree(Path(folder), wait_secs)
        self._session = Session(self._tree, session_timeout_secs, lambda state: self._polling.tell(state))
        self._polling = Polling(self._tree, self._session, self._table, poll_interval_secs, wait_secs + JOIN_SECS)

    def open(self) -> None:
        """Make the folder where it is missing, and connect. Raises StoreError."""
        with self._opening:
            if not self._opened:
                self._tree.open()
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
        """The node, or None."""
        return self.get_all((path,))[0]

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """The nodes, as they stood together."""
        for path in paths:
            check_node(path)
        with self._session.answering():
            return self._tree.get_all(paths)

    def children(self, path: str) -> list[str]:
        """Names directly below ``path``, sorted."""
        check_folder(path)
        with self._session.answering():
            return self._tree.children(path)

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        """All or nothing. Raises a subclass of TransactionFailed, or StoreError."""
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
        """Call ``changed(path)`` on the store's thread after changes; returns the undo."""
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
        """Call ``changed`` on the store's thread when the session's state changes; returns the undo."""
        undo = self._table.listen(changed)
        self._polling.want()
        return undo

    def session(self) -> SessionState:
        """The session's state now."""
        return self._session.state

    def damage(self) -> list[str]:
        """What is wrong inside the database file; empty if it is sound. For ``heron doctor``."""
        return self._tree.reader.damage()


def store_of_url(parameters: StoreParameters) -> FilesStore:
    """The store of ``files:///path``. Raises StoreError."""
    parameters.refuse_credential()
    url = parameters.url
    if url.netloc or not url.path.startswith("/") or url.path == "/":
        raise StoreError(
            f"{url.geturl()!r}: give an absolute folder, as files:///home/me/heronry/state (three slashes)"
        )
    return FilesStore(unquote(url.path), session_timeout_secs=parameters.session_timeout_secs)
