"""The record of who did what: one JSON object a line in ``audit.jsonl``, rotated, never a secret.

Refusals of others than an administrator are counted where they repeat themselves (``heron_control/web/repeats.py``):
a line with ``repeats`` follows the first when the minute is over.
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
from heron_control.web.repeats import Kind, Repeats

MAX_BYTES = 16 << 20
FILES = 9
MAX_TEXT = 500
log = logging.getLogger(__name__)


class AuditLog:
    """Appends lines. Thread-safe. A disk that is full costs lines, which is said in the log."""

    def __init__(self, path: Path) -> None:
        self._file = RotatingFile(path, MAX_BYTES, FILES)
        self._repeats = Repeats()
        self._lock = threading.Lock()

    def write(self, what: str, *, who: str, source: str, result: int | str, **more: Any) -> None:
        """One line, unless it is a refusal like another one just before. ``source`` is the address it came from;
        ``more`` that is None or empty is left out."""
        now = time.monotonic()
        refused = isinstance(result, int) and result >= 400 and who.partition(":")[0] != CallerRole.ADMIN
        with self._lock:
            self._settle(now)
            if refused and not self._repeats.first(Kind(who, source, int(result)), now):
                return
            self._line(what, who, source, result, more)

    def settle(self) -> None:
        """Write down what was counted. Call now and then."""
        with self._lock:
            self._settle(time.monotonic())

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._settle(float("inf"))
            self._file.close()

    def _settle(self, now: float) -> None:
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
            log.error("the audit file takes no lines: %s", line)


def _short(value: Any) -> Any:
    return value[:MAX_TEXT] if isinstance(value, str) else value
