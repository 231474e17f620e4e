"""The connection of a ZooKeeper store: kazoo's client, the state of its session, and questions that may be repeated.

* Readings wait for a connection and are repeated when it breaks, for ``wait_secs`` in all. Each is preceded by a
  ``sync`` in the same breath, so it sees what anybody had committed before it began, even on a follower that lags: a
  container that starts because of a submission finds that submission.
* SUSPENDED lasts until a server answers, and only a server says that a session is over (LOST): while all servers are
  down no session ends. kazoo begins the next session by itself; the state stays LOST until the next operation, so that
  the owner acts on the loss before it owns anything new.

kazoo's own log is cut to what nobody expects: its debug lines hold credentials, and its warnings of every attempt to
connect say what the session's state says once.
"""

from __future__ import annotations

import itertools
import logging
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionLoss,
    KazooException,
    NoNodeError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.hosts import collect_hosts
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry

from heron_runtime.state.credential import StoreCredential
from heron_runtime.state.store import SessionState, StoreError, StoreUnavailable
from heron_runtime.state.zookeeper_errors import explain, unreachable
from heron_runtime.state.zookeeper_root import done, prepare_root, rights

LONGEST_RETRY_SECS = 1.0
RETRIES_IN_SESSION = 10  # servers that come back find every client before its session ends
MOMENT_SECS = 0.01

log = logging.getLogger(__name__)
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.ERROR)


class Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Tries each server for a part of the session only, so that one dead machine does not cost the session.

    With TLS by our own context: kazoo's takes authorities from files only, and any name.
    """

    def __init__(self, connect_secs: float, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._connect_secs = connect_secs
        self._tls = tls

    def create_connection(self, *arguments: Any, **options: Any) -> Any:
        """As kazoo's, but with our time limit and our TLS."""
        made = super().create_connection(*arguments, **{**options, "timeout": self._connect_secs})
        if self._tls is None:
            return made
        try:
            return self._tls.wrap_socket(made, server_hostname=options["hostname"])
        except BaseException:
            made.close()
            raise

    def select(self, readers: Sequence[Any], writers: Sequence[Any], others: Sequence[Any], timeout: Any = None) -> Any:
        """As kazoo's, but what TLS has already taken from a socket is there to be read, too."""
        waiting = [one for one in readers if isinstance(one, ssl.SSLSocket) and one.pending()]
        if not waiting:
            return super().select(readers, writers, others, timeout)
        ready, *rest = super().select(readers, writers, others, 0)
        return (waiting + [one for one in ready if one not in waiting], *rest)


