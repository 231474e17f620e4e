"""Unpacking an archive nobody vouches for.

Every name goes through ``Writer``, which builds its own paths from checked parts, under a folder that was new and empty
and in which it never makes a link: so nothing can be written outside. Refused: ``..`` and absolute names, links,
devices, names that differ only in case or in the way an accent is written, a name twice, more files, bytes or depth
than the limits. Sizes are counted as bytes come out, whatever the headers say; what headers themselves may ask for
stands in ``tar_headers``.
"""

from __future__ import annotations

import errno
import gzip
import os
import stat
import tarfile
import unicodedata
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from heron_control.packaging.tar_headers import BoundedReader, bounded_header
from heronry.api.errors import PackageError

_CHUNK = 1024 * 1024
_PART_BYTES = 255  # the most of one part of a path that file systems take


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """The most a package may hold."""

    files: int = 20_000
    total_bytes: int = 1024 * 1024 * 1024
    file_bytes: int = 512 * 1024 * 1024
    depth: int = 40
    name_bytes: int = 1_000


class Writer:
    """Writes a package's files below ``folder`` and keeps count."""

    def __init__(self, folder: Path, source: str, limits: ArchiveLimits) -> None:
        self._folder = folder
        self._source = source
        self._limits = limits
        self._files = 0
        self._bytes = 0
        self._known: dict[str, tuple[str, bool]] = {}  # folded path to the path as first seen, and whether a file

    @property
    def limits(self) -> ArchiveLimits:
        """The most this writer takes."""
        return self._limits

    def folder(self, name: str) -> None:
        """Make a folder. Raises PackageError."""
        parts = self.admit(name, is_file=False)
        if parts:
            self._folder.joinpath(*parts).mkdir(parents=True, exist_ok=True)

    def file(self, name: str, content: IO[bytes], executable: bool = False) -> None:
        """Write one file. Raises PackageError."""
        parts = self.admit(name, is_file=True)
        path = self._folder.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags, 0o755 if executable else 0o644), "wb") as target:
            self.pour(name, content, target)

    def admit(self, name: str, *, is_file: bool) -> list[str]:
        """The parts of an entry's path, checked and counted; empty for the package itself. Raises PackageError."""
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
        """The error for one entry."""
        return PackageError(f"{self._source}: the entry {name[:200]!r} {why}")

    def pour(self, name: str, content: IO[bytes], target: IO[bytes]) -> None:
        """Copy the bytes of one file, counting them. Raises PackageError."""
        written = 0
        while chunk := content.read(_CHUNK):
            written += len(chunk)
            self._bytes += len(chunk)
            if written > self._limits.file_bytes:
                raise self.refused(name, f"has more than {self._limits.file_bytes} bytes")
            if self._bytes > self._limits.total_bytes:
                raise PackageError(f"{self._source} unpacks to more than {self._limits.total_bytes} bytes")
            target.write(chunk)

    def _checked(self, name: str) -> list[str]:
        """The parts of a safe relative path."""
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
        """Note the path and its folders. Refuse a name twice, a file that is a folder, and names too much alike."""
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


def unpack_zip(source: Path, writer: Writer) -> None:
    """Every entry of a .zip. Raises PackageError."""
    try:
        with zipfile.ZipFile(source) as archive:
            entries = archive.infolist()
            if len(entries) > 2 * writer.limits.files:
                raise PackageError(f"{source.name} holds more than {writer.limits.files} files")
            for entry in entries:
                _zip_entry(archive, entry, writer)
    except PackageError:
        raise
    except Exception as error:
        raise _damaged(source, error) from None


def _zip_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, writer: Writer) -> None:
    mode = entry.external_attr >> 16
    if entry.flag_bits & 1:
        raise writer.refused(entry.filename, "is encrypted")
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise writer.refused(entry.filename, "is a link or a device; only files and folders are taken")
    if entry.orig_filename != entry.filename:
        raise writer.refused(entry.orig_filename, "has a NUL in its name, or '\\' for '/'")
    if entry.is_dir():
        writer.folder(entry.filename)
        return
    with archive.open(entry) as content:
        writer.file(entry.filename, content, bool(mode & 0o100))


def unpack_tar(source: Path, writer: Writer) -> None:
    """Every entry of a .tar.gz. Raises PackageError."""
    try:
        with gzip.open(source) as stream:
            bounded = BoundedReader(cast(IO[bytes], stream), source.name, writer.limits.total_bytes, _CHUNK)
            headers = bounded_header(source.name)
            with tarfile.open(fileobj=cast(IO[bytes], bounded), mode="r:", tarinfo=headers) as archive:
                for entry in archive:
                    _tar_entry(archive, entry, writer)
                    archive.members.clear()  # type: ignore[attr-defined]  # or each entry stays in memory
    except PackageError:
        raise
    except Exception as error:
        raise _damaged(source, error) from None


def _tar_entry(archive: tarfile.TarFile, entry: tarfile.TarInfo, writer: Writer) -> None:
    if entry.size < 0:
        raise writer.refused(entry.name, "has a negative size")
    if entry.isdir():
        writer.folder(entry.name)
        return
    if not entry.isreg() or entry.issparse():
        raise writer.refused(entry.name, "is a link or a device; only files and folders are taken")
    content = archive.extractfile(entry)
    assert content is not None
    with content:
        writer.file(entry.name, content, bool(entry.mode & 0o100))


def _damaged(source: Path, error: Exception) -> Exception:
    """What to raise for ``error``: damage shows as any of a dozen; what the system refused stays as it is."""
    if isinstance(error, MemoryError):
        return PackageError(f"{source.name} takes more memory to look through than is allowed")
    if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
        return error  # the disk is full, a file cannot be read
    return PackageError(f"{source.name} is not a sound archive: {error or type(error).__name__}")
