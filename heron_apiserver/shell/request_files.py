"""The request book on disk: one file in ``requests/`` for each id, named by its digest, so that it outlives a crash."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from heron_apiserver.core.request_book import Entry, RequestBook
from heron_runtime.files import replace_file

log = logging.getLogger(__name__)


class Requests:
    """The book of one home. Thread-safe."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "requests"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._lock = threading.Lock()
        self._book = RequestBook(self._read())

    def begin(self, entry: Entry) -> str | None:
        """See ``RequestBook.begin``; the beginning is on disk when this returns. Raises OSError, too."""
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

    def succeeded(self, entry: Entry, answer: str) -> None:
        """Remember what was answered; a disk that is full forgets it, which is said in the log."""
        done = replace(entry, answer=answer)
        with self._lock:
            self._book.succeeded(done)
            try:
                self._write(done)
            except OSError as error:
                log.error("request %r is not remembered: %s", entry.request_id, error)

    def failed(self, request_id: str) -> None:
        """The request left nothing behind."""
        with self._lock:
            self._book.failed(request_id)
            self._path(request_id).unlink(missing_ok=True)

    def settle(self, stored: Mapping[str, str], answer_of: Mapping[str, str]) -> None:
        """At the start: what was under way has succeeded if its submission stands in the store, else it has failed.

        ``stored``: topology to submission id; ``answer_of``: submission id to the answer.
        """
        for entry in [entry for entry in self._book if entry.answer is None]:
            if stored.get(entry.topology) == entry.topology_id:
                self.succeeded(entry, answer_of[entry.topology_id])
            else:
                self.failed(entry.request_id)

    def _path(self, request_id: str) -> Path:
        return self._folder / f"{hashlib.sha256(request_id.encode()).hexdigest()}.json"

    def _write(self, entry: Entry) -> None:
        replace_file(self._path(entry.request_id), json.dumps(asdict(entry)), 0o600)

    def _read(self) -> list[Entry]:
        found = []
        for path in self._folder.iterdir():
            try:
                found.append(Entry(**json.loads(path.read_text())))
            except (OSError, ValueError, TypeError):
                path.unlink(missing_ok=True)  # a crash in the middle of a write, and nothing was answered yet
        return found
