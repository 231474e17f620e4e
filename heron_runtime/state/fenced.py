"""A store whose every transaction fails unless one ephemeral node is this session's: the fence of a leader.

Several processes may believe that they lead: one was stopped, or cut off, and has not heard yet that its session is
over. Which of them is right is decided by the store with each transaction, not by their beliefs: the check of the
node's owner is a part of it. What is no transaction (rights, whole folders, both of which may be done twice) is done
after such a check. Readings are let through.
"""

from __future__ import annotations

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
)


class Superseded(StoreUnavailable):
    """Nothing was changed: another process leads by now, or none."""

    cure = "Send it again: whoever leads by then does it."

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is not this process's: it leads no longer, and has changed nothing")


class FencedStore:
    """``store``, as long as ``owned`` is a node of this session. See ``StateStore``."""

    def __init__(self, store: StateStore, owned: str) -> None:
        self._store = store
        self._owned = owned

    def open(self) -> None:
        """As the store's."""
        self._store.open()

    def close(self) -> None:
        """As the store's: the node goes, and somebody else may lead."""
        self._store.close()

    def get(self, path: str) -> Node | None:
        """As the store's."""
        return self._store.get(path)

    def children(self, path: str) -> list[str]:
        """As the store's."""
        return self._store.children(path)

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        """As the store's; raises Superseded, too."""
        try:
            return self._store.commit(self._with_check(operations))[1:]
        except TransactionFailed as error:
            if error.index == 0:
                raise Superseded(self._owned) from error
            error.index -= 1
            raise

    def check(self) -> None:
        """Before something that no transaction does. Raises Superseded, StoreUnavailable."""
        self.commit([])

    def watch(self, path: str, changed: Callable[[str], None]) -> Callable[[], None]:
        """As the store's."""
        return self._store.watch(path, changed)

    def on_session(self, changed: Callable[[SessionState], None]) -> Callable[[], None]:
        """As the store's."""
        return self._store.on_session(changed)

    def session(self) -> SessionState:
        """As the store's."""
        return self._store.session()

    def _with_check(self, operations: Sequence[Operation]) -> list[Operation]:
        return [CheckOwner(self._owned), *operations]


class FencedFolders(FencedStore):
    """The same of a store with rights and bounds, as ZooKeeper's."""

    def check_size(self, operations: Sequence[Operation]) -> None:
        """See ``Bounded``."""
        if isinstance(self._store, Bounded):
            self._store.check_size(self._with_check(operations))

    def grant(self, path: str, identity: str, right: Right) -> None:
        """See ``Foldered``. Raises Superseded, too."""
        assert isinstance(self._store, Foldered)
        self.check()
        self._store.grant(path, identity, right)

    def remove_folder(self, path: str) -> None:
        """See ``Foldered``. Raises Superseded, too."""
        assert isinstance(self._store, Foldered)
        self.check()
        self._store.remove_folder(path)


def fenced(store: StateStore, owned: str) -> FencedStore:
    """The store behind the fence."""
    return FencedFolders(store, owned) if isinstance(store, Foldered) else FencedStore(store, owned)


def check_fence(store: StateStore) -> None:
    """Before folders are touched, which know no transactions: raises Superseded where another leads by now."""
    if isinstance(store, FencedStore):
        store.check()
