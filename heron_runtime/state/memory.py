"""The memory store: one ``MemoryTree``, any number of sessions on it, for tests and the simulator.

Callbacks run on the thread that made the change, after the tree's lock is released, in the order of registration; so a
single-threaded simulation is deterministic. The hooks are named as kazoo's test harness names them:

* ``lose_connection``: SUSPENDED. Operations raise StoreUnavailable, watches are silent, ephemeral nodes stand.
* ``restore_connection``: CONNECTED again, or LOST if the session was expired meanwhile; every watch fires once.
* ``expire_session``: the ephemeral nodes go, and the client learns of it: at once, or when its connection is back.
"""

from __future__ import annotations

import itertools
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
    """The nodes, and the clients to be told of changes. All access is under ``lock``."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.nodes: dict[str, Record] = {}
        self.clients: dict[int, MemoryStore] = {}
        self.change = 0
        self.session_numbers = itertools.count(1)

    def write(self, writes: dict[str, Record | None]) -> _Calls:
        """Apply, and return the watch calls to make after the lock is released."""
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
    """One client with its session. Clients made with the same tree see the same nodes."""

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
        """End the session; its ephemeral nodes go."""
        with self.tree.lock:
            if not self._opened:
                return
            self._opened = False
            self.tree.clients.pop(self._number, None)
            calls = self.tree.remove_owned(self._session) if self._session else []
            self._session = None
        _make(calls)

    def get(self, path: str) -> Node | None:
        """The node, or None."""
        return self.get_all((path,))[0]

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """The nodes, as they stood together."""
        for path in paths:
            check_node(path)
        with self.tree.lock:
            calls = self._answering()
            records = [self.tree.nodes.get(path) for path in paths]
        _make(calls)
        return [
            None if found is None else Node(found.data, found.version, found.owner is not None) for found in records
        ]

    def children(self, path: str) -> list[str]:
        """Names directly below ``path``, sorted."""
        check_folder(path)
        with self.tree.lock:
            calls = self._answering()
            prefix = path + "/"
            names = sorted({p[len(prefix) :].partition("/")[0] for p in self.tree.nodes if p.startswith(prefix)})
        _make(calls)
        return names

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        """All or nothing."""
        check_operations(operations)
        calls: _Calls = []
        try:
            with self.tree.lock:
                calls += self._answering()
                changes = evaluate(operations, self.tree.nodes.get, self._session, self.tree.change + 1)
                self.tree.change += 1
                calls += self.tree.write(changes.writes)
        finally:
            _make(calls)  # a refused transaction is an answer too: a new session is told in any case
        return changes.versions

    def watch(self, path: str, changed: Callable[[str], None]) -> Callable[[], None]:
        """Call ``changed(path)`` after each change of the node or a direct child; returns the undo."""
        return self._table.watch(Watch(check_folder(path), changed))

    def on_session(self, changed: Callable[[SessionState], None]) -> Callable[[], None]:
        """Call ``changed`` when the session's state changes; returns the undo."""
        return self._table.listen(changed)

    def session(self) -> SessionState:
        """The session's state now."""
        with self.tree.lock:
            return self._state

    # -- test hooks ------------------------------------------------------------------------------------------------

    def lose_connection(self) -> None:
        """The store answers this client no more; the session stands."""
        with self.tree.lock:
            self._reachable = False
            calls = self._become(SessionState.SUSPENDED) if self._state is SessionState.CONNECTED else []
        _make(calls)

    def restore_connection(self) -> None:
        """The store answers again."""
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
        """The store ends the session: what it owns goes."""
        with self.tree.lock:
            session, self._session = self._session, None
            calls = self.tree.remove_owned(session) if session else []
            if self._reachable and session:
                calls += self._become(SessionState.LOST)
        _make(calls)

    # -- inside, all under the tree's lock -------------------------------------------------------------------------

    def _begin_session(self) -> None:
        self._session = f"{self._number}.{next(self.tree.session_numbers)}"

    def _answering(self) -> _Calls:
        """Refuse unless the store answers; a client whose session was lost begins a new one."""
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
    """The tree of ``memory://name`` in this process; the empty name is a new tree each time."""
    if not name:
        return MemoryTree()
    with _trees_lock:
        return _trees.setdefault(name, MemoryTree())


def store_of_url(parameters: StoreParameters) -> MemoryStore:
    """The store of ``memory://[name]``. Raises StoreError."""
    parameters.refuse_credential()
    return MemoryStore(shared_tree(parameters.url.netloc + parameters.url.path))
