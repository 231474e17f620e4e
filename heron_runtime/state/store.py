"""Protocol of the state store: a small tree of versioned values, as in ZooKeeper, with three built-in stores.

``memory`` serves tests and the simulator, ``files`` (SQLite) is the embedded default of the ``local`` cluster,
``zookeeper`` serves every other. The same contract tests run against all of them.

* A path is ``/kind/name`` or ``/kind/name/which``. A prefix of the path of a node is a folder, not a node. A folder is
  created implicitly and does not have a value. The result of ``get`` for a folder depends on the store (ZooKeeper keeps
  empty folders).
* A node has bytes and a version, which is 0 at creation and increases by one with each ``Set``. Versions start again at
  0 when a node is deleted and created again.
* ``commit`` applies all operations or none. Readers never see a part of a transaction.
* An ephemeral node exists as long as the session that created it.
* A session is CONNECTED, SUSPENDED (the store does not answer; the nodes of the session may still exist) or LOST (its
  ephemeral nodes are permanently gone; the next successful operation begins a new session). The difference matters: a
  master stops deciding when SUSPENDED and steps down when LOST.
* All methods are synchronous and thread-safe. Asyncio code calls them through ``asyncio.to_thread``. Callbacks run on a
  thread of the store and must only enqueue.
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
    """The operating system or the store's access control denies the operation."""


class StoreUnavailable(StoreError, Unavailable):
    """The store does not answer. If a transaction may have been applied, this is an AnswerLost."""


class StoreMissing(StoreUnavailable):
    """The store does not exist, and this client must not create it."""

    cure = "restore the folder; if it is lost for good, end the topologies with `heron kill` and submit them again"


def with_hint(error: StoreError) -> str:
    """Return the message of an error, with its remedy if it has one."""
    return f"{error}; hint: {error.cure}" if error.cure else str(error)


class AnswerLost(StoreUnavailable):
    """A transaction was sent and its answer was lost. The caller must check if it was applied."""


class ValueTooLarge(StoreError, InvalidTopology):
    """A value or a transaction is too large for the store. Nothing was changed."""


class TransactionFailed(StoreError):
    """Nothing was changed, because operation ``index`` failed. The subclass is the reason."""

    def __init__(self, path: str, index: int = 0, detail: str = "") -> None:
        super().__init__(f"{path}: {detail}" if detail else path)
        self.path = path
        self.index = index


class NodeExists(TransactionFailed):
    """``Create`` of a path that exists."""


class NoNode(TransactionFailed):
    """``Set``, ``Delete`` or ``Check`` of a missing path."""


class BadVersion(TransactionFailed):
    """The node's version is not the expected one, or a ``CheckOwner`` node belongs to another session."""


class SessionLost(TransactionFailed):
    """The session that should own an ephemeral node is over."""


class SessionState(Enum):
    """State of the session of a client."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Node:
    """Value of a node. ``ephemeral``: the node is removed at the end of its owner's session."""

    data: bytes
    version: int
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node. Fails with NodeExists."""

    path: str
    data: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Replace the bytes of a node. ``version`` None means any version."""

    path: str
    data: bytes
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node. ``version`` None means any version."""

    path: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """Change nothing, but fail unless the node exists (with this version, if given)."""

    path: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class CheckOwner:
    """Change nothing, but fail unless the node is ephemeral and belongs to *this* session."""

    path: str


Operation = Create | Set | Delete | Check | CheckOwner


@runtime_checkable
class StateStore(Protocol):
    """Interface of every store."""

    def open(self) -> None:
        """Connect. Raises StoreUnavailable (after a bounded wait), StoreError for a store that cannot be used."""

    def close(self) -> None:
        """End the session, which removes its ephemeral nodes at once. Idempotent."""

    def get(self, path: str) -> Node | None:
        """Return the node, or None."""

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Return the node of each path, or None, read in one batch (one round trip over a network).

        The nodes are read in this order. Other clients may write between two reads, so a later node is never older than
        an earlier one.

        Raises:
            StoreError: A node cannot be read. The error names it.
        """

    def children(self, path: str) -> list[str]:
        """Return the names of nodes and folders directly below ``path``, sorted."""

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        """Apply all operations, or none.

        Returns:
            The version of each operation's node after the operation, -1 after Delete.

        Raises:
            TransactionFailed: An operation failed (a subclass). Nothing was changed.
            AnswerLost: The transaction may have been applied.
            StoreUnavailable: The store does not answer. Nothing was changed, except for AnswerLost.
        """

    def watch(self, path: str, changed: Callable[[str], None]) -> Callable[[], None]:
        """Call ``changed(path)`` after each change of the node ``path`` or of a direct child.

        Changes may be coalesced but are never lost: a call always follows the last change. Watches survive SUSPENDED
        and LOST. After a reconnect every watch fires once.

        Returns:
            A function that removes the watch.
        """

    def on_session(self, changed: Callable[[SessionState], None]) -> Callable[[], None]:
        """Call ``changed`` when the session's state changes. Return a function that removes the listener."""

    def session(self) -> SessionState:
        """Return the current state of the session."""


