"""Answers by request id, on disk, so that a repeated request is not executed twice.

A client that lost the answer sends the same request with the same id. While the first one is in progress the second
one is told so; after it succeeded, the second one receives the same answer. A failed request is forgotten, because
it left nothing behind, so the same id may be used again. One id with two different requests is an error of the
client.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from heron_runtime.files import replace_file

MAX_ENTRIES = 1000
MAX_AGE_SECONDS = 24 * 3600.0
MAX_ID_CHARACTERS = 128


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request.

    Attributes:
        at: start in seconds since 1970.
        answer: None while the request is in progress.
    """

    request_id: str
    fingerprint: str
    topology: str
    topology_id: str
    at: float
    answer: str | None = None


class RequestIdReused(ValueError):
    """The request id was used for another request."""


class RequestInProgress(Exception):
    """The same request is in progress."""


class RequestTable:
    """Records of requests in memory, oldest first."""

    def __init__(self, entries: Iterable[RequestRecord] = ()) -> None:
        by_age = sorted(entries, key=lambda entry: entry.at)
        self._entries: OrderedDict[str, RequestRecord] = OrderedDict((entry.request_id, entry) for entry in by_age)

    def begin(self, entry: RequestRecord) -> str | None:
        """Return the answer of an earlier request with this id, or None after adding the record.

        Raises:
            RequestIdReused: the id belongs to another request.
            RequestInProgress: the same request has not finished yet.
        """
        known = self._entries.get(entry.request_id)
        if known is None:
            self._entries[entry.request_id] = entry
            return None
        if known.fingerprint != entry.fingerprint:
            raise RequestIdReused(
                f"request id {entry.request_id!r} was used for another request; use a new one for each"
            )
        if known.answer is None:
            raise RequestInProgress(f"request {entry.request_id!r} is in progress")
        return known.answer

    def succeeded(self, entry: RequestRecord) -> None:
        """Store the answer of a request."""
        self._entries[entry.request_id] = entry
        self.check()

    def failed(self, request_id: str) -> None:
        """Forget a failed request."""
        self._entries.pop(request_id, None)

    def expire(self, now: float) -> list[str]:
        """Forget finished requests that are too old or too many, and return their ids."""
        done = [e for e in self._entries.values() if e.answer is not None]
        over = max(0, len(done) - MAX_ENTRIES)
        gone = [e.request_id for number, e in enumerate(done) if number < over or now - e.at > MAX_AGE_SECONDS]
        for request_id in gone:
            del self._entries[request_id]
        return gone

    def __iter__(self) -> Iterator[RequestRecord]:
        return iter(self._entries.values())

    def check(self) -> None:
        """Assert the invariants."""
        assert all(request_id == entry.request_id for request_id, entry in self._entries.items())


def is_request_id(text: str) -> bool:
    """Return True if the text is safe for logs and files."""
    return 0 < len(text) <= MAX_ID_CHARACTERS and text.isascii() and text.isprintable()


log = logging.getLogger(__name__)


class RequestLog:
    """Records of the requests of one home, in ``requests/``, one file per id. Thread-safe."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "requests"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._lock = threading.Lock()
        self._book = RequestTable(self._read())

    def begin(self, entry: RequestRecord) -> str | None:
        """Like ``RequestTable.begin``; the record is on disk when this returns. Also raises OSError."""
        with self._lock:
            answer = self._book.begin(entry)
            if answer is None:
                try:
                    self._write(entry)
                except OSError:
                    self._book.failed(entry.request_id)
                    raise
            for request_id in self._book.expire(time.time()):
                self._path(request_id).unlink(missing_ok=True)
            return answer

    def succeeded(self, entry: RequestRecord, answer: str) -> None:
        """Store the answer of a request. A full disk loses it, which is logged."""
        done = replace(entry, answer=answer)
        with self._lock:
            self._book.succeeded(done)
            try:
                self._write(done)
            except OSError as error:
                log.error("answer of request %r is not stored: %s", entry.request_id, error)

    def failed(self, request_id: str) -> None:
        """Forget a failed request."""
        with self._lock:
            self._book.failed(request_id)
            self._path(request_id).unlink(missing_ok=True)

    def settle(self, stored: Mapping[str, str], answer_of: Mapping[str, str]) -> None:
        """Settle requests in progress at the start: they succeeded if the store has their submission.

        Args:
            stored: submission id of each topology in the store.
            answer_of: answer by submission id.
        """
        for entry in [entry for entry in self._book if entry.answer is None]:
            if stored.get(entry.topology) == entry.topology_id:
                self.succeeded(entry, answer_of[entry.topology_id])
            else:
                self.failed(entry.request_id)

    def _path(self, request_id: str) -> Path:
        return self._folder / f"{hashlib.sha256(request_id.encode()).hexdigest()}.json"

    def _write(self, entry: RequestRecord) -> None:
        replace_file(self._path(entry.request_id), json.dumps(asdict(entry)), 0o600)

    def _read(self) -> list[RequestRecord]:
        records = []
        for path in self._folder.iterdir():
            try:
                records.append(RequestRecord(**json.loads(path.read_text())))
            except (OSError, ValueError, TypeError):
                path.unlink(missing_ok=True)  # interrupted write; the request was not answered
        return records
