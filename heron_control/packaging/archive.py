"""Unpacking of untrusted archives, and the writer for the files of an untrusted package.

The content is written by a ``PackageWriter``. Links, devices, encrypted and damaged entries are refused here.

tarfile reads *extended headers* (long names, pax records) as a whole. It keeps those of an entry on its stack, one call
for each, and those for all entries for as long as the archive is open. So their sizes, their number per entry and their
total are limited here, on each block of 512 bytes as it is read.

``PackageWriter`` builds its own paths from checked parts of every name, below a folder that was new and empty and in
which it never creates a link. So nothing can be written outside. Refused are ``..`` and absolute names, names that
differ only in case or in the encoding of accents, duplicate names, and more files, bytes or depth than the limits.
Sizes are counted from the bytes written, not from headers.
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import stat
import tarfile
import unicodedata
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self, cast

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


HEADER_BYTES = 64 * 1024  # limit of one extended header, and of those for all entries together
HEADERS_OF_ENTRY = 8
HEADERS_BYTES = 128 << 20  # limit of all headers with their blocks, and thereby of their number
_EXTENDED = (
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE,
)  # fmt: skip


def bounded_header(source: str) -> type[tarfile.TarInfo]:
    """Return the header class for one archive, whose name ``source`` stands in a PackageError."""
    of_entry = of_all = in_all = 0

    class Header(tarfile.TarInfo):
        """Tar header that raises PackageError above a limit."""

        __slots__ = ()

        @classmethod
        def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
            """Parse a header block. tarfile calls this for every header."""
            nonlocal of_entry, of_all, in_all
            header = super().frombuf(buf, encoding, errors)
            if header.type not in _EXTENDED:
                of_entry = 0
                return header
            of_entry += 1
            in_all += tarfile.BLOCKSIZE + header.size
            of_all += header.size if header.type == tarfile.XGLTYPE else 0
            if max(header.size, of_all) > HEADER_BYTES:
                raise PackageError(
                    f"{source} holds a header of {max(header.size, of_all)} bytes; the limit is {HEADER_BYTES}"
                )
            if of_entry > HEADERS_OF_ENTRY:
                raise PackageError(f"{source} holds an entry with more than {HEADERS_OF_ENTRY} headers")
            if in_all > HEADERS_BYTES:
                raise PackageError(f"the headers in {source} take more than {HEADERS_BYTES} bytes")
            return header

    return Header


class BoundedReader(io.RawIOBase):
    """Input of tarfile, with limits on a single read and on the total."""

    def __init__(self, stream: IO[bytes], source: str, total_bytes: int, most_at_a_time: int) -> None:
        super().__init__()
        self._stream = stream
        self._source = source
        self._at_a_time = most_at_a_time
        self._most = 2 * total_bytes + most_at_a_time

    def read(self, size: int = -1) -> bytes:
        """Read up to ``size`` bytes.

        Raises:
            PackageError: A limit is exceeded.
        """
        if size < 0 or size > self._at_a_time:
            raise PackageError(f"{self._source} holds a header of {size} bytes")
        self._check(self._stream.tell() + size)
        return self._stream.read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move forward.

        Raises:
            PackageError: A limit is exceeded.
        """
        if whence == io.SEEK_SET:
            self._check(offset)
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        """Return the position."""
        return self._stream.tell()

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return True."""
        return True

    def _check(self, position: int) -> None:
        if not 0 <= position <= self._most:
            raise PackageError(f"{self._source} unpacks to more than {self._most} bytes")


def unpack_zip(source: Path, writer: PackageWriter) -> None:
    """Unpack every entry of a .zip.

    Raises:
        PackageError: The archive is damaged or an entry is refused.
    """
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


def _zip_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, writer: PackageWriter) -> None:
    mode = entry.external_attr >> 16
    if entry.flag_bits & 1:
        raise writer.refused(entry.filename, "is encrypted")
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise writer.refused(entry.filename, "is a link or a device; only files and folders are accepted")
    if entry.orig_filename != entry.filename:
        raise writer.refused(entry.orig_filename, "has a NUL in its name, or '\\' for '/'")
    if entry.is_dir():
        writer.folder(entry.filename)
        return
    with archive.open(entry) as content:
        writer.file(entry.filename, content, bool(mode & 0o100))


def unpack_tar(source: Path, writer: PackageWriter) -> None:
    """Unpack every entry of a .tar.gz.

    Raises:
        PackageError: The archive is damaged or an entry is refused.
    """
    try:
        with gzip.open(source) as stream:
            bounded = BoundedReader(cast(IO[bytes], stream), source.name, writer.limits.total_bytes, CHUNK)
            headers = bounded_header(source.name)
            with tarfile.open(fileobj=cast(IO[bytes], bounded), mode="r:", tarinfo=headers) as archive:
                for entry in archive:
                    _tar_entry(archive, entry, writer)
                    archive.members.clear()  # type: ignore[attr-defined]  # or each entry stays in memory
    except PackageError:
        raise
    except Exception as error:
        raise _damaged(source, error) from None


def _tar_entry(archive: tarfile.TarFile, entry: tarfile.TarInfo, writer: PackageWriter) -> None:
    if entry.size < 0:
        raise writer.refused(entry.name, "has a negative size")
    if entry.isdir():
        writer.folder(entry.name)
        return
    if not entry.isreg() or entry.issparse():
        raise writer.refused(entry.name, "is a link or a device; only files and folders are accepted")
    content = archive.extractfile(entry)
    assert content is not None
    with content:
        writer.file(entry.name, content, bool(entry.mode & 0o100))


def _damaged(source: Path, error: Exception) -> Exception:
    """Return the exception to raise for ``error``. Damage has many types; system errors stay as they are."""
    if isinstance(error, MemoryError):
        return PackageError(f"{source.name}: reading it takes more memory than allowed")
    if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
        return error  # for example a full disk or an unreadable file
    return PackageError(f"{source.name}: damaged archive: {error or type(error).__name__}")
