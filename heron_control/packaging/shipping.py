"""A staged package as one file, to be sent elsewhere: ``pack_package`` there, ``unpack_package`` here.

The same files always give the same bytes (sorted names, no times, no owners), so the digest of the file names its
content: a package is sent once, whoever submits it. Who receives one trusts nothing:
``heron_control.packaging.archive`` checks each entry, and ``check_package`` counts what an archive would unpack to
without writing any of it.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from heron_control.packaging.archive import unpack_tar
from heron_control.packaging.writer import ArchiveLimits, Writer
from heronry.api.errors import PackageError

DIGEST = re.compile(r"[0-9a-f]{64}")
LIMITS = ArchiveLimits(files=50_000, total_bytes=2 << 30, file_bytes=1 << 30)  # requirements are part of what is sent
_COMPRESSION = 6  # a higher one takes several times as long for a few per cent


def is_digest(text: str) -> bool:
    """True for a SHA-256 as this module writes it; such a text can stand in a file name."""
    return DIGEST.fullmatch(text) is not None


def digest_of(file: Path) -> str:
    """The SHA-256 of a file, in hex. Raises OSError."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def pack_package(root: Path, target: Path) -> str:
    """Write the staged package ``root`` to ``target`` (tar.gz); returns its digest. Raises OSError.

    ``requirements/`` is a link into the cache where it was installed; what is sent are the files behind it.
    """
    with (
        target.open("xb") as raw,
        # Neither time nor name in gzip's header: they would change the digest.
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=_COMPRESSION, mtime=0) as stream,
        tarfile.open(fileobj=cast(IO[bytes], stream), mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path, name in _files_of(root):
            entry = tarfile.TarInfo(name)
            entry.size = path.stat().st_size
            entry.mode = 0o755 if os.access(path, os.X_OK) else 0o644
            with path.open("rb") as content:
                archive.addfile(entry, content)
    return digest_of(target)


def _files_of(root: Path) -> Iterator[tuple[Path, str]]:
    """Every file and its name in the package, sorted; compiled code is left out, it is made again."""
    for place, folders, files in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            path = Path(place, name)
            if path.suffix != ".pyc" and path.is_file():
                yield path, path.relative_to(root).as_posix()


def check_package(archive: Path, limits: ArchiveLimits | None = None) -> None:
    """Go through all of it and write nothing. Raises PackageError for what ``unpack_package`` would refuse."""
    writer = _Counter(archive, limits or LIMITS)
    unpack_tar(archive, writer)
    if not writer.files:
        raise PackageError(f"{archive.name} holds no files")


def unpack_package(archive: Path, destination: Path, limits: ArchiveLimits | None = None) -> None:
    """Unpack into ``destination``, which must be absent: all of it, or nothing. Raises PackageError, OSError."""
    destination.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    work = Path(tempfile.mkdtemp(prefix=f".{destination.name}-", dir=destination.parent))
    try:
        content = work / "content"
        content.mkdir(mode=0o700)
        unpack_tar(archive, Writer(content, archive.name, limits or LIMITS))
        if not any(content.iterdir()):
            raise PackageError(f"{archive.name} holds no files")
        os.rename(content, destination)
    finally:
        shutil.rmtree(work, ignore_errors=True)


class _Counter(Writer):
    """A writer that counts and checks like any other, and throws away what it reads."""

    def __init__(self, archive: Path, limits: ArchiveLimits) -> None:
        super().__init__(Path(os.devnull), archive.name, limits)
        self.files = 0

    def folder(self, name: str) -> None:
        """Check a folder's name. Raises PackageError."""
        self.admit(name, is_file=False)

    def file(self, name: str, content: IO[bytes], executable: bool = False) -> None:
        """Check and count one file. Raises PackageError."""
        self.admit(name, is_file=True)
        self.files += 1
        with open(os.devnull, "wb") as nowhere:
            self.pour(name, content, nowhere)
