"""A reducer's state on disk: a log of what has changed, written anew when it has grown too long.

One frame is (length, CRC, kind, payload); the payload is the changed entries with packed accumulators, the windows that
were dropped, how far windows are closed, and the buckets that are spilled (spill.py). A frame is one ``write``;
a torn one at the end (the process died in it) ends the replay, so what a full disk has cut off is taken back. It is not
synced to the disk: it survives the death of processes, not of the machine. Plain values are msgpack; others are
pickled, and unpickled by nobody but an instance of the same topology, whose folder it is.
"""

from __future__ import annotations

import os
import pickle
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from heron_runtime.files import replace_file
from heronry.streamlet.monoid import Monoid
from heronry.streamlet.online.state import Entry, Start
from heronry.streamlet.online.task_files import append_whole

_HEAD = struct.Struct("<IIB")
_MSGPACK, _PICKLE = 0, 1
_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})
REWRITE_BYTES = 4 * 1024 * 1024
REWRITE_TIMES = 4


class Saved(NamedTuple):
    """What a log holds."""

    entries: list[Entry]
    closed_ms: int | None
    spilled: set[int]


class StateLog:
    """One task's. Opened for its life."""

    def __init__(self, path: Path, monoid: Monoid) -> None:
        self._path = path
        self._pack, self._unpack = monoid.pack, monoid.unpack
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.size = 0
        self._whole = 0  # when it was last written anew
        self._owed = b""  # frames that could not be written yet

    def load(self) -> Saved:
        """Replay the log; what is torn at its end is cut off."""
        data = self._path.read_bytes()
        entries: dict[tuple[Start, Any], Any] = {}
        closed_ms: int | None = None
        spilled: set[int] = set()
        place = 0
        while place + _HEAD.size <= len(data):
            length, checksum, kind = _HEAD.unpack_from(data, place)
            payload = data[place + _HEAD.size : place + _HEAD.size + length]
            if len(payload) < length or zlib.crc32(payload) != checksum:
                break
            rows, dropped, closed, *away = _decode(kind, payload)
            if closed is not None:
                closed_ms = closed
            spilled.update(*away)
            for start, key, packed in rows:
                entries[start, _hashable(key)] = (key, packed)
            if dropped:
                gone = set(dropped)
                entries = {name: entry for name, entry in entries.items() if name[0] not in gone}
            place += _HEAD.size + length
        os.ftruncate(self._file, place)
        os.lseek(self._file, place, os.SEEK_SET)
        self.size = self._whole = place
        found = [Entry(start, key, self._unpack(packed)) for (start, _), (key, packed) in entries.items()]
        return Saved(found, closed_ms, spilled)

    def append(
        self, changed: Iterable[Entry], dropped: list[int], closed_ms: int | None, spilled: Iterable[int] = ()
    ) -> None:
        """What is new. ``spilled`` are dropped, too. It is written when this returns.

        Raises OSError (the disk is full); then it is owed, and goes in front of what comes next.
        """
        away = list(spilled)
        self._owed += self._frame(changed, [*dropped, *away], closed_ms, away)
        append_whole(self._file, self._owed, self._path)
        self.size += len(self._owed)
        self._owed = b""

    def owes(self) -> bool:
        """True if something could not be written."""
        return bool(self._owed)

    def wants_rewrite(self) -> bool:
        """True if the log is much longer than what it says."""
        return self.size > REWRITE_BYTES and self.size > REWRITE_TIMES * self._whole

    def rewrite(self, entries: Iterable[Entry], closed_ms: int | None, spilled: Iterable[int] = ()) -> None:
        """Replace the log by one frame that says everything."""
        frame = self._frame(entries, [], closed_ms, list(spilled))
        replace_file(self._path, frame, 0o600)
        os.close(self._file)
        self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        os.lseek(self._file, 0, os.SEEK_END)
        self.size = self._whole = len(frame)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def _frame(self, entries: Iterable[Entry], dropped: list[int], closed_ms: int | None, spilled: list[int]) -> bytes:
        pack = self._pack
        rows = [(start, key, pack(acc)) for start, key, acc in entries]
        body = (rows, dropped, closed_ms, spilled)
        kinds = {type(key) for _, key, _ in rows} | {type(packed) for _, _, packed in rows}
        kind, payload = _PICKLE, b""
        if kinds <= _PLAIN:
            try:
                kind, payload = _MSGPACK, msgspec.msgpack.encode(body)
            except (OverflowError, UnicodeEncodeError):  # an int beyond 64 bits, a lone surrogate
                kind = _PICKLE
        if kind == _PICKLE:
            payload = pickle.dumps(body, protocol=5)
        return _HEAD.pack(len(payload), zlib.crc32(payload), kind) + payload


def _decode(kind: int, payload: bytes) -> Any:
    return msgspec.msgpack.decode(payload) if kind == _MSGPACK else pickle.loads(payload)


def _hashable(key: Any) -> Any:
    from heronry.streamlet.online.state import identity

    return identity(key)
