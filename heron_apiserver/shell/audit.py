"""The record of who did what: one JSON object a line in ``audit.jsonl``, rotated, never a secret."""

from __future__ import annotations

import json
import logging
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from heron_control.schedulers.log_files import RotatingFile

MAX_BYTES = 16 << 20
FILES = 9
MAX_TEXT = 500
log = logging.getLogger(__name__)


class Audit:
    """Appends lines. Thread-safe. A disk that is full costs lines, which is said in the log."""

    def __init__(self, path: Path) -> None:
        self._file = RotatingFile(path, MAX_BYTES, FILES)
        self._lock = threading.Lock()

    def write(self, what: str, *, who: str, source: str, result: int | str, **more: Any) -> None:
        """One line. ``source`` is the address it came from; ``more`` that is None or empty is left out."""
        line = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "what": what,
            "who": who,
            "from": source,
            "result": result,
            **{key: _short(value) for key, value in more.items() if value not in (None, "")},
        }
        with self._lock:
            if not self._file.write((json.dumps(line) + "\n").encode()):
                log.error("the audit file takes no lines: %s", line)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()


def _short(value: Any) -> Any:
    return value[:MAX_TEXT] if isinstance(value, str) else value