@runtime_checkable
class Bounded(Protocol):
    """Store with a limit on the size of a transaction."""

    def check_size(self, operations: Sequence[Operation]) -> None:
        """Raise ValueTooLarge if `commit` would refuse the size. Works offline."""


@runtime_checkable
class Identified(Protocol):
    """Store that can tell if its contents were lost."""

    def identity(self, *, create: bool = False) -> str:
        """Return the identity of the contents, "" if they have none. It changes only if all contents are lost.

        ``create`` gives them one if it is missing. Only the control plane may do this.

        Raises:
            StoreError: The store does not answer.
        """


def store_identity(store: StateStore, *, create: bool = False) -> str:
    """Return the identity of the contents of `store`, as ``Identified.identity`` does. Raises StoreError."""
    return store.identity(create=create) if isinstance(store, Identified) else ""


class StoreReplaced(StoreUnavailable):
    """The store has lost its contents, or is another one. A record that is missing in it proves nothing."""

    cure = (
        "restore the data of the state store; if they are lost for good, end the topologies with `heron kill` and "
        "submit them again"
    )

    def __init__(self, cause: str) -> None:
        super().__init__(f"the state store was replaced: {cause}")


def check_identity(store: StateStore, expected: str) -> None:
    """Check that this is the store with the identity `expected`. An empty one is unknown and passes.

    Raises:
        StoreReplaced: It is another one.
        StoreError: The store does not answer.
    """
    if expected and (identity := store_identity(store)) != expected:
        raise StoreReplaced("its contents have another identity than before" if identity else "it is empty")


class Right(Enum):
    """Right of a topology on a node or folder of its own."""

    READ = "read"
    WORK = "work"  # read, and create, change and remove nodes in the folder


@runtime_checkable
class Foldered(Protocol):
    """Store with explicit folders, which have access rights (ZooKeeper).

    Other stores need neither: the mode of a folder on disk protects the whole store, and empty folders do not exist.
    """

    def grant(self, path: str, identity: str, right: Right) -> None:
        """Grant a right on a node or folder to ``identity`` (an entry of an ACL). Raises StoreError.

        A missing node or folder is created. The grant replaces former ones for this path. Idempotent.
        """

    def remove_folder(self, path: str) -> None:
        """Remove the folder of a topology with all its contents, including nodes of other clients. Idempotent.

        Raises:
            StoreError: The folder cannot be removed.
        """


@dataclass(frozen=True, slots=True)
class StoreParameters:
    """Parameters of a store: its URL in parts, and the settings common to all stores.

    Without ``create``, ``open`` of a store in a folder raises StoreMissing instead of creating it.
    """

    url: SplitResult
    session_timeout_secs: float
    credential_file: str | Path | None = None
    create: bool = True

    def refuse_credential(self) -> None:
        """Raise StoreError if a credential is given. For stores that do not use credentials."""
        if self.credential_file is not None:
            raise StoreError(
                f"{self.url.geturl()!r} does not use a credential: the mode of its folder protects it; omit the file"
            )


class StoreMaker(Protocol):
    """Factory of the stores of a URL scheme (entry point group `heronry.state_stores`)."""

    def __call__(self, parameters: StoreParameters) -> StateStore:
        """Return the store, not yet open. Raises StoreError for an invalid URL or credential."""


MAX_SEGMENT_BYTES = 255
MAX_SEGMENTS = 3
MAX_VALUE_BYTES = 16 * 1024 * 1024
MAX_OPERATIONS = 1024


class InvalidPath(StoreError, UsageError, ValueError):
    """The path is not valid for a node or folder."""


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
    """Return ``path`` if it is ``/kind/name`` or ``/kind/name/which``. Raises InvalidPath."""
    if len(_segments(path)) not in (2, MAX_SEGMENTS):
        raise InvalidPath(f"{path!r}: a node's path is /kind/name or /kind/name/which")
    return path


def check_folder(path: str) -> str:
    """Return ``path`` if it is the path of a node, or ``/kind``. Raises InvalidPath."""
    if len(_segments(path)) > MAX_SEGMENTS:
        raise InvalidPath(f"{path!r}: a path is /kind, /kind/name or /kind/name/which")
    return path


def check_operations(operations: Sequence[Operation]) -> None:
    """Check paths and sizes of a transaction.

    Raises:
        InvalidPath: A path is invalid.
        ValueTooLarge: A value is too large.
        StoreError: The transaction has too many operations.
    """
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
    """Return the parent of a path: ``/kind`` of ``/kind/name``, ``/kind/name`` of ``/kind/name/which``."""
    return path.rsplit("/", 1)[0]
