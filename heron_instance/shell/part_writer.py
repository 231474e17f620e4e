"""Encodes and writes parts of checkpoints on a thread of its own, while records are processed.

One part at a time; of those that wait only the newest is worth writing, since a later checkpoint has begun. What became
of each is put into the inbox. Nothing else waits for the disk.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from heron_instance.core.state.part_file import CannotEncode, Snapshot
from heron_instance.shell.inbox import Item, PartFailed, PartWritten
from heron_runtime.checkpoint_files import CheckpointFolder
from heron_runtime.model.checkpoints import StatePart

log = logging.getLogger(__name__)


class PartWriter:
    """Of one instance. ``put`` tells the executor."""

    def __init__(self, folder: CheckpointFolder, put: Callable[[Item], None]) -> None:
        self._folder = folder
        self._put = put
        self._waiting: deque[Snapshot] = deque()
        self._bell = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name="checkpoint parts", daemon=True)
        self._thread.start()

    def write(self, snapshot: Snapshot) -> None:
        """Write its part; returns at once."""
        self._waiting.append(snapshot)
        self._bell.release()

    def _run(self) -> None:
        while True:
            self._bell.acquire()
            self._write(self._waiting.popleft())

    def _write(self, snapshot: Snapshot) -> None:
        draft = snapshot.draft
        if self._waiting:
            self._failed(draft, "the one before it took so long that a later one has begun")
            return
        try:
            part, pieces = snapshot.encode()
            self._folder.write_part(part.name, pieces)
        except (OSError, CannotEncode, MemoryError) as error:
            why = str(error) or "there is no memory for it"
            log.error("checkpoint %d: %s cannot be written: %s", draft.checkpoint, draft.name, why)
            self._failed(draft, f"{self._folder.folder} does not take {draft.name}: {why}")
        else:
            self._put(PartWritten(part))

    def _failed(self, part: StatePart, why: str) -> None:
        self._put(PartFailed(part.generation, part.checkpoint, why))
