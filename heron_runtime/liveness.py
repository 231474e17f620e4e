"""Heartbeats in shared memory: one small file for each process of a container, mapped by that process.

A process writes an increasing number once a second, and `heron_container` reads the files at each tick. This requires
neither messages nor wake-ups, and continues while sockets are stuck. A beat also carries the *phase* of the process, so
that the container can tell "works" from "exists", and a short text for users about a long operation. Beat and phase are
one aligned 64-bit store each, so a lock is not needed. A text that changes while it is read may be mixed once.

If user code has a user of its own, that user may write only to the files of instances. The container creates a new file
each time it starts a process. It reads the file without mapping it, since truncating a mapped file kills the process
that maps it. Invalid contents count as a missing heartbeat.
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
_DOING = _BEAT.size + _LENGTH.size  # offset of the text
DOING_BYTES = SLOT_BYTES - _DOING


class ProcessPhase(IntEnum):
    """Phase of a process, as it reports it."""

    NONE = 0
    STARTING = 1
    RUNNING = 2


_PHASES = frozenset(ProcessPhase)


class HeartbeatReader:
    """Container's side of the heartbeats: creates and reads the files in ``folder``, which it owns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[int, int] = {}  # slot to descriptor
        shutil.rmtree(folder, ignore_errors=True)  # left by an earlier process of this container
        folder.mkdir(mode=0o700)

    def make(self, slot: int) -> Path:
        """Create the file for a new process of this slot, in place of the previous file. Raises OSError."""
        self._let_go(slot)
        path = self.folder / str(slot)
        path.unlink(missing_ok=True)
        self._open[slot] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._open[slot], SLOT_BYTES)
        return path

    def read(self, slot: int) -> tuple[int, ProcessPhase]:
        """Return beat number and phase of a slot, or 0 and NONE if its file is missing or too short."""
        data = self._read(slot)
        if len(data) < SLOT_BYTES:
            return 0, ProcessPhase.NONE
        beat, phase = _BEAT.unpack_from(data)
        return beat, ProcessPhase(phase) if phase in _PHASES else ProcessPhase.NONE

    def doing(self, slot: int) -> str:
        """Return the long operation that the process of this slot is in, or ""."""
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
    """Heartbeat file of this process. The constructor raises OSError if the file is missing."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(descriptor, SLOT_BYTES)
        finally:
            os.close(descriptor)
        self._number = 0

    def beat(self, phase: ProcessPhase, doing: str = "") -> None:
        """Write a heartbeat with the phase of this process and the long operation that it is in, if any."""
        self._number += 1
        words = doing.encode()[:DOING_BYTES]
        _LENGTH.pack_into(self._map, _BEAT.size, len(words))
        self._map[_DOING : _DOING + len(words)] = words
        _BEAT.pack_into(self._map, 0, self._number, phase)
