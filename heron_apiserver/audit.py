"""Audit log: one JSON object per line in ``audit.jsonl``, rotated, without secrets.

Repeated refusals of callers other than administrators are counted instead of written
(``heron_control/web/tokens.py``). A line with ``repeats`` follows the first one when the minute is over.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from heron_apiserver.access import CallerRole
from heron_control.schedulers.log_files import RotatingFile
from heron_control.web.tokens import Kind, Repeats

MAX_BYTES = 16 << 20
FILES = 9
MAX_TEXT = 500
log = logging.getLogger(__name__)


class AuditLog:
    """Appends lines to the audit file. Thread-safe. Lines lost to a full disk are reported in the process log."""

    def __init__(self, path: Path) -> None:
        self._file = RotatingFile(path, MAX_BYTES, FILES)
        self._repeats = Repeats()
        self._lock = threading.Lock()

    def write(self, what: str, *, who: str, source: str, result: int | str, **more: Any) -> None:
        """Write one line, unless it repeats a recent refusal.

        Args:
            what: operation.
            who: caller.
            source: address of the client.
            result: HTTP status or a word.
            more: further fields; None and empty strings are omitted.
        """
        now = time.monotonic()
        refused = isinstance(result, int) and result >= 400 and who.partition(":")[0] != CallerRole.ADMIN
        with self._lock:
            self._flush_repeats(now)
            if refused and not self._repeats.first(Kind(who, source, int(result)), now):
                return
            self._line(what, who, source, result, more)

    def flush_repeats(self) -> None:
        """Write the counts of repeated refusals whose minute is over. Call periodically."""
        with self._lock:
            self._flush_repeats(time.monotonic())

    def close(self) -> None:
        """Write the remaining counts and close the file."""
        with self._lock:
            self._flush_repeats(float("inf"))
            self._file.close()

    def _flush_repeats(self, now: float) -> None:
        for kind, count in self._repeats.take(now):
            self._line("refused", kind.who, kind.source, kind.result, {"repeats": count})

    def _line(self, what: str, who: str, source: str, result: int | str, more: dict[str, Any]) -> None:
        line = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "what": what,
            "who": who,
            "from": source,
            "result": result,
            **{key: _short(value) for key, value in more.items() if value not in (None, "")},
        }
        if not self._file.write((json.dumps(line) + "\n").encode()):
            log.error("cannot write to the audit file: %s", line)


def _short(value: Any) -> Any:
    return value[:MAX_TEXT] if isinstance(value, str) else value
