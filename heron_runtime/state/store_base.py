"""Shared parts of stores: evaluation of transactions, and the table of watches and listeners.

`evaluate` applies operations in order to a view of the tree. Each operation sees the effects of those before it, and
the first that fails refuses the whole transaction. Stores only look up records and write the ones it returns.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from heron_runtime.state.store import (
    BadVersion,
    Check,
    CheckOwner,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    SessionLost,
    SessionState,
    Set,
)

DELETED_VERSION = -1


@dataclass(frozen=True, slots=True)
class Record:
    """Node as a store keeps it.

    ``owner`` is the session of an ephemeral node. ``created`` is the number of the change that created the node, which
    distinguishes it from other nodes of the same path.
    """

    data: bytes
    version: int
    owner: str | None
    created: int


@dataclass(frozen=True, slots=True)
class Changes:
    """Result of a transaction: the version of each operation's node, and the records to write (None to remove)."""

    versions: list[int]
    writes: dict[str, Record | None]


def evaluate(
    operations: Sequence[Operation], lookup: Callable[[str], Record | None], session: str | None, change: int
) -> Changes:
    """Evaluate a transaction without applying it.

    Args:
        operations: Operations of the transaction.
        lookup: Returns the current record of a path.
        session: Session of the caller, if any.
        change: Number of this change of the tree.

    Raises:
        TransactionFailed: An operation failed (a subclass).
    """
    writes: dict[str, Record | None] = {}
    versions: list[int] = []
    for index, operation in enumerate(operations):
        path = operation.path
        record = writes[path] if path in writes else lookup(path)
        match operation:
            case Create(_, data, ephemeral):
                if record is not None:
                    raise NodeExists(path, index, "exists already")
                if ephemeral and session is None:
                    raise SessionLost(path, index, "the session that should own this node is over")
                record = writes[path] = Record(data, 0, session if ephemeral else None, change)
            case Set(_, data, version):
                record = _expect(record, path, index, version)
                record = writes[path] = replace(record, data=data, version=record.version + 1)
            case Delete(_, version):
                _expect(record, path, index, version)
                record = writes[path] = None
            case Check(_, version):
                record = _expect(record, path, index, version)
            case CheckOwner():
                record = _expect(record, path, index, None)
                if session is None or record.owner != session:
                    raise BadVersion(path, index, "belongs to another session")
        versions.append(DELETED_VERSION if record is None else record.version)
    return Changes(versions, writes)


def needs_session(operations: Sequence[Operation]) -> bool:
    """Return True if an operation requires a session."""
    return any(isinstance(o, CheckOwner) or (isinstance(o, Create) and o.ephemeral) for o in operations)


def _expect(record: Record | None, path: str, index: int, version: int | None) -> Record:
    if record is None:
        raise NoNode(path, index, "does not exist")
    if version is not None and record.version != version:
        raise BadVersion(path, index, f"expected version {version}, found {record.version}")
    return record


log = logging.getLogger(__name__)


class Watch:
    """Watched path and its callback. Subclasses add the state of a store."""

    def __init__(self, path: str, changed: Callable[[str], None]) -> None:
        self.path = path
        self.changed = changed


W = TypeVar("W", bound=Watch)


class WatchTable(Generic[W]):
    """Watches and listeners of one client, in order of registration. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: dict[W, None] = {}
        self._listeners: dict[object, Callable[[SessionState], None]] = {}

    def __bool__(self) -> bool:
        """Return True if there are watches or listeners."""
        return bool(self._watches or self._listeners)

    def __contains__(self, watch: W) -> bool:
        return watch in self._watches

    def watch(self, watch: W) -> Callable[[], None]:
        """Add a watch. Return a function that removes it."""
        with self._lock:
            self._watches[watch] = None
        return lambda: self._forget(self._watches, watch)

    def listen(self, changed: Callable[[SessionState], None]) -> Callable[[], None]:
        """Add a listener. Return a function that removes it."""
        key = object()
        with self._lock:
            self._listeners[key] = changed
        return lambda: self._forget(self._listeners, key)

    def watches(self) -> list[W]:
        """Return all current watches."""
        with self._lock:
            return list(self._watches)

    def listeners(self) -> list[Callable[[SessionState], None]]:
        """Return all current listeners."""
        with self._lock:
            return list(self._listeners.values())

    def tell(self, state: SessionState) -> None:
        """Call the listeners with `state`."""
        for listener in self.listeners():
            call(listener, state)

    def _forget(self, table: dict[Any, Any], key: object) -> None:
        with self._lock:
            table.pop(key, None)


def call(callback: Callable[..., None], *arguments: object) -> None:
    """Call a callback. Exceptions are logged."""
    try:
        callback(*arguments)
    except Exception:
        log.exception("a callback of the store failed")
