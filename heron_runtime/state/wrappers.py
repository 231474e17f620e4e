"""Wrappers of a store: the fence of a leader, and a cache of selected nodes.

Several processes may believe that they lead: one was stopped or cut off and does not know yet that its session has
ended. The store decides with each transaction which of them is right, since the check of the owner of an ephemeral node
is part of it (`FencedStore`). Operations outside transactions (rights, whole folders) are idempotent and follow such a
check. Reads pass through.

A `CachedStore` answers repeated reads of some nodes from memory. It reads all of them again, in one batch, at the
first read and when

* a watch has fired since, as each does after a reconnect;
* this client has written, since its own watch may fire after its next read;
* the session is not connected, so that watches are unreliable and an unreachable store is reported;
* the last read is `SURE_SECS` old, so that a lost watch delays a change but does not hide it.

An answer may thus be as old as a watch takes to arrive. The first read is that of the store, so that a process which
starts because of a submission finds it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from heron_runtime.state.store import (
    Bounded,
    CheckOwner,
    Foldered,
    Node,
    Operation,
    Right,
    SessionState,
    StateStore,
    StoreUnavailable,
    TransactionFailed,
    store_identity,
)


class StoreWrapper:
    """Store that passes all calls to ``store``. See ``StateStore``."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    def open(self) -> None:
        """See `StateStore.open`."""
        self._store.open()

    def close(self) -> None:
        """See `StateStore.close`."""
        self._store.close()

    def get(self, path: str) -> Node | None:
        """See `StateStore.get`."""
        return self.get_all((path,))[0]

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """See `StateStore.get_all`."""
        return self._store.get_all(paths)

    def children(self, path: str) -> list[str]:
        """See `StateStore.children`."""
        return self._store.children(path)

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        """See `StateStore.commit`."""
        return self._store.commit(operations)

    def watch(self, path: str, changed: Callable[[str], None]) -> Callable[[], None]:
        """See `StateStore.watch`."""
        return self._store.watch(path, changed)

    def on_session(self, changed: Callable[[SessionState], None]) -> Callable[[], None]:
        """See `StateStore.on_session`."""
        return self._store.on_session(changed)

    def session(self) -> SessionState:
        """See `StateStore.session`."""
        return self._store.session()

    def identity(self, *, create: bool = False) -> str:
        """See `Identified`."""
        return store_identity(self._store, create=create)


class LeadershipLost(StoreUnavailable):
    """This process no longer leads. Nothing was changed."""

    cure = "Send the request again: the new leader carries it out."

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was not changed: this process is no longer the leader")


class FencedStore(StoreWrapper):
    """Store whose transactions require that this session owns the node `owned`."""

    def __init__(self, store: StateStore, owned: str) -> None:
        super().__init__(store)
        self._owned = owned

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        """Commit as `StateStore.commit`. Also raises LeadershipLost."""
        try:
            return self._store.commit(self._with_check(operations))[1:]
        except TransactionFailed as error:
            if error.index == 0:
                raise LeadershipLost(self._owned) from error
            error.index -= 1
            raise

    def check(self) -> None:
        """Check the fence before an operation outside transactions. Raises LeadershipLost, StoreUnavailable."""
        self.commit([])

    def _with_check(self, operations: Sequence[Operation]) -> list[Operation]:
        return [CheckOwner(self._owned), *operations]


class FencedFolders(FencedStore):
    """`FencedStore` for a store with access rights and size limits, such as ZooKeeper."""

    def check_size(self, operations: Sequence[Operation]) -> None:
        """See ``Bounded``."""
        if isinstance(self._store, Bounded):
            self._store.check_size(self._with_check(operations))

    def grant(self, path: str, identity: str, right: Right) -> None:
        """See `Foldered`. Also raises LeadershipLost."""
        assert isinstance(self._store, Foldered)
        self.check()
        self._store.grant(path, identity, right)

    def remove_folder(self, path: str) -> None:
        """See `Foldered`. Also raises LeadershipLost."""
        assert isinstance(self._store, Foldered)
        self.check()
        self._store.remove_folder(path)


def fenced(store: StateStore, owned: str) -> FencedStore:
    """Return `store` with a fence: its changes require that this session owns the node `owned`."""
    return FencedFolders(store, owned) if isinstance(store, Foldered) else FencedStore(store, owned)


def check_fence(store: StateStore) -> None:
    """Check the fence before changes of folders, which are not transactions. Raises LeadershipLost."""
    if isinstance(store, FencedStore):
        store.check()


SURE_SECS = 6.0  # the usual session timeout: a lost watch delays a change no longer than a lost process


class CachedStore(StoreWrapper):
    """Store with a cache of the nodes at ``paths``. ``clock`` is in seconds. Any thread may use it."""

    def __init__(self, store: StateStore, paths: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(store)
        self._paths = tuple(paths)
        self._clock = clock
        self._undo: list[Callable[[], None]] = []
        self._lock = threading.Lock()  # guards the two below
        self._known: dict[str, Node | None] = {}
        self._sure_until = 0.0
        self._doubted = True  # set without the lock, so that callbacks do not wait for a read; cleared by readers

    def open(self) -> None:
        """Open the store and begin to watch. Raises StoreError, after which the store is closed."""
        self._store.open()
        try:
            self.attach()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """See `StateStore.close`."""
        self.detach()
        self._store.close()

    def attach(self) -> None:
        """Begin to watch, for a store that is already open. Idempotent. Raises StoreError."""
        for path in self._paths[len(self._undo) :]:
            self._undo.append(self._store.watch(path, self._doubt))

    def detach(self) -> None:
        """Stop watching, and leave the store open. Idempotent."""
        undo, self._undo = self._undo, []
        for each in undo:
            each()
        self._doubted = True

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Return the cached nodes if all of `paths` are cached; otherwise read the store."""
        if not set(paths) <= set(self._paths):
            return self._store.get_all(paths)
        with self._lock:
            if not self._sure():
                self._read()
            return [self._known[path] for path in paths]

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        """See `StateStore.commit`."""
        try:
            return self._store.commit(operations)
        finally:
            self._doubted = True

    def watch(self, path: str, changed: Callable[[str], None]) -> Callable[[], None]:
        """Watch as `StateStore.watch`. A callback that reads afterwards gets the change."""

        def called(which: str) -> None:
            self._doubt(which)
            changed(which)

        return self._store.watch(path, called)

    def _sure(self) -> bool:
        watched = bool(self._undo) and self._store.session() is SessionState.CONNECTED
        return watched and not self._doubted and self._clock() < self._sure_until

    def _read(self) -> None:
        began = self._clock()
        self._doubted = False  # before the read, so that changes during the read set it again
        try:
            self._known = dict(zip(self._paths, self._store.get_all(self._paths), strict=True))
        except BaseException:
            self._doubted = True
            raise
        self._sure_until = began + SURE_SECS

    def _doubt(self, _: str) -> None:
        self._doubted = True
