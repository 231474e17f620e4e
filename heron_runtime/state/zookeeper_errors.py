"""What ZooKeeper's and kazoo's failures mean in words, with the cure."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence

from kazoo.exceptions import (
    AuthFailedError,
    BadArgumentsError,
    ConnectionClosedError,
    KazooException,
    MarshallingError,
    NoAuthError,
    NoNodeError,
    NotReadOnlyCallError,
    QuotaExceededError,
)

from heron_runtime.state.credential import StoreCredential
from heron_runtime.state.store import StoreError, StoreForbidden, StoreUnavailable
from heron_runtime.state.zookeeper_tls import refusal_of, speaks_tls

PROBE_SECS = 1.0
_GRANTS = "`cluster: user:password` in a file of mode 0400"


def explain(error: Exception, what: str, credential: StoreCredential | None) -> StoreError:
    """The StoreError for ``error``, met while doing ``what``. Whatever may pass by itself is a StoreUnavailable."""
    if isinstance(error, NoAuthError):
        return StoreForbidden(f"{what}: {_not_allowed(credential)}")
    if isinstance(error, AuthFailedError):
        return StoreError(
            f"{what}: the servers refuse digest authentication; see DigestAuthenticationProvider in zoo.cfg"
        )
    if isinstance(error, QuotaExceededError):
        return StoreError(f"{what}: the quota of this path is used up; raise it with setquota in zkCli.sh")
    if isinstance(error, NoNodeError):
        return StoreError(f"{what}: the cluster's root is gone from ZooKeeper; restart this process to make it anew")
    if isinstance(error, (BadArgumentsError, MarshallingError)):
        return StoreError(f"{what}: ZooKeeper does not take this path or value ({type(error).__name__})")
    if isinstance(error, NotReadOnlyCallError):
        return StoreUnavailable(f"{what}: the server has lost its ensemble and only reads")
    if isinstance(error, ConnectionClosedError):
        return StoreUnavailable(f"{what}: the connection was closed")
    name = type(error).__name__ if isinstance(error, KazooException) else str(error) or type(error).__name__
    return StoreUnavailable(f"{what}: the ZooKeeper servers did not answer ({name}); it may have been done or not")


def _not_allowed(credential: StoreCredential | None) -> str:
    if credential is None:
        return f"not allowed without the cluster's credential; name its file ({_GRANTS})"
    user = credential.own.partition(":")[0]
    if credential.read_only:
        return f"not allowed: {user!r} is a reader, or not one that this cluster knows"
    return f"not allowed: the credential of {user!r} is not the one with which this cluster was made"


def unreachable(
    servers: Sequence[tuple[str, int]], wait_secs: float, tls: ssl.SSLContext | None = None
) -> StoreUnavailable:
    """Why no session began: asks each server. Takes up to a second or two for each."""
    found = "; ".join(f"{host}:{port} {_probe(host, port, tls)}" for host, port in servers)
    return StoreUnavailable(
        f"no ZooKeeper server gave a session within {wait_secs:g} s: {found}. "
        "Start the servers (a majority of an ensemble), or correct the store's URL"
    )


def _probe(host: str, port: int, tls: ssl.SSLContext | None) -> str:
    try:
        with socket.create_connection((host, port), PROBE_SECS) as found:
            if tls is None and speaks_tls(found):
                return "speaks TLS: write zookeeper+tls:// in the store's URL"
            trouble = refusal_of(found, host, tls) if tls is not None else ""
            return trouble or "takes connections, but serves no session (no majority of servers, or no ZooKeeper)"
    except socket.gaierror:
        return "is no known host"
    except TimeoutError:
        return "does not answer"
    except OSError as error:
        return f"refuses ({error.strerror or error})"
