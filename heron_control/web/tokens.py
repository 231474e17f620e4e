"""Stored tokens (name, scope, SHA-256, expiry), the limit on wrong tokens, and counting of repeated refusals.

A generated token has 256 random bits, so its digest reveals nothing and a slow hash is not needed. All digests are
compared in constant time.

A client that is refused again and again causes a few lines a minute in the audit file, and cannot displace other
entries: the first refusal of a kind is recorded, the others of the next minute are counted. The table is bounded, and
further kinds are counted together.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

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
    match = None
    for each in tokens:
        if hmac.compare_digest(shown, each.digest):
            match = each
    return match


def fault_of(token: str, least: int = LEAST_CHARACTERS) -> str:
    """Return why a text is unusable as a token, or ""."""
    if len(token) < least:
        return f"it has fewer than {least} characters"
    if not token.isascii() or not token.isprintable() or " " in token:
        return "it has characters that a header cannot contain"
    return ""


ALLOWED = 20  # number of consecutive wrong tokens that are answered and logged
REFILL_SECONDS = 3.0  # interval after which one more is allowed
MAX_ADDRESSES = 4096


class Throttle:
    """Token bucket per address; the address unseen for longest is dropped first."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # address to (left, as of)

    def wrong(self, address: str, now: float) -> bool:
        """Record a wrong token; return False if there were too many. ``now`` is in seconds."""
        tries, since = self._buckets.pop(address, (float(ALLOWED), now))
        tries = min(float(ALLOWED), tries + (now - since) / REFILL_SECONDS)
        heard = tries >= 1
        self._buckets[address] = (tries - 1 if heard else tries, now)
        while len(self._buckets) > MAX_ADDRESSES:
            self._buckets.popitem(last=False)
        self.check()
        return heard

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self._buckets) <= MAX_ADDRESSES
        assert all(0 <= tries <= ALLOWED for tries, _ in self._buckets.values())


WINDOW_SECONDS = 60.0
MAX_KINDS = 16


class Kind(NamedTuple):
    """Key of equal refusals: client, address and result."""

    who: str
    source: str
    result: int


OTHERS = Kind("various", "various", 0)


class Repeats:
    """Kinds of the last minute. ``now`` is in seconds."""

    def __init__(self) -> None:
        self._kinds: dict[Kind, tuple[float, int]] = {}  # time of the first, number of repeats; in order of time

    def first(self, kind: Kind, now: float) -> bool:
        """Add a refusal; return True to record it, False if it was counted."""
        known = self._kinds.get(kind)
        if known is None and len(self._kinds) < MAX_KINDS:
            self._kinds[kind] = (now, 0)
            return True
        if known is None:
            kind, known = OTHERS, self._kinds.get(OTHERS, (now, 0))
        self._kinds[kind] = (known[0], known[1] + 1)
        self.check()
        return False

    def take(self, now: float = float("inf")) -> list[tuple[Kind, int]]:
        """Return and remove the counts of past minutes."""
        over = {kind: count for kind, (since, count) in self._kinds.items() if now - since >= WINDOW_SECONDS}
        for kind in over:
            del self._kinds[kind]
        return [(kind, count) for kind, count in over.items() if count]

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self._kinds) <= MAX_KINDS + 1
        assert all(count >= 0 for _, count in self._kinds.values())
