"""Unpacking of untrusted archives.

The content is written by a ``PackageWriter``. Links, devices, encrypted and damaged entries are refused here.

tarfile reads *extended headers* (long names, pax records) as a whole. It keeps those of an entry on its stack, one call
for each, and those for all entries for as long as the archive is open. So their sizes, their number per entry and their
total are limited here, on each block of 512 bytes as it is read.
"""

from __future__ import annotations

import errno
import gzip
import io
import stat
import tarfile
import zipfile
from pathlib import Path
from typing import IO, Self, cast

from heron_control.packaging.writer import CHUNK, PackageWriter
from heronry.api.errors import PackageError

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
