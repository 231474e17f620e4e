"""Identification of files across renames and copies, for the splits and positions of ``FileLines``.

Theory of operation. A split is a file, identified by device and inode, so a renamed file (``app.log`` → ``app.log.1``)
continues at its position. A position contains the offset after the last line read and a *fingerprint* of the file's
head, the first bytes that were read. If a file is shorter than its position or begins differently, it was truncated or
its inode was reused, and it is read from the beginning.

A file whose head matches another file's fingerprint may be a copy of it. The copy continues at the other file's
position if that file was truncated since (``copytruncate``) or removed, as when a compressed copy replaces its
original. While the other file is unchanged, the copy waits until it no longer grows. It is then treated as a separate
file that begins alike.

The first line of a file determines which task owns it, so copies belong to the same task.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

HEAD_BYTES = 1024
PACKED: Mapping[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
UNKNOWN = (".zst", ".zip")  # compressed formats that are not supported


class LogFile(NamedTuple):
    """Listed file. ``number`` determines the owning task, and ``head`` contains the file's first bytes."""

    path: Path
    split: str
    number: int
    size: int
    head: bytes
    mtime_ns: int = 0


class Place(NamedTuple):
    """Position in a file: the offset after the data read, and the fingerprint of the first ``length`` bytes."""

    offset: int = 0
    length: int = 0
    digest: str = ""


BEGIN = Place()


def is_packed(path: Path) -> bool:
    """Return True if the file's name has the suffix of a compressed file."""
    return path.name.lower().endswith((*PACKED, *UNKNOWN))


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading its uncompressed content. Raises OSError."""
    opener = PACKED.get(path.suffix.lower())
    opened: BinaryIO = path.open("rb") if opener is None else opener(path, "rb")
    return opened


def head_of(path: Path) -> bytes:
    """Return the first bytes of a file's uncompressed content; empty if it cannot be read or decompressed."""
    try:
        with open_file(path) as file:
            return file.read(HEAD_BYTES)
    except (OSError, EOFError, lzma.LZMAError, zlib.error):
        return b""


def list_files(paths: Iterable[Path], before: Mapping[str, LogFile] | None = None) -> dict[str, LogFile]:
    """Return the files by split, without files that contain no complete line yet.

    If a file has several names, only the first one is listed. The heads of files that have not changed are taken from
    ``before``, an earlier result.
    """
    files: dict[str, LogFile] = {}
    for path in sorted(paths):
        try:
            about = os.stat(path)
        except OSError:
            continue
        split = split_of(about)
        former = before.get(split) if before else None
        version = (path, about.st_size, about.st_mtime_ns)
        is_same = former is not None and (former.path, former.size, former.mtime_ns) == version
        head = former.head if former is not None and is_same else head_of(path)
        line, end, _ = head.partition(b"\n")
        if (end or len(head) == HEAD_BYTES or is_packed(path)) and split not in files:
            files[split] = LogFile(path, split, zlib.crc32(line), about.st_size, head, about.st_mtime_ns)
    return files


def split_of(about: os.stat_result) -> str:
    """Return the split of a file."""
    return f"{about.st_dev:x}-{about.st_ino:x}"


def place_at(offset: int, head: bytes) -> Place:
    """Return the position at an offset of a file with this head."""
    length = min(offset, len(head))
    return Place(offset, length, _digest(head[:length]))


def begins_alike(place: Place, head: bytes) -> bool:
    """Return True if a head has the fingerprint of a position."""
    return len(head) >= place.length and _digest(head[: place.length]) == place.digest


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest() if data else ""


def is_intact(place: Place, file: LogFile) -> bool:
    """Return True if the file is still the one that was read up to the position."""
    return (is_packed(file.path) or file.size >= place.offset) and begins_alike(place, file.head)


class Rotation:
    """Detection of the start positions of new files, by comparing consecutive listings."""

    def __init__(self) -> None:
        self._before: dict[str, LogFile] = {}  # the previous listing
        self._listed: dict[str, LogFile] = {}

    def listed(self, files: dict[str, LogFile]) -> None:
        """Store a new listing."""
        self._before, self._listed = self._listed, files

    def begin(self, file: LogFile, places: Mapping[str, Place]) -> Place | None:
        """Return the position at which to start a file.

        None means that it cannot be read yet, or that the original of a compressed file is unknown.
        """
        alike = [s for s, p in places.items() if s != file.split and p.length and begins_alike(p, file.head)]
        for split in sorted(alike, key=lambda split: -places[split].length):
            original = self._listed.get(split)
            if original is not None and is_intact(places[split], original):
                before = self._before.get(file.split)
                if is_packed(file.path) or before is None or before.size != file.size:
                    return None  # may be a copy that is still being written
            elif original is not None or split in self._before or is_packed(file.path):
                return places[split]
        return None if is_packed(file.path) else BEGIN
