"""Writes parts of checkpoints on a thread of its own, while records are processed.

One part at a time; of those that wait only the newest is worth writing, since a later checkpoint has begun. What became
of each is put into the inbox. Nothing else waits for the disk.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from heron_instance.shell.inbox import Item, PartFailed, PartWritten
from heron_runtime.checkpoint_files import CheckpointFolder
from heron_runtime.model.checkpoints import Part

log = logging.getLogger(__name__)


class PartWriter:
    """Of one instance. ``put`` tells the executor."""

    def __init__(self, folder: CheckpointFolder, put: Callable[[Item], None]) -> None:
        self._folder = folder
        self._put = put
        self._waiting: deque[tuple[Part, list[bytes]]] = deque()
        self._bell = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name="checkpoint parts", daemon=True)
        self._thread.start()

    def write(self, part: Part, pieces: list[bytes]) -> None:
        """Write this part; returns at once."""
        self._waiting.append((part, pieces))
        self._bell.release()

    def _run(self) -> None:
        while True:
            self._bell.acquire()
            part, pieces = self._waiting.popleft()
            if self._waiting:
                self._failed(part, "the one before it took so long that a later one has begun")
                continue
            try:
                self._folder.write_part(part.name, pieces)
            except OSError as error:
                log.error("checkpoint %d: %s cannot be written: %s", part.checkpoint, part.name, error)
                self._failed(part, f"{self._folder.folder} does not take {part.name}: {error}")
            else:
                self._put(PartWritten(part))

    def _failed(self, part: Part, why: str) -> None:
        self._put(PartFailed(part.generation, part.checkpoint, why))
