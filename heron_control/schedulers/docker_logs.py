"""Extraction of a topology's logs from the tar of a folder that its containers could write to.

User code may have put anything there. So only files directly in the folder are extracted, not links and devices. Names
must match a pattern, and the total is limited. Files come in the engine's order; what exceeds the limit is cut and
logged.
"""

from __future__ import annotations

import io
import logging
import os
import re
import tarfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

MAX_BYTES = 1 << 30
MAX_FILES = 10_000
_CHUNK = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
log = logging.getLogger(__name__)


def save(stream: Iterator[bytes], folder: Path, max_bytes: int = MAX_BYTES) -> int:
    """Write the log files of a tar of one folder into ``folder``, replacing existing ones; return their number.

    An empty stream means that the folder does not exist.

    Raises:
        OSError: A file cannot be written.
        tarfile.TarError: The tar is damaged.
    """
    first = next((piece for piece in stream if piece), b"")
    if not first:
        return 0
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    saved, remaining_bytes = 0, max_bytes
    with tarfile.open(fileobj=cast(IO[bytes], _Reader(chain([first], stream))), mode="r|") as archive:
        for entry in archive:
            above, _, name = entry.name.partition("/")
            content = archive.extractfile(entry) if entry.isreg() and not entry.issparse() else None
            if content is None or not above or not _NAME.fullmatch(name):
                if not entry.isdir():
                    log.warning("%r is not a log file and is skipped", entry.name[:200])
                continue
            if remaining_bytes <= 0 or saved >= MAX_FILES:
                log.warning("more than %d bytes or %d files of logs: %s is not kept", max_bytes, MAX_FILES, name)
                continue
            remaining_bytes -= _write(folder / name, content, remaining_bytes)
            saved += 1
            archive.members.clear()  # type: ignore[attr-defined]  # or each entry stays in memory
    return saved


def _write(path: Path, content: IO[bytes], most: int) -> int:
    path.unlink(missing_ok=True)
    written = 0
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as target:
        while chunk := content.read(min(_CHUNK, most - written)):
            written += target.write(chunk)
    if content.read(1):
        log.warning("%s is cut after %d bytes", path.name, written)
    return written


class _Reader(io.RawIOBase):
    """Stream of pieces as a sequential file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is available, at most the size of the buffer."""
        target = memoryview(buffer)
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        size = min(len(target), len(self._rest))
        target[:size], self._rest = self._rest[:size], self._rest[size:]
        return size
