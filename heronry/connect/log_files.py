"""Which file is which, however it is renamed: the splits and positions of ``FileLines``.

Theory of operation. A split is a file by device and inode, so a file that is renamed (``app.log`` → ``app.log.1``) goes
on where it was. A position has the byte behind the last line that was read and a *fingerprint* of the file's head, the
first bytes that were read. A file that is shorter than its position, or begins otherwise, was truncated or its inode is
used again: it is read from its beginning.

A file whose head has the fingerprint of another one may be its copy. It goes on where that one was if that one was
truncated since (``copytruncate``) or is gone, which is how a compressed copy takes the place of its original. While the
other one is as it was, a copy waits until it no longer grows, and is then a file of its own that begins alike.

Which task owns a file follows from its first line, which copies share.
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
UNKNOWN = (".zst", ".zip")  # packed, too, and not read


class LogFile(NamedTuple):
    """A file as it was listed. ``number`` says which task owns it, ``head`` is what it begins with."""

    path: Path
    split: str
    number: int
    size: int
    head: bytes


class Place(NamedTuple):
    """A position: the byte behind what was read, and the fingerprint of the first ``length`` bytes."""

    offset: int = 0
    length: int = 0
    digest: str = ""


BEGIN = Place()


def is_packed(path: Path) -> bool:
    """Return True for a name that says the file is compressed."""
    return path.name.lower().endswith((*PACKED, *UNKNOWN))


def open_file(path: Path) -> BinaryIO:
    """Open a file for what it holds, compressed or not. Raises OSError."""
    opener = PACKED.get(path.suffix.lower())
    opened: BinaryIO = path.open("rb") if opener is None else opener(path, "rb")
    return opened


def head_of(path: Path) -> bytes:
    """Return the first bytes of what a file holds; nothing if it cannot be read or unpacked."""
    try:
        with open_file(path) as file:
            return file.read(HEAD_BYTES)
    except (OSError, EOFError, lzma.LZMAError, zlib.error):
        return b""


def list_files(paths: Iterable[Path]) -> dict[str, LogFile]:
    """Return the files by split; those that hold no whole line yet are left out, and a second name of a file, too."""
    found: dict[str, LogFile] = {}
    for path in sorted(paths):
        try:
            about = os.stat(path)
        except OSError:
            continue
        split, head = f"{about.st_dev:x}-{about.st_ino:x}", head_of(path)
        line, end, _ = head.partition(b"\n")
        if (end or len(head) == HEAD_BYTES or is_packed(path)) and split not in found:
            found[split] = LogFile(path, split, zlib.crc32(line), about.st_size, head)
    return found


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
    """Return True if the file is still the one that was read up to a position."""
    return (is_packed(file.path) or file.size >= place.offset) and begins_alike(place, file.head)


class Rotation:
    """Where files begin that have no position yet, from one listing to the next."""

    def __init__(self) -> None:
        self._before: dict[str, LogFile] = {}  # as they were listed before
        self._listed: dict[str, LogFile] = {}

    def listed(self, files: dict[str, LogFile]) -> None:
        """Remember a listing."""
        self._before, self._listed = self._listed, files

    def begin(self, file: LogFile, places: Mapping[str, Place]) -> Place | None:
        """Return where to begin in a file; None: not yet, or, of a compressed one, that its original is not known."""
        alike = [s for s, p in places.items() if s != file.split and p.length and begins_alike(p, file.head)]
        for split in sorted(alike, key=lambda split: -places[split].length):
            original = self._listed.get(split)
            if original is not None and is_intact(places[split], original):
                before = self._before.get(file.split)
                if is_packed(file.path) or before is None or before.size != file.size:
                    return None  # perhaps the copy of it that is being made
            elif original is not None or split in self._before or is_packed(file.path):
                return places[split]
        return None if is_packed(file.path) else BEGIN
