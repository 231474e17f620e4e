"""Stored tokens: name, scope, SHA-256 of the token, and expiry.

A generated token has 256 random bits, so its digest reveals nothing and a slow hash is not needed. All digests are
compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

LEAST_CHARACTERS = 16  # minimum length of a token that was generated elsewhere
RANDOM_BYTES = 32
DIGEST_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class Token:
    """Stored token. ``expires`` is in seconds since 1970, None for never."""

    name: str
    scope: str
    digest: str
    expires: float | None = None

    def expired(self, now: float) -> bool:
        """Return True if the token has expired."""
        return self.expires is not None and now >= self.expires


def draw() -> str:
    """Return a new token."""
    return secrets.token_urlsafe(RANDOM_BYTES)


def digest_of(token: str) -> str:
    """Return the SHA-256 of a token in hex."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def find_token(token: str, tokens: Iterable[Token]) -> Token | None:
    """Return the stored token, expired or not, or None if it is unknown."""
    shown = digest_of(token)
    found = None
    for each in tokens:
        if hmac.compare_digest(shown, each.digest):
            found = each
    return found


def fault_of(token: str, least: int = LEAST_CHARACTERS) -> str:
    """Return why a text is unusable as a token, or ""."""
    if len(token) < least:
        return f"it has fewer than {least} characters"
    if not token.isascii() or not token.isprintable() or " " in token:
        return "it has characters that a header cannot contain"
    return ""
