"""What a transaction means: the pure core that the memory and files stores share.

``evaluate`` walks through the operations in order over a view of the tree, each seeing what those before it did, and
answers with the records to write, or raises and nothing has happened. Stores only look up records and write them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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
    Set,
)

DELETED_VERSION = -1


@dataclass(frozen=True, slots=True)
class Record:
    """A node as a store keeps it. ``owner`` is the session of an ephemeral node; ``created`` tells lives apart."""

    data: bytes
    version: int
    owner: str | None
    created: int


@dataclass(frozen=True, slots=True)
class Changes:
    """The version of each operation's node, and what to write: path to record, or None where it goes."""

    versions: list[int]
    writes: dict[str, Record | None]


def evaluate(
    operations: Sequence[Operation], lookup: Callable[[str], Record | None], session: str | None, change: int
) -> Changes:
    """Decide a transaction. ``change`` is the number of this change of the tree; ``session`` the caller's, if any.

    Raises a subclass of TransactionFailed.
    """
    writes: dict[str, Record | None] = {}
    versions: list[int] = []
    for index, operation in enumerate(operations):
        path = operation.path
        found = writes[path] if path in writes else lookup(path)
        match operation:
            case Create(_, data, ephemeral):
                if found is not None:
                    raise NodeExists(path, index, "exists already")
                if ephemeral and session is None:
                    raise SessionLost(path, index, "the session that should own this node is over")
                found = writes[path] = Record(data, 0, session if ephemeral else None, change)
            case Set(_, data, version):
                found = _expect(found, path, index, version)
                found = writes[path] = replace(found, data=data, version=found.version + 1)
            case Delete(_, version):
                _expect(found, path, index, version)
                found = writes[path] = None
            case Check(_, version):
                found = _expect(found, path, index, version)
            case CheckOwner():
                found = _expect(found, path, index, None)
                if session is None or found.owner != session:
                    raise BadVersion(path, index, "belongs to another session")
        versions.append(DELETED_VERSION if found is None else found.version)
    return Changes(versions, writes)


def needs_session(operations: Sequence[Operation]) -> bool:
    """True if an operation makes sense only for somebody who has a session."""
    return any(isinstance(o, CheckOwner) or (isinstance(o, Create) and o.ephemeral) for o in operations)


def _expect(found: Record | None, path: str, index: int, version: int | None) -> Record:
    if found is None:
        raise NoNode(path, index, "is not there")
    if version is not None and found.version != version:
        raise BadVersion(path, index, f"version {version} was expected, {found.version} is there")
    return found
