"""Heartbeats by shared memory: a small file for each process of a container, which that process maps.

A process beats once a second by writing a growing number there; ``heron_container`` reads the files each tick.
That costs neither a message nor a wake-up of anyone, and it goes on while sockets are stuck. A beat also carries the
process's *phase*, so that the container knows "does its work" from "exists", and a few words for people about what it
has been *doing* for long. Beat and phase are one aligned 64-bit store each, so there is no lock; words that are read
while they change may be mixed, once.

Where user code has a user of its own, that user may write to the files of instances and to no other. The container
makes a file anew for each life of a process, reads it without mapping it (whoever maps a file ends when somebody cuts
it), and takes what makes no sense for silence.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
from enum import IntEnum
from pathlib import Path

SLOT_BYTES = 256
_BEAT = struct.Struct("=QQ")
_LENGTH = struct.Struct("=B")
_DOING = _BEAT.size + _LENGTH.size  # where the words begin
DOING_BYTES = SLOT_BYTES - _DOING


class ProcessPhase(IntEnum):
    """What the process says of itself."""

    NONE = 0
    STARTING = 1
    RUNNING = 2


_PHASES = frozenset(ProcessPhase)


class HeartbeatReader:
    """The container's view: makes the files in ``folder``, which is its own, and reads them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[int, int] = {}  # slot to descriptor
        shutil.rmtree(folder, ignore_errors=True)  # an earlier life's
        folder.mkdir(mode=0o700)

    def make(self, slot: int) -> Path:
        """The file for a new process of this slot; that of the one before is nobody's. Raises OSError."""
        self._let_go(slot)
        path = self.folder / str(slot)
        path.unlink(missing_ok=True)
        self._open[slot] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._open[slot], SLOT_BYTES)
        return path

    def read(self, slot: int) -> tuple[int, ProcessPhase]:
        """(beat number, phase) of a slot; no beat where there is no file."""
        data = self._read(slot)
        if len(data) < SLOT_BYTES:
            return 0, ProcessPhase.NONE
        beat, phase = _BEAT.unpack_from(data)
        return beat, ProcessPhase(phase) if phase in _PHASES else ProcessPhase.NONE

    def doing(self, slot: int) -> str:
        """What the process of this slot has been doing for long; "" if there is nothing to say."""
        data = self._read(slot)
        if len(data) < SLOT_BYTES:
            return ""
        (length,) = _LENGTH.unpack_from(data, _BEAT.size)
        return data[_DOING : _DOING + length].decode(errors="ignore")

    def close(self) -> None:
        """Remove the folder."""
        for slot in list(self._open):
            self._let_go(slot)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self, slot: int) -> bytes:
        descriptor = self._open.get(slot)
        return b"" if descriptor is None else os.pread(descriptor, SLOT_BYTES, 0)

    def _let_go(self, slot: int) -> None:
        descriptor = self._open.pop(slot, None)
        if descriptor is not None:
            os.close(descriptor)


class HeartbeatWriter:
    """A process's own file. Raises OSError when it is not there."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(descriptor, SLOT_BYTES)
        finally:
            os.close(descriptor)
        self._number = 0

    def beat(self, phase: ProcessPhase, doing: str = "") -> None:
        """I am alive, this is my phase, and this is what I have been doing for long."""
        self._number += 1
        words = doing.encode()[:DOING_BYTES]
        _LENGTH.pack_into(self._map, _BEAT.size, len(words))
        self._map[_DOING : _DOING + len(words)] = words
        _BEAT.pack_into(self._map, 0, self._number, phase)
