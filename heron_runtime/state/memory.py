"""Memory store for tests and the simulator: one ``MemoryTree`` with any number of sessions.

Callbacks run on the thread that made the change, after the tree's lock is released, in the order of registration. A
single-threaded simulation is therefore deterministic. The test hooks have the names of kazoo's test harness:

* ``lose_connection``: SUSPENDED. Operations raise StoreUnavailable, watches are silent, ephemeral nodes remain.
* ``restore_connection``: CONNECTED again, or LOST if the session was expired meanwhile. Every watch fires once.
* ``expire_session``: The ephemeral nodes are removed. The client is notified at once, or when its connection is back.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable, Sequence
from functools import partial

from heron_runtime.state.store import (
    Node,
    Operation,
    SessionState,
    StoreParameters,
    StoreUnavailable,
    check_folder,
    check_node,
    check_operations,
    parent,
)
from heron_runtime.state.store_base import Record, Watch, WatchTable, evaluate

_Calls = list[partial[None]]


class MemoryTree:
    """Nodes, and the clients to notify of changes. All access is under ``lock``."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.identity = secrets.token_hex(8)
        self.nodes: dict[str, Record] = {}
        self.clients: dict[int, MemoryStore] = {}
        self.change = 0
        self.session_numbers = itertools.count(1)

    def write(self, writes: dict[str, Record | None]) -> _Calls:
        """Apply writes, and return the watch calls to make after the lock is released."""
        for path, record in writes.items():
            if record is None:
                self.nodes.pop(path, None)
            else:
                self.nodes[path] = record
        return [call for client in self.clients.values() for call in client._calls_for(writes)]

    def remove_owned(self, session: str) -> _Calls:
        """Remove the ephemeral nodes of a session."""
        self.change += 1
        return self.write({path: None for path, record in self.nodes.items() if record.owner == session})


class MemoryStore:
    """Client with its session. Clients of the same tree share its nodes."""

    def __init__(self, tree: MemoryTree | None = None) -> None:
        self.tree = tree or MemoryTree()
        self._number = next(self.tree.session_numbers)
        self._session: str | None = None
        self._opened = False
        self._reachable = True
        self._state = SessionState.CONNECTED
        self._table: WatchTable[Watch] = WatchTable()

    # -- StateStore ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin a session."""
        with self.tree.lock:
            if self._opened:
                return
            self._opened = True
            self._begin_session()
            self.tree.clients[self._number] = self

    def close(self) -> None:
        """End the session, which removes its ephemeral nodes."""
        with self.tree.lock:
            if not self._opened:
                return
            self._opened = False
            self.tree.clients.pop(self._number, None)
            calls = self.tree.remove_owned(self._session) if self._session else []
            self._session = None
        _make(calls)

    def get(self, path: str) -> Node | None:
        """Return the node, or None."""
        return self.get_all((path,))[0]

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Return the nodes at one point in time."""
        for path in paths:
            check_node(path)
        with self.tree.lock:
            calls = self._answering()
            records = [self.tree.nodes.get(path) for path in paths]
        _make(calls)
        return [
            None if record is None else Node(record.data, record.version, record.owner is not None)
            for record in records
        ]

    def children(self, path: str) -> list[str]:
        """Return the names directly below ``path``, sorted."""
        check_folder(path)
        with self.tree.lock:
            calls = self._answering()
            prefix = path + "/"
            names = sorted({p[len(prefix) :].partition("/")[0] for p in self.tree.nodes if p.startswith(prefix)})
        _make(calls)
        return names

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        """Apply all operations, or none."""
        check_operations(operations)
        calls: _Calls = []
        try:
            with self.tree.lock:
                calls += self._answering()
                changes = evaluate(operations, self.tree.nodes.get, self._session, self.tree.change + 1)
                self.tree.change += 1
                calls += self.tree.write(changes.writes)
        finally:
            _make(calls)  # also after a refused transaction, since it may have begun a new session
        return changes.versions

    def watch(self, path: str, changed: Callable[[str], None]) -> Callable[[], None]:
        """Call ``changed(path)`` after each change of the node or a direct child. Return a function that undoes it."""
        return self._table.watch(Watch(check_folder(path), changed))

    def on_session(self, changed: Callable[[SessionState], None]) -> Callable[[], None]:
        """Call ``changed`` when the session's state changes. Return a function that removes the listener."""
        return self._table.listen(changed)

    def session(self) -> SessionState:
        """Return the current state of the session."""
        with self.tree.lock:
            return self._state

    def identity(self, *, create: bool = False) -> str:
        """See ``heron_runtime.state.store.Identified``."""
        with self.tree.lock:
            calls = self._answering()
        _make(calls)
        return self.tree.identity

    # -- test hooks ------------------------------------------------------------------------------------------------

    def lose_connection(self) -> None:
        """Make the store stop answering this client. The session continues."""
        with self.tree.lock:
            self._reachable = False
            calls = self._become(SessionState.SUSPENDED) if self._state is SessionState.CONNECTED else []
        _make(calls)

    def restore_connection(self) -> None:
        """Make the store answer this client again."""
        with self.tree.lock:
            if self._reachable:
                return
            self._reachable = True
            if self._session is None:
                calls = self._become(SessionState.LOST)
            else:
                calls = self._become(SessionState.CONNECTED) + self._all_watches()
        _make(calls)

    def expire_session(self) -> None:
        """End the session in the store, which removes its ephemeral nodes."""
        with self.tree.lock:
            session, self._session = self._session, None
            calls = self.tree.remove_owned(session) if session else []
            if self._reachable and session:
                calls += self._become(SessionState.LOST)
        _make(calls)

    # -- internal, all under the tree's lock -----------------------------------------------------------------------

    def _begin_session(self) -> None:
        self._session = f"{self._number}.{next(self.tree.session_numbers)}"

    def _answering(self) -> _Calls:
        """Raise StoreUnavailable unless the store answers. Begin a new session if the former one was lost."""
        if not self._opened:
            raise StoreUnavailable("the state store is not open yet, or not any more")
        if not self._reachable:
            raise StoreUnavailable("the memory store does not answer (lose_connection was called)")
        if self._session is not None:
            return []
        self._begin_session()
        return self._become(SessionState.CONNECTED) + self._all_watches()

    def _become(self, state: SessionState) -> _Calls:
        if self._state is state:
            return []
        self._state = state
        return [partial(call, state) for call in self._table.listeners()]

    def _all_watches(self) -> _Calls:
        return [partial(watch.changed, watch.path) for watch in self._table.watches()]

    def _calls_for(self, writes: dict[str, Record | None]) -> _Calls:
        if not self._reachable:
            return []
        touched = set(writes) | {parent(path) for path in writes}
        return [partial(watch.changed, watch.path) for watch in self._table.watches() if watch.path in touched]


def _make(calls: _Calls) -> None:
    for call in calls:
        call()


_trees: dict[str, MemoryTree] = {}
_trees_lock = threading.Lock()


def shared_tree(name: str) -> MemoryTree:
    """Return the tree of ``memory://name`` in this process. An empty name creates a new tree each time."""
    if not name:
        return MemoryTree()
    with _trees_lock:
        return _trees.setdefault(name, MemoryTree())


def store_of_url(parameters: StoreParameters) -> MemoryStore:
    """Return the store of ``memory://[name]``. Raises StoreError."""
    parameters.refuse_credential()
    return MemoryStore(shared_tree(parameters.url.netloc + parameters.url.path))
