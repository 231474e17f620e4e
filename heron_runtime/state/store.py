"""The state store: a small tree of versioned values, as ZooKeeper has it. One protocol, three stores built in.

``memory`` serves tests and the simulator, ``files`` (SQLite) is the embedded default of the ``local`` cluster,
``zookeeper`` serves every other. The same contract tests run against all of them.

* A path is ``/kind/name`` or ``/kind/name/which``. What stands above a node is a folder and no node: it need not be
  made, it has no value, and what ``get`` says of it is the store's own affair (ZooKeeper keeps folders that are empty).
* A node has bytes and a version, 0 at creation, one more with each ``Set``. Versions start again at 0 when a node is
  deleted and made anew.
* ``commit`` applies all operations or none. Readers never see half a transaction.
* An ephemeral node lives while the session that made it lives.
* A session is CONNECTED, SUSPENDED (the store does not answer: what the session owns may still stand) or LOST (its
  ephemeral nodes are gone, for good; the next successful operation begins a new session). SUSPENDED and LOST are
  different on purpose: a master stops deciding on the one and steps down on the other.
* All methods are synchronous and thread-safe; asyncio shells call them through ``asyncio.to_thread``. Callbacks run on
  a thread of the store and must only enqueue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol, runtime_checkable
from urllib.parse import SplitResult

from heron_runtime.failures import Failure, InvalidTopology, NotAllowed, Unavailable, UsageError


class StoreError(Failure):
    """Any failure of the store."""


class StoreForbidden(StoreError, NotAllowed):
    """The operating system or the store's access control does not let us."""


class StoreUnavailable(StoreError, Unavailable):
    """The store does not answer. Where a transaction may have been done all the same, this is an AnswerLost."""


class AnswerLost(StoreUnavailable):
    """A transaction was sent, and its answer was lost: whoever needs to know whether it was done looks."""


class ValueTooLarge(StoreError, InvalidTopology):
    """The store does not take a value, or a transaction, of this size; nothing was changed."""


class TransactionFailed(StoreError):
    """Nothing was changed, because of operation ``index``. The subclass says why."""

    def __init__(self, path: str, index: int = 0, detail: str = "") -> None:
        super().__init__(f"{path}: {detail}" if detail else path)
        self.path = path
        self.index = index


class NodeExists(TransactionFailed):
    """``Create`` of a path that is there."""


class NoNode(TransactionFailed):
    """``Set``, ``Delete`` or ``Check`` of a path that is not there."""


class BadVersion(TransactionFailed):
    """The node's version is not the expected one, or a ``CheckOwner`` node belongs to another session."""


class SessionLost(TransactionFailed):
    """The session that should own an ephemeral node is over."""


class SessionState(Enum):
    """What a client knows of its session."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Node:
    """A value read: its bytes, its version, and whether it goes with its owner's session."""

    data: bytes
    version: int
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Create:
    """Make a node; fails with NodeExists."""

    path: str
    data: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Replace a node's bytes; ``version`` None means whatever it is."""

    path: str
    data: bytes
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node; ``version`` None means whatever it is."""

    path: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """Change nothing, but fail unless the node is there (with this version, if given)."""

    path: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class CheckOwner:
    """Change nothing, but fail unless the node is ephemeral and belongs to *this* session."""

    path: str


Operation = Create | Set | Delete | Check | CheckOwner


@runtime_checkable
class StateStore(Protocol):
    """What every store offers."""

    def open(self) -> None:
        """Connect. Raises StoreUnavailable (after a bounded wait), StoreError for a store that cannot be used."""

    def close(self) -> None:
        """End the session: its ephemeral nodes go at once. Idempotent."""

    def get(self, path: str) -> Node | None:
        """The node, or None."""

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """The node of each path, or None, read in one breath: over a network for one round trip.

        They are read in this order: others may write between two of them, so what comes later is never older. One
        that cannot be read fails the whole, by name. Raises StoreError.
        """

    def children(self, path: str) -> list[str]:
        """Names directly below ``path``, of nodes and of folders, sorted; empty if there are none."""

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        """All or nothing. Returns the version of each operation's node after it (-1 after Delete).

        Raises a subclass of TransactionFailed, AnswerLost, or another StoreUnavailable if nothing was changed.
        """

    def watch(self, path: str, changed: Callable[[str], None]) -> Callable[[], None]:
        """Call ``changed(path)`` after each change of the node ``path`` or of a direct child; returns the undo.

        Changes may be coalesced, never lost: after the last change there is a call. Watches outlive SUSPENDED and
        LOST; after a reconnect every watch fires once.
        """

    def on_session(self, changed: Callable[[SessionState], None]) -> Callable[[], None]:
        """Call ``changed`` when the session's state changes; returns the undo."""

    def session(self) -> SessionState:
        """The session's state now."""


