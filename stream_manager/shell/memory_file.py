"""What a stream manager keeps on disk, so that it works without state store and master when it is restarted: the newest
plan, the epoch it was heard with, where the master was, and its own last incarnation."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

from heron_runtime.wire.errors import UNREADABLE

log = logging.getLogger(__name__)


class Memory(msgspec.Struct, omit_defaults=True):
    """The file. ``plan`` and ``master`` are records as the state store has them, empty if there was none."""

    topology_id: str = ""
    incarnation: int = 0
    epoch: int = 0
    plan: bytes = b""
    master: bytes = b""


class MemoryFile:
    """``<runtime folder>/stream_manager-<N>.plan``, closed to user code, replaced as a whole at each change."""

    def __init__(self, path: Path, topology_id: str) -> None:
        self._path = path
        self.memory = self._read(topology_id)

    def update(self, **fields: object) -> None:
        """Change fields and write. A disk that refuses is logged; the process runs on."""
        changed = msgspec.structs.replace(self.memory, **fields)
        if changed == self.memory:
            return
        self.memory = changed
        temporary = self._path.with_suffix(".plan.tmp")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.msgpack.encode(changed))
            os.replace(temporary, self._path)
        except OSError as error:
            log.error("the plan is not kept on disk: %s", error)

    def _read(self, topology_id: str) -> Memory:
        try:
            memory = msgspec.msgpack.decode(self._path.read_bytes(), type=Memory)
        except FileNotFoundError:
            return Memory(topology_id)
        except (OSError, *UNREADABLE) as error:
            log.warning("%s is of no use: %s", self._path, error)
            return Memory(topology_id)
        return memory if memory.topology_id == topology_id else Memory(topology_id)
