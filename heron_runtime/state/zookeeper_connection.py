"""Connection of a ZooKeeper store: kazoo's client, its session, TLS, and the texts of errors.

* Reads wait for a connection and are repeated when it breaks, up to `wait_secs` in all. A `sync` precedes each in the
  same batch, so that it sees all that was committed before, even on a follower that lags: a container that starts
  because of a submission finds that submission.
* SUSPENDED lasts until a server answers, and only a server ends a session (LOST): while all servers are down, sessions
  continue. kazoo begins the next session automatically. The state stays LOST until the next operation, so that the
  owner reacts to the loss before it owns new nodes.

A digest credential is a password that is sent to the server, so with `zookeeper+tls://` the server must prove its
identity first. The client trusts the authorities of its credential file (`ca-file`), or those of the operating system
if the file names none, and the name in the certificate must be that in the URL of the store. This cannot be turned off,
and a credential that names authorities is never sent without TLS.

Only errors in kazoo's own log are kept. Its debug lines contain credentials, and it warns of every attempt to connect,
which the state of the session reports once.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadArgumentsError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    MarshallingError,
    NoAuthError,
    NoNodeError,
    NotReadOnlyCallError,
    QuotaExceededError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.hosts import collect_hosts
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry

from heron_runtime.state.credential import StoreCredential
from heron_runtime.state.store import SessionState, StoreError, StoreForbidden, StoreUnavailable
from heron_runtime.state.zookeeper_acl import done, prepare_root, rights

HANDSHAKE_SECS = 5.0
VERDICT_SECS = 1.0
TLS_SCHEME = "zookeeper+tls"
_EXPIRED, _OTHER_NAME = 10, (62, 64)  # OpenSSL's X509_V_ERR_…: a name, an address


def client_context(authorities: str, certificate: str) -> ssl.SSLContext:
    """Create the TLS context for connections to servers.

    Args:
        authorities: Trusted authorities in PEM, or "" for those of the operating system.
        certificate: Client certificate and its key in PEM for servers that require one, or "".

    Raises:
        StoreError: A certificate is invalid.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # it verifies certificate and name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if authorities:
            context.load_verify_locations(cadata=authorities)
        else:
            context.load_default_certs()
        if certificate:
            _load(context, certificate.encode())
    except (ssl.SSLError, ValueError) as error:
        raise StoreError(
            f"the certificates that the credential file of the state store names cannot be read ({error}). "
            "`ca-file` holds certificates in PEM, `client-file` a certificate and its key, without a password"
        ) from error
    return context


def _load(context: ssl.SSLContext, certificate: bytes) -> None:
    """Load key and certificate from a private file in memory, since OpenSSL takes them from files only."""
    with os.fdopen(os.memfd_create("client", os.MFD_CLOEXEC), "wb") as file:
        file.write(certificate)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")


def speaks_tls(connection: socket.socket) -> bool:
    """Return True if a server answers a TLS handshake. Its certificate is not verified, since no data is sent to it."""
    connection.settimeout(HANDSHAKE_SECS)
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    try:
        with anybody.wrap_socket(connection):
            return True
    except OSError:
        return False


def refusal_of(connection: socket.socket, host: str, context: ssl.SSLContext) -> str:
    """Return the reason why a handshake with a server fails and the remedy, or "" if it succeeds."""
    connection.settimeout(HANDSHAKE_SECS)
    try:
        with context.wrap_socket(connection, server_hostname=host) as made:
            made.settimeout(VERDICT_SECS)
            with contextlib.suppress(TimeoutError):
                made.recv(1)  # a server refuses the client after the handshake, and otherwise waits for a message
            return ""
    except ssl.SSLCertVerificationError as error:
        return _not_believed(error)
    except TimeoutError:
        return f"accepts connections, but does not answer in TLS within {HANDSHAKE_SECS:g} s: it hangs or is overloaded"
    except OSError as error:
        if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
            return f"refuses TLS ({error.reason}): if it requires a certificate, name one as `client-file`"
        return "does not use TLS: write its secureClientPort in the store's URL (or, to go without TLS, zookeeper://)"


