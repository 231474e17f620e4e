"""Who may do what. Default deny: a role has exactly the rights in its row, nobody else has any."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a token says of who holds it: its scope."""

    ADMIN = "admin"
    SUBMIT = "submit"
    READ = "read"
    TOPOLOGY = "topology"  # a container of a topology, which has proved that


class Right(StrEnum):
    """What can be asked for."""

    LOOK = "look"  # list, status, metrics, logs
    CHANGE = "change"  # submit, kill, activate, deactivate, restart
    CODE = "code"  # download a package
    TOKENS = "tokens"  # make, list and revoke tokens


RIGHTS: Mapping[Role, frozenset[Right]] = {
    Role.ADMIN: frozenset({Right.LOOK, Right.CHANGE, Right.CODE, Right.TOKENS}),
    Role.SUBMIT: frozenset({Right.LOOK, Right.CHANGE, Right.CODE}),
    Role.READ: frozenset({Right.LOOK}),
    Role.TOPOLOGY: frozenset({Right.CODE}),  # of its own package, which is checked where the package is known
}
SCOPES = (Role.READ, Role.SUBMIT, Role.ADMIN)  # what a token can be drawn for


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. ``topology_id`` is a container's, ``token`` the name of the token, ``expires`` its end (seconds since
    the epoch); ``user`` is what the client calls its user, which nobody checks."""

    role: Role
    topology_id: str = ""
    user: str = ""
    token: str = ""
    expires: float | None = None

    def may(self, right: Right) -> bool:
        """True if the role has the right."""
        return right in RIGHTS[self.role]

    def __str__(self) -> str:
        name = self.topology_id or ("" if self.token == self.role else self.token)
        return f"{self.role}:{name}" if name else str(self.role)


def bearer(header: str) -> str:
    """The token in an Authorization header; "" if it is none."""
    scheme, _, token = header.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def same(given: str, expected: str) -> bool:
    """Compare two secrets in a time that tells nothing of where they differ. An empty one is like no other."""
    return bool(expected) and hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())