@runtime_checkable
class Bounded(Protocol):
    """A store with a bound on what a transaction may hold."""

    def check_size(self, operations: Sequence[Operation]) -> None:
        """Raises ValueTooLarge for what ``commit`` would refuse for its size alone. Asks nobody."""


class Right(Enum):
    """What a topology may do with a node or folder of its own."""

    READ = "read"
    WORK = "work"  # read, and make, change and remove what stands in the folder


@runtime_checkable
class Foldered(Protocol):
    """A store in which folders stand for themselves, and may be given to somebody (ZooKeeper).

    The others need neither: with them the mode of a folder on disk protects all, and empty folders leave no trace.
    """

    def grant(self, path: str, identity: str, right: Right) -> None:
        """Let ``identity`` (an entry of an ACL) do this with a node, or a folder, which is made where it is missing.

        It replaces what was granted there before. Idempotent. Raises StoreError.
        """

    def remove_folder(self, path: str) -> None:
        """Remove a topology's folder with all that is in it, whoever owns it. Idempotent. Raises StoreError."""


@dataclass(frozen=True, slots=True)
class StoreParameters:
    """What a store is made from: its URL in parts, and what every store is told."""

    url: SplitResult
    session_timeout_secs: float
    credential_file: str | Path | None = None

    def refuse_credential(self) -> None:
        """For stores that know no credential. Raises StoreError."""
        if self.credential_file is not None:
            raise StoreError(
                f"{self.url.geturl()!r} takes no credential: the mode of its folder protects it; leave the file out"
            )


class StoreMaker(Protocol):
    """What the scheme of a URL goes by (entry point group ``heronry.state_stores``)."""

    def __call__(self, parameters: StoreParameters) -> StateStore:
        """The store, not yet open. Raises StoreError for a URL, or a credential, that will not do."""


MAX_SEGMENT_BYTES = 255
MAX_SEGMENTS = 3
MAX_VALUE_BYTES = 16 * 1024 * 1024
MAX_OPERATIONS = 1024


class InvalidPath(StoreError, UsageError, ValueError):
    """The path can be no node's path."""


def _segments(path: str) -> list[str]:
    if not path.startswith("/"):
        raise InvalidPath(f"{path!r}: a path begins with '/', as /topologies/word_count")
    segments = path[1:].split("/")
    for segment in segments:
        if not segment or segment in (".", ".."):
            raise InvalidPath(f"{path!r}: empty parts, '.' and '..' are not allowed")
        if not segment.isprintable():
            raise InvalidPath(f"{path!r}: control characters are not allowed")
        try:
            size = len(segment.encode())
        except UnicodeEncodeError:
            raise InvalidPath(f"{path!r}: not valid text") from None
        if size > MAX_SEGMENT_BYTES:
            raise InvalidPath(f"{path[:64]!r}…: a part has at most {MAX_SEGMENT_BYTES} bytes")
    return segments


def check_node(path: str) -> str:
    """``path`` if it is ``/kind/name`` or ``/kind/name/which``. Raises InvalidPath."""
    if len(_segments(path)) not in (2, MAX_SEGMENTS):
        raise InvalidPath(f"{path!r}: a node's path is /kind/name or /kind/name/which")
    return path


def check_folder(path: str) -> str:
    """``path`` if it is that of a node, or ``/kind``. Raises InvalidPath."""
    if len(_segments(path)) > MAX_SEGMENTS:
        raise InvalidPath(f"{path!r}: a path is /kind, /kind/name or /kind/name/which")
    return path


def check_operations(operations: Sequence[Operation]) -> None:
    """Raises InvalidPath for a bad path, ValueTooLarge for a value, StoreError for a transaction that is too large."""
    if len(operations) > MAX_OPERATIONS:
        raise StoreError(f"a transaction has at most {MAX_OPERATIONS} operations, this one {len(operations)}")
    for operation in operations:
        check_node(operation.path)
        if isinstance(operation, (Create, Set)) and len(operation.data) > MAX_VALUE_BYTES:
            raise ValueTooLarge(
                f"{operation.path}: a value has at most {MAX_VALUE_BYTES} bytes, this one {len(operation.data)}",
                "Keep large data out of the topology's configuration: in files of its package.",
            )


def parent(path: str) -> str:
    """``/kind`` of ``/kind/name``, ``/kind/name`` of ``/kind/name/which``."""
    return path.rsplit("/", 1)[0]
