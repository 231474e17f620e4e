"""Translation of transactions into those of ZooKeeper: the pure part of the ZooKeeper store.

ZooKeeper's ``multi`` is a transaction of create, set, delete and check of a version. The transactions of the state
store differ in three points, which this module translates. The store only sends the ops and returns the replies.

* **Touch.** Each writer below a folder sets the folder's own (empty) data in the same transaction. One data watch on
  the folder therefore reports every write below it, and the folder's version counts them.
* **CheckOwner.** ZooKeeper cannot check an owner. The node is therefore read first (``NodeSnapshot``), and the
  transaction checks that the folder has not been written since and that the node still exists. If no node of the folder
  was created since, an existing node is the one that was read, so its owner is the one that was read. Nodes of a
  session that ended meanwhile do not exist.
* **Versions.** A check without a version uses the version that was read, since the caller receives this version.

If the data that was read has changed, the transaction fails as a whole and ``read_replies`` returns `RetryAfterRead`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

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
    TransactionFailed,
    ValueTooLarge,
    parent,
)
from heron_runtime.state.store_base import DELETED_VERSION

ANY_VERSION = -1
NO_VERSION = 2**31 - 1  # a version that no node has
MAX_VALUE_BYTES = 1_000_000
MAX_REQUEST_BYTES = 1_040_000  # the servers' jute.maxbuffer is 1 048 575 by default
OP_OVERHEAD_BYTES = 128  # header, flags and ACL of one op


class Action(Enum):
    """Operation of ZooKeeper within a transaction."""

    CREATE = "create"
    SET = "set"
    DELETE = "delete"
    CHECK = "check"


class OpPurpose(Enum):
    """Purpose of an op, which defines the meaning of its refusal."""

    ASKED = "asked"  # an operation of the caller; its refusal is the answer
    ASSUMED = "assumed"  # an operation or guard that relies on a snapshot; a wrong version requires a new one
    TOUCH = "touch"


class OpOutcome(Enum):
    """Outcome of an op, apart from a version."""

    EXISTS = "exists"
    NO_NODE = "no node"
    BAD_VERSION = "bad version"
    SESSION_OVER = "session over"
    NOT_DONE = "not done"  # because of another op


@dataclass(frozen=True, slots=True)
class Op:
    """Part of a ``multi`` (ZooKeeper's term). ``index`` is that of the operation it belongs to, -1 for a touch."""

    action: Action
    path: str
    index: int
    why: OpPurpose = OpPurpose.ASKED
    data: bytes = b""
    version: int = ANY_VERSION
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """State of a node when it was read.

    ``folder`` is the version of its folder, read before the node. It is used only to check an owner.
    """

    folder: int
    version: int | None  # None: missing
    mine: bool = False  # ephemeral, and owned by the session that read it


@dataclass(frozen=True, slots=True)
class RetryAfterRead:
    """The transaction was not applied, since ``path`` had changed. ``folder_missing``: create the folder first."""

    path: str
    folder_missing: bool = False


@dataclass(slots=True)
class _Node:
    """State of a node in the middle of a transaction."""

    version: int | None
    mine: bool


def to_look_at(operations: Sequence[Operation]) -> list[str]:
    """Return the paths that must be read before ``ops`` is called: those that are checked without a version."""
    checked = (o.path for o in operations if isinstance(o, CheckOwner) or (isinstance(o, Check) and o.version is None))
    return list(dict.fromkeys(checked))


def ops(operations: Sequence[Operation], seen: Mapping[str, NodeSnapshot]) -> list[Op]:
    """Translate a transaction to the ops of a ``multi``. ``seen`` holds snapshots of the paths of ``to_look_at``."""
    known = {path: _Node(snapshot.version, snapshot.mine) for path, snapshot in seen.items()}
    made: list[Op] = []
    for index, operation in enumerate(operations):
        path = operation.path
        node = known.get(path)
        match operation:
            case Create(_, data, ephemeral):
                made.append(Op(Action.CREATE, path, index, data=data, ephemeral=ephemeral))
                known[path] = _Node(0, ephemeral)
            case Set(_, data, version):
                made.append(Op(Action.SET, path, index, data=data, version=_wanted(version)))
                if node is not None and node.version is not None:
                    node.version += 1
            case Delete(_, version):
                made.append(Op(Action.DELETE, path, index, version=_wanted(version)))
                known[path] = _Node(None, False)
            case Check(_, version):
                if version is not None:
                    made.append(Op(Action.CHECK, path, index, version=_wanted(version)))
                else:
                    made.append(_assumed(path, index, known[path]))
            case CheckOwner():
                if known[path].version is not None and not known[path].mine:
                    made.append(Op(Action.CHECK, path, index, version=NO_VERSION))  # refused, in its turn
                    continue
                if path in seen and seen[path].version is not None:
                    made.append(Op(Action.CHECK, parent(path), index, OpPurpose.ASSUMED, version=seen[path].folder))
                made.append(_assumed(path, index, known[path]))
    return made + _touches(operations)


def _assumed(path: str, index: int, node: _Node) -> Op:
    version = NO_VERSION if node.version is None else node.version
    return Op(Action.CHECK, path, index, OpPurpose.ASSUMED, version=version)


def _touches(operations: Sequence[Operation]) -> list[Op]:
    written = (parent(o.path) for o in operations if isinstance(o, (Create, Set, Delete)))
    return [Op(Action.SET, folder, -1, OpPurpose.TOUCH) for folder in dict.fromkeys(written)]


def _wanted(version: int | None) -> int:
    if version is None:
        return ANY_VERSION
    return version if version >= 0 else NO_VERSION


def read_replies(
    operations: Sequence[Operation], sent: Sequence[Op], replies: Sequence[int | OpOutcome]
) -> list[int] | RetryAfterRead | TransactionFailed:
    """Translate the replies of ZooKeeper.

    Args:
        operations: Operations of the transaction.
        sent: Ops that were sent for them.
        replies: The version after each op (any value for a check), or the reason why the op was not applied.

    Returns:
        The version of each operation's node, or the reason of a refusal, or RetryAfterRead if new snapshots are
        required.
    """
    for op, reply in zip(sent, replies, strict=True):
        if isinstance(reply, OpOutcome) and reply is not OpOutcome.NOT_DONE:
            return _refusal(operations, op, reply)
    versions = [0] * len(operations)
    for op, reply in zip(sent, replies, strict=True):
        if op.index < 0 or op.path != operations[op.index].path:
            continue
        match op.action:
            case Action.CHECK:
                versions[op.index] = op.version
            case Action.DELETE:
                versions[op.index] = DELETED_VERSION
            case _:
                assert isinstance(reply, int)
                versions[op.index] = reply
    return versions


def _refusal(operations: Sequence[Operation], op: Op, reply: OpOutcome) -> RetryAfterRead | TransactionFailed:
    path, index = op.path, op.index
    if reply is OpOutcome.SESSION_OVER:
        return SessionLost(operations[0].path, 0, "this client's session has expired; try again with a new one")
    if op.why is OpPurpose.TOUCH:
        return RetryAfterRead(path, folder_missing=True)
    if reply is OpOutcome.EXISTS:
        return NodeExists(path, index, "exists already")
    if reply is OpOutcome.NO_NODE and op.action is Action.CREATE:
        return RetryAfterRead(parent(path), folder_missing=True)
    if op.why is OpPurpose.ASSUMED and (reply is OpOutcome.BAD_VERSION or path != operations[index].path):
        return RetryAfterRead(path)
    if reply is OpOutcome.NO_NODE:
        return NoNode(path, index, "does not exist")
    if isinstance(operations[index], CheckOwner):
        return BadVersion(path, index, "belongs to another session")
    return BadVersion(path, index, f"expected version {op.version}, found another")


def check_size(operations: Sequence[Operation], root: str) -> None:
    """Raise ValueTooLarge for a value or a transaction that the servers would refuse by closing the connection."""
    size, largest = 0, 0
    path = ""
    for operation in operations:
        size += OP_OVERHEAD_BYTES + 2 * len(root.encode() + operation.path.encode())
        if isinstance(operation, (Create, Set)):
            size += len(operation.data)
            if len(operation.data) > largest:
                largest, path = len(operation.data), operation.path
    cure = "Make the topology smaller: fewer tasks, or less data in its configuration"
    if largest > MAX_VALUE_BYTES:
        raise ValueTooLarge(
            f"{path}: a value has at most {MAX_VALUE_BYTES} bytes in ZooKeeper, this one {largest}. {cure}"
        )
    if size > MAX_REQUEST_BYTES:
        raise ValueTooLarge(
            f"{path}: a transaction has at most {MAX_REQUEST_BYTES} bytes in ZooKeeper, this one {size}, "
            f"of which {largest} are here. {cure}"
        )