class Connection:
    """``tell`` is called with each new state of the session, ``came`` after each connect; neither may wait."""

    def __init__(
        self,
        hosts: str,
        root: str,
        credential: StoreCredential | None,
        *,
        session_timeout_secs: float,
        wait_secs: float,
        tls: ssl.SSLContext | None,
        tell: Callable[[SessionState], None],
        came: Callable[[], None],
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        self.hosts = hosts
        self.root = root
        self.credential = credential
        self.wait_secs = wait_secs
        self._tls = tls
        self._servers = _servers(hosts)
        self._session_timeout_secs = session_timeout_secs
        self._longest_retry_secs = min(LONGEST_RETRY_SECS, session_timeout_secs / RETRIES_IN_SESSION)
        self._tell, self._came, self._later = tell, came, later
        self._lock = threading.RLock()  # guards everything below
        self._client: KazooClient | None = None  # None: not open
        self._current: KazooClient | None = None  # the same, and while it is opened and closed
        self._state = SessionState.CONNECTED
        self._generation = 0  # one more with each session that was lost
        self._reachable = threading.Event()

    @property
    def is_open(self) -> bool:
        """True from ``open`` to ``close``."""
        return self._client is not None

    @property
    def state(self) -> SessionState:
        """The session's state now."""
        with self._lock:
            return self._state

    def client(self) -> KazooClient:
        """kazoo's client. Raises StoreUnavailable if the store is not open."""
        client = self._client
        if client is None:
            raise StoreUnavailable("the state store is not open yet, or not any more")
        return client

    def open(self) -> None:
        """Begin a session, and make the root where it is missing. Raises StoreUnavailable, StoreError."""
        credential = self.credential
        client = KazooClient(
            hosts=self.hosts,
            timeout=self._session_timeout_secs,
            handler=Handler(max(0.5, self._session_timeout_secs / 3), self._tls),
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, max_delay=self._longest_retry_secs),
            auth_data=[("digest", shown) for shown in credential.shown] if credential else [],
            default_acl=None if credential is None or credential.read_only else rights(credential),
            logger=_kazoo_log,
        )
        with self._lock:
            self._state = SessionState.CONNECTED
            self._reachable.clear()
            self._current = client
        client.add_listener(lambda state: self._heard(client, state))
        deadline = time.monotonic() + self.wait_secs
        client.start_async()  # its ``start`` gives up when a connection breaks right after it was made
        if not self._reachable.wait(self.wait_secs):
            _end(client)
            raise unreachable(self._servers, self.wait_secs, self._tls)
        try:
            self._prepare(client, deadline)
        except (KazooException, KazooTimeoutError) as error:
            _end(client)
            raise explain(error, self.root, credential) from error
        except BaseException:
            _end(client)
            raise
        with self._lock:
            self._client = client

    def _prepare(self, client: KazooClient, deadline: float) -> None:
        """The root, once a connection lasts that long: what is asked may be asked again, so a loss begins it anew."""
        while True:
            try:
                done(client.sync_async("/"))
                return prepare_root(client, self.root, self.credential)
            except (ConnectionLoss, SessionExpiredError):
                if time.monotonic() >= deadline:
                    raise
                time.sleep(MOMENT_SECS)  # until kazoo has told of the loss, it refuses at once
                self._reachable.wait(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """End the session. Idempotent."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            _end(client)

    def reach(self, deadline: float) -> tuple[KazooClient, int]:
        """The client when it has a connection, and the session's generation. Raises StoreUnavailable."""
        client = self.client()
        if not self._reachable.wait(max(0.0, deadline - time.monotonic())):
            raise StoreUnavailable(f"no ZooKeeper server of {self.hosts} answers; it is tried again and again")
        with self._lock:
            return client, self._generation

    def ask(
        self,
        paths: str | Sequence[str],
        questions: Callable[[KazooClient], Sequence[Any]],
        usual: type[Exception] | tuple[type[Exception], ...] = NoNodeError,
        wait_secs: float | None = None,
    ) -> list[Any]:
        """The answers to ``questions``, which may be sent repeatedly, after a sync; None for the ``usual`` refusal.

        An error names the path of its question; ``paths`` is one for all of them, or one for each. Waits at most
        ``wait_secs`` for a connection; 0 also means: no second try. Raises StoreError.
        """
        path = paths if isinstance(paths, str) else (*paths, self.root)[0]
        named = itertools.repeat(paths) if isinstance(paths, str) else (path, *paths)  # the first for the sync
        deadline = time.monotonic() + (self.wait_secs if wait_secs is None else wait_secs)
        while True:
            client, generation = self.reach(deadline)
            answers: list[Any] = []
            try:
                asked = [client.sync_async(self.root), *questions(client)]
                for path, question in zip(named, asked, strict=False):  # noqa: B007  # read where it fails
                    answers.append(_answer(question, usual, self.wait_secs))
            except (ConnectionLoss, SessionExpiredError) as error:
                if time.monotonic() >= deadline:
                    raise explain(error, path, self.credential) from error
                time.sleep(MOMENT_SECS)  # until kazoo has told of the loss, it refuses at once
            except (KazooException, KazooTimeoutError) as error:
                raise explain(error, path, self.credential) from error
            else:
                self.answered(generation)
                return answers[1:]

    def answered(self, generation: int) -> None:
        """An operation succeeded: if a session was lost before it, this is the new one's first."""
        with self._lock:
            if self._state is SessionState.LOST and generation == self._generation and self._reachable.is_set():
                self._become(SessionState.CONNECTED)

    # -- what kazoo tells, on its thread, which must not wait --------------------------------------------------------

    def _heard(self, client: KazooClient, state: str) -> None:
        with self._lock:
            if client is not self._current:
                return  # an earlier one, whose thread ends late
            if state == KazooState.CONNECTED:
                self._reachable.set()
                if self._state is SessionState.SUSPENDED:
                    self._become(SessionState.CONNECTED)
                self._came()
                return
            self._reachable.clear()
            if state == KazooState.LOST:
                self._generation += 1
            if self._client is None:
                return
            if state == KazooState.LOST:
                self._become(SessionState.LOST)
                if self._client.client_state in (KeeperState.CLOSED, KeeperState.AUTH_FAILED):
                    self._later(self._revive)  # kazoo gave up, which it does on what it does not understand
            elif self._state is SessionState.CONNECTED:
                self._become(SessionState.SUSPENDED)

    def _revive(self) -> None:
        client = self._client
        if client is not None:
            log.warning("the connection to ZooKeeper broke down; beginning another")
            time.sleep(LONGEST_RETRY_SECS)
            client.stop()
            client.start_async()

    def _become(self, state: SessionState) -> None:
        if self._state is not state:
            self._state = state
            log.info("ZooKeeper session: %s", state.value)
            self._tell(state)


def _answer(asked: Any, usual: type[Exception] | tuple[type[Exception], ...], timeout_secs: float) -> Any:
    try:
        return asked.get(timeout=timeout_secs)
    except usual:
        return None


def _end(client: KazooClient) -> None:
    """End the session and free everything, whatever state it is in."""
    try:
        client.stop()
        client.close()
    except Exception as error:  # kazoo's thread hangs in a connection attempt; it ends with the process
        log.warning("closing the connection to ZooKeeper: %r", error)


def _servers(hosts: str) -> list[tuple[str, int]]:
    if "@" in hosts:
        raise StoreError("a store's URL holds no user and no password; name a credential file beside it")
    try:
        servers, _ = collect_hosts(hosts)
    except ValueError:
        servers = []
    if not servers or not all(host for host, _ in servers):
        raise StoreError(f"{hosts!r} names no ZooKeeper servers; write zookeeper://host:2181,other:2181/root")
    return [(str(host), int(port)) for host, port in servers]
