"""The ZooKeeper store: the protocol of `heron_runtime.state.store` on ZooKeeper.

Paths, bytes and versions are those of ZooKeeper, below a root, and so are ephemeral nodes and sessions.
`zookeeper_transactions` translates transactions, `zookeeper_acl` holds root and rights, and `zookeeper_connection` the
connection and its session. A transaction is sent once. A lost answer is AnswerLost, and the caller checks whether it
was done.

ZooKeeper's watches fire once and end with the connection. A watch of this store stays: when it fires it is *armed*
again before it is called, so that any change after the read of the callee fires it again. After a reconnect all watches
are armed and called. An arming that fails since the store is unreachable is retried until it succeeds, then the watch
is called. The thread of the watches also reports the states of the session to listeners, in order. It waits only for
answers to armings, which fail together with the connection, so SUSPENDED and LOST are reported at once.
"""

from __future__ import annotations

import logging
import queue
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import EventType

from heron_runtime.state import zookeeper_transactions as plan
from heron_runtime.state.credential import StoreCredential, read_credential
from heron_runtime.state.paths import identity_node
from heron_runtime.state.store import (
    MAX_SEGMENTS,
    AnswerLost,
    CheckOwner,
    Create,
    Node,
    NoNode,
    Operation,
    Right,
    SessionState,
    StoreError,
    StoreForbidden,
    StoreParameters,
    StoreUnavailable,
    TransactionFailed,
    check_folder,
    check_node,
    check_operations,
    parent,
)
from heron_runtime.state.store_base import Watch, WatchTable, call, needs_session
from heron_runtime.state.zookeeper_acl import READ_BY_ALL, checked_root, entry, rights
from heron_runtime.state.zookeeper_connection import (
    MOMENT_SECS,
    TLS_SCHEME,
    ZookeeperConnection,
    client_context,
    explain,
)
from heron_runtime.state.zookeeper_transactions import Action, NodeSnapshot, Op, OpOutcome, RetryAfterRead

RETRY_SECS = 0.5
JOIN_SECS = 15.0
log = logging.getLogger(__name__)

Trigger = Callable[[Any], None]


class _ArmedWatch(Watch):
    """Watch that is armed in ZooKeeper with ``trigger``, which is the same function each time."""

    def __init__(self, path: str, changed: Callable[[str], None], due: Callable[[_ArmedWatch], None]) -> None:
        super().__init__(path, changed)
        self.queued = False  # guarded by the thread's lock
        self._due = due

    def trigger(self, event: Any) -> None:
        """Queue the watch after a change. Called on kazoo's thread."""
        if event.type != EventType.NONE:  # a lost connection is reported separately
            self._due(self)


