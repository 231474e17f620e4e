"""Who may do what. Default deny: a role has exactly the rights in its row, nobody else has any."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class CallerRole(StrEnum):
    """What a token says of who holds it: its scope."""

    ADMIN = "admin"
    SUBMIT = "submit"
    READ = "read"
    TOPOLOGY = "topology"  # a container of a topology, which has proved that


class Permission(StrEnum):
    """What can be asked for."""

    LOOK = "look"  # list, status, metrics, logs
    CHANGE = "change"  # submit, kill, activate, deactivate, restart
    CODE = "code"  # download a package
    TOKENS = "tokens"  # make, list and revoke tokens


PERMISSIONS: Mapping[CallerRole, frozenset[Permission]] = {
    CallerRole.ADMIN: frozenset({Permission.LOOK, Permission.CHANGE, Permission.CODE, Permission.TOKENS}),
    CallerRole.SUBMIT: frozenset({Permission.LOOK, Permission.CHANGE, Permission.CODE}),
    CallerRole.READ: frozenset({Permission.LOOK}),
    CallerRole.TOPOLOGY: frozenset(
        {Permission.CODE}
    ),  # of its own package, which is checked where the package is known
}
SCOPES = (CallerRole.READ, CallerRole.SUBMIT, CallerRole.ADMIN)  # what a token can be drawn for


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. ``topology_id`` is a container's, ``token`` the name of the token, ``expires`` its end (seconds since
    the epoch); ``user`` is what the client calls its user, which nobody checks."""

    role: CallerRole
    topology_id: str = ""
    user: str = ""
    token: str = ""
    expires: float | None = None

    def may(self, right: Permission) -> bool:
        """True if the role has the right."""
        return right in PERMISSIONS[self.role]

    def __str__(self) -> str:
        name = self.topology_id or ("" if self.token == self.role else self.token)
        return f"{self.role}:{name}" if name else str(self.role)


def parse_bearer_token(header: str) -> str:
    """The token in an Authorization header; "" if it is none."""
    scheme, _, token = header.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def secrets_equal(given: str, expected: str) -> bool:
    """Compare two secrets in a time that tells nothing of where they differ. An empty one is like no other."""
    return bool(expected) and hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


NONCE_SECONDS = 60
MAX_TIME_CHARACTERS = 16  # of the time in a nonce, in hexadecimal
SCHEME = "heronry"


class DownloadNonces:
    """``key`` is random, and of this process alone."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def nonce(self, now_seconds: int, topology_id: str, source: str) -> str:
        """A nonce for this caller, at this moment."""
        return f"{now_seconds:x}.{self._seal(now_seconds, topology_id, source)}"

    def accepts(self, nonce: str, now_seconds: int, topology_id: str, source: str) -> bool:
        """True for a nonce that this caller was given in the last NONCE_SECONDS."""
        given, _, _ = nonce.partition(".")
        if len(given) > MAX_TIME_CHARACTERS:  # a number of more digits cannot be written as text
            return False
        try:
            at = int(given, 16)
        except ValueError:
            return False
        fresh = 0 <= now_seconds - at <= NONCE_SECONDS
        return hmac.compare_digest(nonce.encode(), self.nonce(at, topology_id, source).encode()) and fresh

    def _seal(self, at: int, topology_id: str, source: str) -> str:
        text = "\0".join((str(at), source, topology_id)).encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, text, "sha256").hex()


def parts_of(header: str) -> tuple[str, str]:
    """Nonce and proof in an Authorization header; both empty if it holds none."""
    words = header.split()
    return (words[1], words[2]) if len(words) == 3 and words[0].lower() == SCHEME else ("", "")
