"""Tokens as they are kept: a name, a scope, the SHA-256 of the token, and until when it holds.

A token that we draw has 256 random bits, so its digest tells nothing of it and a slow hash would guard nothing. Every
digest is compared whole, whichever fits.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

LEAST_CHARACTERS = 16  # of one that somebody else has drawn
RANDOM_BYTES = 32
DIGEST_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class Token:
    """What is known of a token. ``expires``: seconds since the epoch, None for never."""

    name: str
    scope: str
    digest: str
    expires: float | None = None

    def expired(self, now: float) -> bool:
        """True if it holds no longer."""
        return self.expires is not None and now >= self.expires


def draw() -> str:
    """A new token."""
    return secrets.token_urlsafe(RANDOM_BYTES)


def digest_of(token: str) -> str:
    """Its SHA-256, in hex."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def known(token: str, tokens: Iterable[Token]) -> Token | None:
    """The one that was shown, expired or not; None for a stranger's."""
    shown = digest_of(token)
    found = None
    for each in tokens:
        if hmac.compare_digest(shown, each.digest):
            found = each
    return found


def fault_of(token: str, least: int = LEAST_CHARACTERS) -> str:
    """Why this can be no token; "" if it can."""
    if len(token) < least:
        return f"it has fewer than {least} characters"
    if not token.isascii() or not token.isprintable() or " " in token:
        return "it has other characters than a header takes"
    return ""