class WatchThread:
    """Thread that arms and calls watches, and calls listeners.

    ``arm(path, trigger)`` makes ZooKeeper call ``trigger`` at the next change. It raises StoreError.
    """

    def __init__(self, arm: Callable[[str, Trigger], None]) -> None:
        self._arm = arm
        self._table: WatchTable[_ArmedWatch] = WatchTable()
        self.listen = self._table.listen
        self._lock = threading.Lock()  # guards the watches' flags
        # Not a SimpleQueue, whose get may outlive its timeout indefinitely (`heron_instance/shell/inbox.py`).
        self._queue: queue.Queue[_ArmedWatch | SessionState | Callable[[], None] | None] = queue.Queue()
        self._failed: list[_ArmedWatch] = []  # owned by the thread
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._queue = queue.Queue()
        self._failed = []
        with self._lock:
            for watch in self._table.watches():
                watch.queued = False
        self._thread = threading.Thread(target=self._run, name="store-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. No callback starts after this returns. May be called by a callback, which then finishes."""
        thread, self._thread = self._thread, None
        self._queue.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(JOIN_SECS)

    def watch(self, path: str, changed: Callable[[str], None]) -> Callable[[], None]:
        """Add a watch and arm it. Return a function that removes it.

        Raises:
            StoreError: The watch can never be armed.
        """
        watch = _ArmedWatch(path, changed, self._due)
        undo = self._table.watch(watch)
        try:
            self._arm(path, watch.trigger)
        except StoreUnavailable:
            self._due(watch)  # the state is unknown, so the watch is called once the store answers
        except BaseException:
            undo()
            raise
        return undo

    def tell(self, state: SessionState) -> None:
        """Queue a call of the listeners with this state."""
        self._queue.put(state)

    def call(self, job: Callable[[], None]) -> None:
        """Queue a job for the thread."""
        self._queue.put(job)

    def fire_all(self) -> None:
        """Queue arming and calling of every watch."""
        for watch in self._table.watches():
            self._due(watch)

    def _due(self, watch: _ArmedWatch) -> None:
        with self._lock:
            if watch.queued:
                return
            watch.queued = True
        self._queue.put(watch)

    # -- on the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                item = self._queue.get(timeout=RETRY_SECS if self._failed else None)
            except queue.Empty:
                failed, self._failed = self._failed, []
                for watch in failed:
                    self._due(watch)
                continue
            if item is None:
                return
            if isinstance(item, _ArmedWatch):
                self._serve(item)
            elif isinstance(item, SessionState):
                self._table.tell(item)
            else:
                call(item)

    def _serve(self, watch: _ArmedWatch) -> None:
        with self._lock:
            watch.queued = False
        if watch not in self._table:
            return
        try:
            self._arm(watch.path, watch.trigger)
        except StoreError as error:
            if not isinstance(error, StoreUnavailable):
                log.error("watching %s: %s", watch.path, error)
            self._failed.append(watch)
            return
        call(watch.changed, watch.path)


LOOKS = 50  # attempts of a transaction, each with new snapshots
_REPLIES: tuple[tuple[type[Exception], OpOutcome], ...] = (
    (NodeExistsError, OpOutcome.EXISTS),
    (NoNodeError, OpOutcome.NO_NODE),
    (BadVersionError, OpOutcome.BAD_VERSION),
    (SessionExpiredError, OpOutcome.SESSION_OVER),
    (RolledBackError, OpOutcome.NOT_DONE),
    (RuntimeInconsistency, OpOutcome.NOT_DONE),
)


class ZookeeperStore:
    """Client of the tree below ``root``. Several may be open in one process, and any thread may use them.

    ``hosts`` is ``host:port,host:port``. The servers may adjust ``session_timeout_secs`` to their own bounds. The
    constructor raises StoreError for invalid hosts, and for a credential that must not be sent without ``tls``.
    """

    def __init__(
        self,
        hosts: str,
        *,
        root: str = "",
        session_timeout_secs: float = 6.0,
        credential: StoreCredential | None = None,
        wait_secs: float = 6.0,
        tls: bool = False,
    ) -> None:
        self._root = checked_root(root)
        self._credential = credential
        self._wait_secs = wait_secs
        self._opening = threading.Lock()
        self._folders: set[str] = set()  # those that are known to exist
        self._watches = WatchThread(self._arm)
        self._link = ZookeeperConnection(
            hosts,
            self._root,
            credential,
            session_timeout_secs=session_timeout_secs,
            wait_secs=wait_secs,
            tls=_trust(credential, tls),
            tell=self._watches.tell,
            came=self._watches.fire_all,
            later=self._watches.call,
        )

    # -- StateStore ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect, and create the root if it is missing. Raises StoreUnavailable, StoreError."""
        with self._opening:
            if not self._link.is_open:
                self._folders.clear()
                self._link.open()
                self._watches.start()
                self._watches.fire_all()

    def close(self) -> None:
        """End the session, which removes its ephemeral nodes. Idempotent."""
        with self._opening:
            if self._link.is_open:
                self._link.close()
                self._watches.stop()

    def get(self, path: str) -> Node | None:
        """Return the node, or None."""
        return self.get_all((path,))[0]

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Return the nodes. One server reads them in this order, after one sync."""
        full = [self._full(check_node(path)) for path in paths]
        nodes = self._link.ask(paths, lambda client: [client.get_async(path) for path in full])
        return [None if one is None else Node(one[0], one[1].version, one[1].ephemeralOwner != 0) for one in nodes]

    def children(self, path: str) -> list[str]:
        """Return the names directly below ``path``, sorted."""
        full = self._full(check_folder(path))
        (names,) = self._link.ask(path, lambda client: [client.get_children_async(full)])
        return sorted(names or ())

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        """Apply all operations, or none. Raises a subclass of TransactionFailed, StoreUnavailable or StoreError."""
        check_operations(operations)
        self._check_allowed(operations)
        deadline = time.monotonic() + self._wait_secs
        if not operations:
            self._link.ask(self._root, lambda _: [])
            return []
        for _ in range(LOOKS):
            ops = plan.ops(operations, {path: self._see(path, operations) for path in plan.to_look_at(operations)})
            self._make_folders(operations)
            replies, generation = self._send(ops, needs_session(operations), deadline)
            outcome = plan.read_replies(operations, ops, replies)
            if isinstance(outcome, RetryAfterRead):
                if outcome.folder_missing:
                    self._folders.clear()
                    if self._credential is not None and self._credential.topology:
                        raise NoNode(outcome.path, 0, "does not exist: the topology is killed, or not admitted yet")
                continue
            self._link.answered(generation)
            if isinstance(outcome, TransactionFailed):
                raise outcome
            return outcome
        raise StoreUnavailable(f"{operations[0].path}: others change the same nodes all the time; try again")

    def check_size(self, operations: Sequence[Operation]) -> None:
        """See ``heron_runtime.state.store.Bounded``."""
        plan.check_size(operations, self._root)

    def watch(self, path: str, changed: Callable[[str], None]) -> Callable[[], None]:
        """Call ``changed(path)`` on the store's thread after changes. Return a function that removes the watch."""
        check_folder(path)
        self._link.client()
        return self._watches.watch(path, changed)

    def on_session(self, changed: Callable[[SessionState], None]) -> Callable[[], None]:
        """Call ``changed`` on the store's thread when the session's state changes. Return a function that undoes it."""
        return self._watches.listen(changed)

    def session(self) -> SessionState:
        """Return the current state of the session."""
        return self._link.state

    def identity(self, *, create: bool = False) -> str:
        """See ``heron_runtime.state.store.Identified``. It is in a node that every client may read."""
        path = identity_node()
        if create:
            full, acl = self._full(path), [*rights(self._credential), READ_BY_ALL]
            self._make_folder(parent(path))
            drawn = secrets.token_hex(16).encode()
            self._link.ask(path, lambda client: [client.create_async(full, drawn, acl)], usual=NodeExistsError)
            self._link.ask(path, lambda client: [client.set_acls_async(full, acl)])  # after a change of the password
        node = self.get(path)
        return "" if node is None else node.data.decode(errors="replace")

    # -- Foldered --------------------------------------------------------------------------------------------------

    def grant(self, path: str, identity: str, right: Right) -> None:
        """See ``heron_runtime.state.store.Foldered``. Raises StoreError."""
        full, acl = self._full(check_node(path)), [*rights(self._credential), entry(identity, right)]
        self._make_folder(parent(path))
        self._link.ask(path, lambda client: [client.create_async(full, b"", acl)], usual=NodeExistsError)
        self._link.ask(path, lambda client: [client.set_acls_async(full, acl)])

    def remove_folder(self, path: str) -> None:
        """See ``heron_runtime.state.store.Foldered``. Raises StoreError."""
        self._folders.discard(check_node(path))
        try:
            self._remove(path)
        except StoreForbidden as error:
            raise StoreForbidden(
                f"{path} has nodes that only their owner may remove. Remove them as ZooKeeper's superuser "
                "(DigestAuthenticationProvider.superDigest), or use another name"
            ) from error

    def _remove(self, path: str) -> None:
        """Remove a node and all nodes below it. A process that is about to end may still create some meanwhile."""
        full = self._full(path)
        for _ in range(LOOKS):
            (below,) = self._link.ask(path, lambda client: [client.get_children_async(full)])
            for name in below or ():
                self._remove(f"{path}/{name}")
            (removed,) = self._link.ask(
                path, lambda client: [client.delete_async(full)], usual=(NoNodeError, NotEmptyError)
            )
            if below is None or removed:
                return
        raise StoreUnavailable(f"{path}: another client keeps adding nodes there; try again")

    # -- reading ---------------------------------------------------------------------------------------------------

    def _see(self, path: str, operations: Sequence[Operation]) -> NodeSnapshot:
        """Read the snapshot of a node, with its folder only for CheckOwner.

        A topology does not have access to the folder of every node.
        """
        node = self._full(path)
        owned = any(isinstance(operation, CheckOwner) and operation.path == path for operation in operations)
        folder = self._full(parent(path)) if owned else node
        session = None

        def ask(client: KazooClient) -> Sequence[Any]:
            nonlocal session
            session = client.client_id
            return [client.exists_async(folder), client.exists_async(node)]

        above, stat = self._link.ask(path, ask)
        if above is None or stat is None:
            return NodeSnapshot(0, None)
        return NodeSnapshot(above.version, stat.version, session is not None and stat.ephemeralOwner == session[0])

    def _arm(self, path: str, trigger: Trigger) -> None:
        """Arm ``trigger`` for the next change of ``path`` or of a child. Does not wait for a connection."""
        full, folder = self._full(path), path.count("/") < MAX_SEGMENTS

        def ask(client: KazooClient) -> Sequence[Any]:
            children = [client.get_children_async(full, watch=trigger)] if folder else []
            return [client.exists_async(full, watch=trigger), *children]

        self._link.ask(path, ask, wait_secs=0.0)

    # -- writing ---------------------------------------------------------------------------------------------------

    def _check_allowed(self, operations: Sequence[Operation]) -> None:
        self._link.client()
        if operations and self._credential is not None and self._credential.read_only:
            raise StoreForbidden(f"{operations[0].path}: this credential only reads; writing needs the cluster's own")
        self.check_size(operations)

    def _make_folders(self, operations: Sequence[Operation]) -> None:
        if self._credential is not None and self._credential.topology:
            return  # the control plane has created them; other clients must not
        for folder in dict.fromkeys(parent(o.path) for o in operations if isinstance(o, Create)):
            self._make_folder(folder)

    def _make_folder(self, folder: str) -> None:
        if folder in self._folders:
            return
        if parent(folder):
            self._make_folder(parent(folder))
        self._link.ask(folder, lambda client: [client.create_async(self._full(folder), b"")], usual=NodeExistsError)
        self._folders.add(folder)

    def _send(self, ops: Sequence[Op], needs_own_session: bool, deadline: float) -> tuple[list[int | OpOutcome], int]:
        """Send the transaction once. Return the replies and the generation of the session that sent it."""
        what = ops[0].path
        while True:
            client, generation = self._link.reach(deadline)
            transaction = client.transaction()
            for op in ops:
                _add(transaction, op, self._full(op.path))
            try:
                results = transaction.commit_async().get(timeout=self._wait_secs)
                return [self._reply(op, result) for op, result in zip(ops, results, strict=True)], generation
            except SessionExpiredError:
                # The transaction was not sent, since the session had ended before.
                if needs_own_session:
                    return [OpOutcome.SESSION_OVER] * len(ops), -1
                time.sleep(MOMENT_SECS)
            except (KazooException, KazooTimeoutError) as error:
                explained = explain(error, what, self._credential)
                lost = isinstance(explained, StoreUnavailable)
                raise (AnswerLost(str(explained)) if lost else explained) from error

    def _reply(self, op: Op, result: Any) -> int | OpOutcome:
        if isinstance(result, Exception):
            for kind, reply in _REPLIES:
                if isinstance(result, kind):
                    return reply
            raise explain(result, op.path, self._credential) from result
        return int(result.version) if op.action is Action.SET else 0

    def _full(self, path: str) -> str:
        return self._root + path


def _trust(credential: StoreCredential | None, tls: bool) -> ssl.SSLContext | None:
    known = credential or StoreCredential()
    if tls:
        return client_context(known.authorities, known.certificate)
    if known.authorities:
        raise StoreError(
            "the credential file names authorities (`ca-file`), so its passwords are not sent without TLS: "
            "write zookeeper+tls:// and the servers' secureClientPort in the store's URL, or remove that line"
        )
    return None


def _add(transaction: Any, op: Op, path: str) -> None:
    match op.action:
        case Action.CREATE:
            transaction.create(path, op.data, ephemeral=op.ephemeral)
        case Action.SET:
            transaction.set_data(path, op.data, op.version)
        case Action.DELETE:
            transaction.delete(path, op.version)
        case Action.CHECK:
            transaction.check(path, op.version)


def store_of_url(parameters: StoreParameters) -> ZookeeperStore:
    """Return the store of ``zookeeper://host:port,…[/root]``, or ``zookeeper+tls://…`` with TLS. Raises StoreError."""
    file = parameters.credential_file
    return ZookeeperStore(
        parameters.url.netloc,
        root=unquote(parameters.url.path),
        session_timeout_secs=parameters.session_timeout_secs,
        credential=None if file is None else read_credential(file),
        tls=parameters.url.scheme == TLS_SCHEME,
    )
