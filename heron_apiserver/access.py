"""Roles, permissions and download nonces of the API server.

Access is denied by default: a role has the permissions in its row of ``PERMISSIONS`` and no others.

A container proves that it belongs to a topology without sending the topology's secret. It sends the topology's id
and receives a nonce. It then repeats the request with a proof of the secret over the nonce, the topology and the
requested package (``heron_runtime.net.handshake.prove_download``). The nonce carries its time and its recipient,
sealed with a key of this process, so the server keeps no state for callers that never come back, and a recorded
proof is useless later or from another address. The container recognizes the right server by the package, whose
digest it knows.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class CallerRole(StrEnum):
    """Role of a caller: the scope of its token, or a container of a topology."""

    ADMIN = "admin"
    SUBMIT = "submit"
    READ = "read"
    TOPOLOGY = "topology"  # a container that proved its topology


class Permission(StrEnum):
    """Kind of operation that a path requires permission for."""

    LOOK = "look"  # list, status, metrics, logs
    CHANGE = "change"  # submit, kill, activate, deactivate, restart
    CODE = "code"  # download a package
    TOKENS = "tokens"  # create, list and revoke tokens


PERMISSIONS: Mapping[CallerRole, frozenset[Permission]] = {
    CallerRole.ADMIN: frozenset({Permission.LOOK, Permission.CHANGE, Permission.CODE, Permission.TOKENS}),
    CallerRole.SUBMIT: frozenset({Permission.LOOK, Permission.CHANGE, Permission.CODE}),
    CallerRole.READ: frozenset({Permission.LOOK}),
    CallerRole.TOPOLOGY: frozenset({Permission.CODE}),  # its own package only, checked in the route
}
SCOPES = (CallerRole.READ, CallerRole.SUBMIT, CallerRole.ADMIN)  # scopes of tokens


@dataclass(frozen=True, slots=True)
class Caller:
    """Authenticated sender of a request.

    Attributes:
        role: scope of the token, or ``TOPOLOGY`` for a container.
        topology_id: topology of a container.
        user: user name as stated by the client, not verified.
        token: name of the token.
        expires: end of the token in seconds since the epoch.
    """

    role: CallerRole
    topology_id: str = ""
    user: str = ""
    token: str = ""
    expires: float | None = None

    def has_permission(self, permission: Permission) -> bool:
        """Return True if the role has the permission."""
        return permission in PERMISSIONS[self.role]

    def __str__(self) -> str:
        name = self.topology_id or ("" if self.token == self.role else self.token)
        return f"{self.role}:{name}" if name else str(self.role)


def parse_bearer_token(header: str) -> str:
    """Return the bearer token of an Authorization header, or an empty string."""
    scheme, _, token = header.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def secrets_equal(given: str, expected: str) -> bool:
    """Compare two secrets in constant time. An empty expected secret equals nothing."""
    return bool(expected) and hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


NONCE_SECONDS = 60
MAX_TIME_CHARACTERS = 16  # of the time in a nonce, in hexadecimal
SCHEME = "heronry"


class DownloadNonces:
    """Creates and checks nonces for package downloads.

    Args:
        key: random key of this process.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def create(self, now_seconds: int, topology_id: str, source: str) -> str:
        """Return a nonce for this topology and client address at this time."""
        return f"{now_seconds:x}.{self._seal(now_seconds, topology_id, source)}"

    def accepts(self, nonce: str, now_seconds: int, topology_id: str, source: str) -> bool:
        """Return True if the nonce was issued to this caller within the last ``NONCE_SECONDS``."""
        given, _, _ = nonce.partition(".")
        if len(given) > MAX_TIME_CHARACTERS:  # int() refuses longer numbers
            return False
        try:
            at = int(given, 16)
        except ValueError:
            return False
        fresh = 0 <= now_seconds - at <= NONCE_SECONDS
        return hmac.compare_digest(nonce.encode(), self.create(at, topology_id, source).encode()) and fresh

    def _seal(self, at: int, topology_id: str, source: str) -> str:
        text = "\0".join((str(at), source, topology_id)).encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, text, "sha256").hex()


def parse_proof_header(header: str) -> tuple[str, str]:
    """Return nonce and proof of an Authorization header, or two empty strings."""
    words = header.split()
    return (words[1], words[2]) if len(words) == 3 and words[0].lower() == SCHEME else ("", "")
