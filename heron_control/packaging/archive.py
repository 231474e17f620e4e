"""Unpacking an archive nobody vouches for.

What comes out goes through a ``Writer``. Refused here: links, devices, what is encrypted, what is damaged. What headers
themselves may ask for stands in ``tar_headers``.
"""

from __future__ import annotations

import errno
import gzip
import stat
import tarfile
import zipfile
from pathlib import Path
from typing import IO, cast

from heron_control.packaging.tar_headers import BoundedReader, bounded_header
from heron_control.packaging.writer import CHUNK, Writer
from heronry.api.errors import PackageError


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
