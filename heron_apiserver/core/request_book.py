"""What was answered to which request id, so that a request that is sent again is not done again.

A client that lost the answer sends the same request with the same id. While the first is under way the second is told
so; once it has succeeded, the second gets the same answer. A failure is forgotten: it left nothing behind, so the same
id may try again. One id with another request is a fault of the client.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAX_ENTRIES = 1000
MAX_AGE_SECONDS = 24 * 3600.0
MAX_ID_CHARACTERS = 128


@dataclass(frozen=True, slots=True)
class Entry:
    """One request. ``answer`` is None while it is under way. ``at`` is when it began (seconds since 1970)."""

    request_id: str
    fingerprint: str
    topology: str
    topology_id: str
    at: float
    answer: str | None = None


class Mismatch(ValueError):
    """The id was used for another request."""


class UnderWay(Exception):
    """The same request is being done at this moment."""


class RequestBook:
    """The entries, oldest first."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        by_age = sorted(entries, key=lambda entry: entry.at)
        self._entries: OrderedDict[str, Entry] = OrderedDict((entry.request_id, entry) for entry in by_age)

    def begin(self, entry: Entry) -> str | None:
        """The answer if this was done before; None if it is to be done now. Raises Mismatch, UnderWay."""
        known = self._entries.get(entry.request_id)
        if known is None:
            self._entries[entry.request_id] = entry
            return None
        if known.fingerprint != entry.fingerprint:
            raise Mismatch(f"request id {entry.request_id!r} belongs to another request; draw a new one for each")
        if known.answer is None:
            raise UnderWay(f"request {entry.request_id!r} is being done at this moment")
        return known.answer

    def succeeded(self, entry: Entry) -> None:
        """Remember the answer."""
        self._entries[entry.request_id] = entry
        self.check()

    def failed(self, request_id: str) -> None:
        """Forget it."""
        self._entries.pop(request_id, None)

    def expire(self, now: float) -> list[str]:
        """Forget what is too old or too much, but nothing that is under way; returns the ids."""
        done = [e for e in self._entries.values() if e.answer is not None]
        over = max(0, len(done) - MAX_ENTRIES)
        gone = [e.request_id for number, e in enumerate(done) if number < over or now - e.at > MAX_AGE_SECONDS]
        for request_id in gone:
            del self._entries[request_id]
        return gone

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def check(self) -> None:
        """Assert what always holds."""
        assert all(request_id == entry.request_id for request_id, entry in self._entries.items())


def is_request_id(text: str) -> bool:
    """True for one that may stand in logs and files."""
    return 0 < len(text) <= MAX_ID_CHARACTERS and text.isascii() and text.isprintable()
