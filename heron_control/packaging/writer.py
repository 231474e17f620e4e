"""Writer for the files of an untrusted package.

``PackageWriter`` builds its own paths from checked parts of every name, below a folder that was new and empty and in
which it never creates a link. So nothing can be written outside. Refused are ``..`` and absolute names, names that
differ only in case or in the encoding of accents, duplicate names, and more files, bytes or depth than the limits.
Sizes are counted from the bytes written, not from headers.
"""

from __future__ import annotations

import os
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from heronry.api.errors import PackageError

CHUNK = 1024 * 1024
_PART_BYTES = 255  # limit of file systems for one component of a path


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """Limits on the content of a package."""

    files: int = 20_000
    total_bytes: int = 1024 * 1024 * 1024
    file_bytes: int = 512 * 1024 * 1024
    depth: int = 40
    name_bytes: int = 1_000


class PackageWriter:
    """Writer of a package's files below ``folder``, with counters."""

    def __init__(self, folder: Path, source: str, limits: ArchiveLimits) -> None:
        self._folder = folder
        self._source = source
        self._limits = limits
        self._files = 0
        self._bytes = 0
        self._known: dict[str, tuple[str, bool]] = {}  # folded path to the path as first seen, and whether a file

    @property
    def limits(self) -> ArchiveLimits:
        """Limits of this writer."""
        return self._limits

    def folder(self, name: str) -> None:
        """Create a folder.

        Raises:
            PackageError: The name is refused.
        """
        parts = self.admit(name, is_file=False)
        if parts:
            self._folder.joinpath(*parts).mkdir(parents=True, exist_ok=True)

    def file(self, name: str, content: IO[bytes], executable: bool = False) -> None:
        """Write one file.

        Raises:
            PackageError: The file is refused.
        """
        parts = self.admit(name, is_file=True)
        path = self._folder.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags, 0o755 if executable else 0o644), "wb") as target:
            self.pour(name, content, target)

    def admit(self, name: str, *, is_file: bool) -> list[str]:
        """Check and count an entry; return the parts of its path, empty for the package itself.

        Raises:
            PackageError: The entry is refused.
        """
        parts = self._checked(name)
        if is_file and not parts:
            raise self.refused(name, "is not a file name")
        if parts:
            self._remember(parts, is_file)
        if is_file:
            self._files += 1
            if self._files > self._limits.files:
                raise PackageError(f"{self._source} holds more than {self._limits.files} files")
        return parts

    def refused(self, name: str, why: str) -> PackageError:
        """Return the error for one entry."""
        return PackageError(f"{self._source}: the entry {name[:200]!r} {why}")

    def pour(self, name: str, content: IO[bytes], target: IO[bytes]) -> None:
        """Copy and count the bytes of one file.

        Raises:
            PackageError: A limit is exceeded.
        """
        written = 0
        while chunk := content.read(CHUNK):
            written += len(chunk)
            self._bytes += len(chunk)
            if written > self._limits.file_bytes:
                raise self.refused(name, f"has more than {self._limits.file_bytes} bytes")
            if self._bytes > self._limits.total_bytes:
                raise PackageError(f"{self._source} unpacks to more than {self._limits.total_bytes} bytes")
            target.write(chunk)

    def _checked(self, name: str) -> list[str]:
        """Return the parts of a safe relative path."""
        if len(name.encode("utf-8", "surrogatepass")) > self._limits.name_bytes:
            raise self.refused(name, "has too long a name")
        if name.startswith("/") or "\\" in name or (len(name) > 1 and name[1] == ":"):
            raise self.refused(name, "is not a relative path with '/'; it might lead out of the package")
        if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
            raise self.refused(name, "has control characters in its name")
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if any(len(part.encode("utf-8", "surrogatepass")) > _PART_BYTES for part in parts):
            raise self.refused(
                name, f"has a part of more than {_PART_BYTES} bytes in its name, which no file system takes"
            )
        if ".." in parts:
            raise self.refused(name, "leads out of the package by '..'")
        if len(parts) > self._limits.depth:
            raise self.refused(name, f"is nested deeper than {self._limits.depth} folders")
        return parts

    def _remember(self, parts: list[str], is_file: bool) -> None:
        """Record the path and its folders; refuse duplicate, conflicting and too similar names."""
        for end in range(1, len(parts) + 1):
            path, leaf = "/".join(parts[:end]), is_file and end == len(parts)
            folded = unicodedata.normalize("NFC", path).casefold()
            known = self._known.get(folded)
            if known is None:
                if len(self._known) >= 2 * self._limits.files:
                    raise PackageError(f"{self._source} holds more than {2 * self._limits.files} files and folders")
                self._known[folded] = (path, leaf)
            elif known[0] != path:
                raise self.refused(path, f"differs from {known[0]!r} only in case or accents: one file on some systems")
            elif known[1] != leaf:
                raise self.refused(path, "is both a file and a folder")
            elif leaf:
                raise self.refused(path, "stands in it twice")
