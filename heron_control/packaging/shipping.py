"""Transfer of staged packages: ``pack_package`` at the sender, ``unpack_package`` at the receiver.

The same files always give the same bytes (sorted names, no times, no owners), so the digest of the archive names its
content, and a package is sent only once. The receiver trusts nothing: ``heron_control.packaging.archive`` checks each
entry, and ``check_package`` counts what an archive would unpack to without writing it.
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
from heron_control.packaging.writer import ArchiveLimits, PackageWriter
from heronry.api.errors import PackageError

DIGEST = re.compile(r"[0-9a-f]{64}")
LIMITS = ArchiveLimits(files=50_000, total_bytes=2 << 30, file_bytes=1 << 30)  # requirements are part of what is sent
_COMPRESSION = 6  # higher levels take several times as long and save a few per cent


def is_digest(text: str) -> bool:
    """Return True for a SHA-256 as written by this module. Such a text is safe in a file name."""
    return DIGEST.fullmatch(text) is not None


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file in hex.

    Raises:
        OSError: The file cannot be read.
    """
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def pack_package(root: Path, target: Path) -> str:
    """Write the staged package ``root`` to ``target`` (tar.gz) and return its digest.

    ``requirements/`` is a link into the cache of this machine; the files in it are sent.

    Raises:
        OSError: A file cannot be read or written.
    """
    with (
        target.open("xb") as raw,
        # Omit time and name from gzip's header, since they would change the digest.
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=_COMPRESSION, mtime=0) as stream,
        tarfile.open(fileobj=cast(IO[bytes], stream), mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path, name in _packed_files(root):
            entry = tarfile.TarInfo(name)
            entry.size = path.stat().st_size
            entry.mode = 0o755 if os.access(path, os.X_OK) else 0o644
            with path.open("rb") as content:
                archive.addfile(entry, content)
    return digest_of(target)


def _packed_files(root: Path) -> Iterator[tuple[Path, str]]:
    """Return the files with their names in the package, sorted, without compiled code."""
    for place, folders, files in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            path = Path(place, name)
            if path.suffix != ".pyc" and path.is_file():
                yield path, path.relative_to(root).as_posix()


def check_package(archive: Path, limits: ArchiveLimits | None = None) -> None:
    """Read the whole archive without writing anything.

    Raises:
        PackageError: ``unpack_package`` would refuse it.
    """
    writer = _Counter(archive, limits or LIMITS)
    unpack_tar(archive, writer)
    if not writer.files:
        raise PackageError(f"{archive.name} holds no files")


def unpack_package(archive: Path, destination: Path, limits: ArchiveLimits | None = None) -> None:
    """Unpack into ``destination``, which must be absent, completely or not at all.

    Raises:
        PackageError: The archive is refused.
        OSError: The destination cannot be written.
    """
    destination.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    work = Path(tempfile.mkdtemp(prefix=f".{destination.name}-", dir=destination.parent))
    try:
        content = work / "content"
        content.mkdir(mode=0o700)
        unpack_tar(archive, PackageWriter(content, archive.name, limits or LIMITS))
        if not any(content.iterdir()):
            raise PackageError(f"{archive.name} holds no files")
        os.rename(content, destination)
    finally:
        shutil.rmtree(work, ignore_errors=True)


class _Counter(PackageWriter):
    """Writer that counts and checks, and discards the content."""

    def __init__(self, archive: Path, limits: ArchiveLimits) -> None:
        super().__init__(Path(os.devnull), archive.name, limits)
        self.files = 0

    def folder(self, name: str) -> None:
        """Check the name of a folder.

        Raises:
            PackageError: The name is refused.
        """
        self.admit(name, is_file=False)

    def file(self, name: str, content: IO[bytes], executable: bool = False) -> None:
        """Check and count one file.

        Raises:
            PackageError: The file is refused.
        """
        self.admit(name, is_file=True)
        self.files += 1
        with open(os.devnull, "wb") as nowhere:
            self.pour(name, content, nowhere)
