"""A store whose every transaction fails unless one ephemeral node is this session's: the fence of a leader.

Several processes may believe that they lead: one was stopped, or cut off, and has not heard yet that its session is
over. Which of them is right is decided by the store with each transaction, not by their beliefs: the check of the
node's owner is a part of it. What is no transaction (rights, whole folders, both of which may be done twice) is done
after such a check. Readings are let through.
"""

from __future__ import annotations

from collections.abc import Sequence

from heron_runtime.state.store import (
    Bounded,
    CheckOwner,
    Foldered,
    Operation,
    Right,
    StateStore,
    StoreUnavailable,
    TransactionFailed,
)
from heron_runtime.state.wrapped import WrappedStore


class Superseded(StoreUnavailable):
    """Nothing was changed: another process leads by now, or none."""

    cure = "Send it again: whoever leads by then does it."

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is not this process's: it leads no longer, and has changed nothing")


class FencedStore(WrappedStore):
    """``store``, as long as ``owned`` is a node of this session; once it is closed, somebody else may lead."""

    def __init__(self, store: StateStore, owned: str) -> None:
        super().__init__(store)
        self._owned = owned

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
