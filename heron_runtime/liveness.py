"""Heartbeats by shared memory: one slot per process of a container, in a file that all of them map.

A process beats once a second by writing a growing number into its slot; ``heron_container`` reads the slots each tick.
That costs neither a message nor a wake-up of anyone, and it goes on while sockets are stuck. A beat also carries the
process's *phase*, so that the container knows "does its work" from "exists", and a few words for people about what it
has been *doing* for long. Writers own their slot alone, and beat and phase are one aligned 64-bit store each, so there
is no lock; words that are read while they change may be mixed, once.
"""

from __future__ import annotations

import mmap
import os
import struct
from enum import IntEnum
from pathlib import Path

SLOT_BYTES = 256
_BEAT = struct.Struct("=QQ")
_LENGTH = struct.Struct("=B")
_DOING = _BEAT.size + _LENGTH.size  # where the words begin
DOING_BYTES = SLOT_BYTES - _DOING


class Phase(IntEnum):
    """What the process says of itself."""

    NONE = 0
    STARTING = 1
    RUNNING = 2


class Slots:
    """The container's view: makes the file, reads and clears slots."""

    def __init__(self, path: Path, count: int) -> None:
        self.path = path
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.ftruncate(descriptor, max(count, 1) * SLOT_BYTES)
            self._map = mmap.mmap(descriptor, max(count, 1) * SLOT_BYTES)
        finally:
            os.close(descriptor)

    def __len__(self) -> int:
        return len(self._map) // SLOT_BYTES

    def read(self, slot: int) -> tuple[int, Phase]:
        """(beat number, phase) of a slot."""
        beat, phase = _BEAT.unpack_from(self._map, slot * SLOT_BYTES)
        return beat, Phase(phase)

    def doing(self, slot: int) -> str:
        """What the process of this slot has been doing for long; "" if there is nothing to say."""
        start = slot * SLOT_BYTES
        (length,) = _LENGTH.unpack_from(self._map, start + _BEAT.size)
        return self._map[start + _DOING : start + _DOING + length].decode(errors="ignore")

    def clear(self, slot: int) -> None:
        """Forget what the previous process of this slot wrote."""
        self._map[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES] = bytes(SLOT_BYTES)

    def close(self) -> None:
        """Unmap and remove the file."""
        self._map.close()
        self.path.unlink(missing_ok=True)


class Beat:
    """A process's own slot. Raises OSError when the file is not there."""

    def __init__(self, path: Path, slot: int) -> None:
        descriptor = os.open(path, os.O_RDWR)
        try:
            self._map = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)
        self._offset = slot * SLOT_BYTES
        self._number = 0

    def beat(self, phase: Phase, doing: str = "") -> None:
        """I am alive, this is my phase, and this is what I have been doing for long."""
        self._number += 1
        words = doing.encode()[:DOING_BYTES]
        _LENGTH.pack_into(self._map, self._offset + _BEAT.size, len(words))
        self._map[self._offset + _DOING : self._offset + _DOING + len(words)] = words
        _BEAT.pack_into(self._map, self._offset, self._number, phase)