def _not_believed(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code == _EXPIRED:
        return "shows a certificate that has expired: give the server a new one, and restart it"
    if error.verify_code in _OTHER_NAME:
        return f"shows a certificate for another name ({error.verify_message}): write its own in the store's URL"
    return (
        f"shows a certificate signed by an unknown authority ({error.verify_message}): it is not the cluster's server, "
        "or `ca-file` in the credential file does not hold the authority that signed its certificate"
    )


PROBE_SECS = 1.0
_GRANTS = "`cluster: user:password` in a file of mode 0400"


def explain(error: Exception, what: str, credential: StoreCredential | None) -> StoreError:
    """Return the StoreError for an error of kazoo. Temporary errors become StoreUnavailable.

    Args:
        error: The error.
        what: Path or operation, for the message.
        credential: Credential of the client.
    """
    if isinstance(error, NoAuthError):
        return StoreForbidden(f"{what}: {_not_allowed(credential)}")
    if isinstance(error, AuthFailedError):
        return StoreError(
            f"{what}: the servers refuse digest authentication; see DigestAuthenticationProvider in zoo.cfg"
        )
    if isinstance(error, QuotaExceededError):
        return StoreError(f"{what}: the quota of this path is used up; raise it with setquota in zkCli.sh")
    if isinstance(error, NoNodeError):
        return StoreError(f"{what}: the cluster's root is missing in ZooKeeper; restart this process to create it")
    if isinstance(error, (BadArgumentsError, MarshallingError)):
        return StoreError(f"{what}: ZooKeeper rejects this path or value ({type(error).__name__})")
    if isinstance(error, NotReadOnlyCallError):
        return StoreUnavailable(f"{what}: the server lost its ensemble and is read-only")
    if isinstance(error, ConnectionClosedError):
        return StoreUnavailable(f"{what}: the connection was closed")
    name = type(error).__name__ if isinstance(error, KazooException) else str(error) or type(error).__name__
    return StoreUnavailable(f"{what}: the ZooKeeper servers did not answer ({name}); it may have been done or not")


def _not_allowed(credential: StoreCredential | None) -> str:
    if credential is None:
        return f"not allowed without the cluster's credential; name its file ({_GRANTS})"
    user = credential.own.partition(":")[0]
    if credential.read_only:
        return f"not allowed: {user!r} is a reader, or unknown to this cluster"
    return f"not allowed: the credential of {user!r} differs from the one that created this cluster"


def unreachable(
    servers: Sequence[tuple[str, int]], wait_secs: float, tls: ssl.SSLContext | None = None
) -> StoreUnavailable:
    """Return the error for a session that did not begin. Probes each server, which takes up to two seconds each."""
    results = "; ".join(f"{host}:{port} {_probe(host, port, tls)}" for host, port in servers)
    return StoreUnavailable(
        f"no ZooKeeper server gave a session within {wait_secs:g} s: {results}. "
        "Start the servers (a majority of an ensemble), or correct the store's URL"
    )


def _probe(host: str, port: int, tls: ssl.SSLContext | None) -> str:
    try:
        with socket.create_connection((host, port), PROBE_SECS) as connection:
            if tls is None and speaks_tls(connection):
                return "requires TLS: write zookeeper+tls:// in the store's URL"
            trouble = refusal_of(connection, host, tls) if tls is not None else ""
            return trouble or "accepts connections, but no sessions (no majority of servers, or no ZooKeeper)"
    except socket.gaierror:
        return "is an unknown host"
    except TimeoutError:
        return "does not answer"
    except OSError as error:
        return f"refuses ({error.strerror or error})"


LONGEST_RETRY_SECS = 1.0
RETRIES_IN_SESSION = 10  # servers that come back find every client before its session ends
MOMENT_SECS = 0.01

log = logging.getLogger(__name__)
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.ERROR)


class Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Handler of kazoo with a shorter connect timeout, so that one dead server does not end the session.

    It uses its own TLS context, since kazoo's reads authorities from files only and accepts any name.
    """

    def __init__(self, connect_secs: float, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._connect_secs = connect_secs
        self._tls = tls

    def create_connection(self, *arguments: Any, **options: Any) -> Any:
        """Connect like kazoo, but with the timeout and TLS context of this handler."""
        made = super().create_connection(*arguments, **{**options, "timeout": self._connect_secs})
        if self._tls is None:
            return made
        try:
            return self._tls.wrap_socket(made, server_hostname=options["hostname"])
        except BaseException:
            made.close()
            raise

    def select(self, readers: Sequence[Any], writers: Sequence[Any], others: Sequence[Any], timeout: Any = None) -> Any:
        """Select like kazoo, but also report sockets as readable if TLS has already taken bytes from them."""
        waiting = [one for one in readers if isinstance(one, ssl.SSLSocket) and one.pending()]
        if not waiting:
            return super().select(readers, writers, others, timeout)
        ready, *rest = super().select(readers, writers, others, 0)
        return (waiting + [one for one in ready if one not in waiting], *rest)


class ZookeeperConnection:
    """Connection to the ZooKeeper servers, and its session.

    ``tell`` is called with each new state of the session, and ``came`` after each connect. Neither may block.
    """

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
        self._current: KazooClient | None = None  # the same, also while it is opened and closed
        self._state = SessionState.CONNECTED
        self._generation = 0  # number of lost sessions
        self._reachable = threading.Event()

    @property
    def is_open(self) -> bool:
        """Return True from ``open`` to ``close``."""
        return self._client is not None

    @property
    def state(self) -> SessionState:
        """Current state of the session."""
        with self._lock:
            return self._state

    def client(self) -> KazooClient:
        """Return the client of kazoo. Raises StoreUnavailable if the store is not open."""
        client = self._client
        if client is None:
            raise StoreUnavailable("the state store is not open")
        return client

    def open(self) -> None:
        """Begin a session, and create the root if it is missing. Raises StoreUnavailable, StoreError."""
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
        client.start_async()  # its ``start`` gives up if a connection breaks right after it was established
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
        """Prepare the root. If the connection breaks, repeat until the deadline, since all steps are idempotent."""
        while True:
            try:
                done(client.sync_async("/"))
                return prepare_root(client, self.root, self.credential)
            except (ConnectionLoss, SessionExpiredError):
                if time.monotonic() >= deadline:
                    raise
                time.sleep(MOMENT_SECS)  # kazoo refuses requests at once until it has reported the loss
                self._reachable.wait(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """End the session. Idempotent."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            _end(client)

    def reach(self, deadline: float) -> tuple[KazooClient, int]:
        """Wait for a connection. Return the client and the session's generation. Raises StoreUnavailable."""
        client = self.client()
        if not self._reachable.wait(max(0.0, deadline - time.monotonic())):
            raise StoreUnavailable(f"no ZooKeeper server of {self.hosts} answers; retrying")
        with self._lock:
            return client, self._generation

    def ask(
        self,
        paths: str | Sequence[str],
        questions: Callable[[KazooClient], Sequence[Any]],
        usual: type[Exception] | tuple[type[Exception], ...] = NoNodeError,
        wait_secs: float | None = None,
    ) -> list[Any]:
        """Send idempotent requests after a sync, and return their answers.

        Args:
            paths: Path for messages of errors: one for all requests, or one for each.
            questions: Sends the requests. May be called repeatedly.
            usual: Expected errors, for which the answer is None.
            wait_secs: Longest wait for a connection. 0 also means a single attempt.

        Raises:
            StoreError: A request failed.
        """
        path = paths if isinstance(paths, str) else (*paths, self.root)[0]
        named = itertools.repeat(paths) if isinstance(paths, str) else (path, *paths)  # the first for the sync
        deadline = time.monotonic() + (self.wait_secs if wait_secs is None else wait_secs)
        while True:
            client, generation = self.reach(deadline)
            answers: list[Any] = []
            try:
                requests = [client.sync_async(self.root), *questions(client)]
                for path, question in zip(named, requests, strict=False):  # noqa: B007  # read where it fails
                    answers.append(_answer(question, usual, self.wait_secs))
            except (ConnectionLoss, SessionExpiredError) as error:
                if time.monotonic() >= deadline:
                    raise explain(error, path, self.credential) from error
                time.sleep(MOMENT_SECS)  # kazoo refuses requests at once until it has reported the loss
            except (KazooException, KazooTimeoutError) as error:
                raise explain(error, path, self.credential) from error
            else:
                self.answered(generation)
                return answers[1:]

    def answered(self, generation: int) -> None:
        """Record a success. After a lost session, the first success in the new session makes the state CONNECTED."""
        with self._lock:
            if self._state is SessionState.LOST and generation == self._generation and self._reachable.is_set():
                self._become(SessionState.CONNECTED)

    # -- events of kazoo, on its thread, which must not block --------------------------------------------------------

    def _heard(self, client: KazooClient, state: str) -> None:
        with self._lock:
            if client is not self._current:
                return  # an earlier client, whose thread ends late
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
                    self._later(self._revive)  # kazoo gives up after an answer that it does not understand
            elif self._state is SessionState.CONNECTED:
                self._become(SessionState.SUSPENDED)

    def _revive(self) -> None:
        client = self._client
        if client is not None:
            log.warning("the connection to ZooKeeper was lost; reconnecting")
            time.sleep(LONGEST_RETRY_SECS)
            client.stop()
            client.start_async()

    def _become(self, state: SessionState) -> None:
        if self._state is not state:
            self._state = state
            log.info("ZooKeeper session: %s", state.value)
            self._tell(state)


def _answer(request: Any, usual: type[Exception] | tuple[type[Exception], ...], timeout_secs: float) -> Any:
    try:
        return request.get(timeout=timeout_secs)
    except usual:
        return None


def _end(client: KazooClient) -> None:
    """End the session and free all resources, in any state of the client."""
    try:
        client.stop()
        client.close()
    except Exception as error:  # kazoo's thread hangs in a connection attempt; it ends with the process
        log.warning("closing the connection to ZooKeeper: %r", error)


def _servers(hosts: str) -> list[tuple[str, int]]:
    if "@" in hosts:
        raise StoreError("a store URL must not contain a user or password; use a credential file")
    try:
        servers, _ = collect_hosts(hosts)
    except ValueError:
        servers = []
    if not servers or not all(host for host, _ in servers):
        raise StoreError(f"{hosts!r} names no ZooKeeper servers; write zookeeper://host:2181,other:2181/root")
    return [(str(host), int(port)) for host, port in servers]
