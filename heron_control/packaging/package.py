"""Staging of the user's package: copied or unpacked into a folder that instances put on ``sys.path``.

The source is a .py file, a folder, a .zip or a .tar.gz, and is treated as hostile, because an archive may come from
anywhere. The content is checked while it is written (``writer``, ``archive``), in a new folder next to the destination.
Only a complete package is renamed to the destination. Layout of the result::

    FOLDER/word_count.py        a file
    FOLDER/wordcount/…          a package (a folder with __init__.py)
    FOLDER/…                    the content of any other folder
    FOLDER/requirements/        installed requirements.txt, linked from the cache

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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, cast

from heron_control.packaging.archive import ArchiveLimits, PackageWriter, unpack_tar
from heronry.api.errors import PackageError

REQUIREMENTS = "requirements"
REQUIREMENTS_FILE = "requirements.txt"
ARCHIVES = (".zip", ".tar.gz", ".tgz")
_NEVER_SHIPPED = ("__pycache__", ".git", ".hg", ".svn", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox")


@dataclass(frozen=True, slots=True)
class StagedPackage:
    """Folder of a package, and the argument for ``define_topology``.

    ``entry`` is the user's own .py file, if there is one, so that configuration paths relative to ``__file__`` stay
    valid; otherwise the folder. (Code in a folder finds its data at run time, in ``initialize``.)
    """

    root: Path
    entry: Path
    requirements: Path | None  # its requirements.txt


def stage_package(source: Path, destination: Path, limits: ArchiveLimits | None = None) -> StagedPackage:
    """Copy or unpack ``source`` into ``destination``, which must be absent or empty.

    Raises:
        PackageError: The source is refused; the message says why.
        FileNotFoundError: The source does not exist.
        OSError: The destination cannot be written.
    """
    source, destination = Path(source), Path(destination)
    if not source.exists():
        raise FileNotFoundError(2, "no such file or folder", str(source))
    if not source.is_file() and not source.is_dir():  # for example an endless pipe or a device
        raise PackageError(f"{source} is neither a file nor a folder; give a .py file, a folder, a .zip or a .tar.gz")
    if destination.exists() and any(destination.iterdir()):
        raise PackageError(f"{destination} is not empty; a package is staged into an empty folder")
    destination.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{destination.name}-", dir=destination.parent))
    try:
        content = work / "content"
        content.mkdir()
        writer = PackageWriter(content, source.name, limits or ArchiveLimits())
        _fill(source, writer)
        ready = _unwrapped(content) if source.name.endswith(ARCHIVES) else content
        if not any(ready.iterdir()):
            raise PackageError(f"{source.name} holds no files")
        os.replace(ready, destination)  # onto an empty folder, or nothing
    finally:
        shutil.rmtree(work, ignore_errors=True)
    package = open_staged_package(destination)
    return replace(package, entry=source.absolute()) if source.suffix == ".py" and source.is_file() else package


def open_staged_package(root: Path) -> StagedPackage:
    """Return the package that was staged in ``root``."""
    entries = [entry for entry in sorted(root.iterdir()) if entry.name != REQUIREMENTS]
    entry = root
    if len(entries) == 1 and (entries[0].suffix == ".py" or (entries[0] / "__init__.py").is_file()):
        entry = entries[0]
    places = (root / REQUIREMENTS_FILE, entry / REQUIREMENTS_FILE)
    return StagedPackage(root, entry, next((place for place in places if place.is_file()), None))


def import_paths(root: Path) -> list[str]:
    """Return the entries of ``sys.path`` for a staged package: its own modules, then its requirements."""
    return [str(folder) for folder in (root, root / REQUIREMENTS) if folder.is_dir()]


def _fill(source: Path, writer: PackageWriter) -> None:
    if source.is_dir():
        prefix = f"{source.name}/" if (source / "__init__.py").is_file() else ""
        for file in _files_of(source):
            _copy(file, prefix + file.relative_to(source).as_posix(), writer)
    elif source.suffix == ".py":
        _copy(source, source.name, writer)
    elif source.suffix == ".zip":
        from heron_control.packaging.archive import unpack_zip  # imported here: most packages are not archives

        unpack_zip(source, writer)
    elif source.name.endswith(ARCHIVES):
        from heron_control.packaging.archive import unpack_tar

        unpack_tar(source, writer)
    else:
        raise PackageError(f"{source.name} is not a package; give a .py file, a folder, a .zip or a .tar.gz")


def _copy(file: Path, name: str, writer: PackageWriter) -> None:
    with file.open("rb") as content:
        writer.file(name, content, bool(file.stat().st_mode & 0o100))


def _files_of(folder: Path) -> Iterator[Path]:
    """Yield the files to ship, in order.

    Raises:
        PackageError: A file is a link, which would point elsewhere on another machine.
    """
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _skipped(Path(place, name)))
        for name in [*folders, *sorted(files)]:
            path = Path(place, name)
            if path.is_symlink():
                raise PackageError(
                    f"{path} is a symbolic link, which is not shipped; replace it with its target, or remove it"
                )
            if name in folders or path.suffix == ".pyc":
                continue
            if not path.is_file():
                raise PackageError(f"{path} is neither a file nor a folder; remove it")
            yield path


def _skipped(folder: Path) -> bool:
    return folder.name in _NEVER_SHIPPED or (folder / "pyvenv.cfg").is_file()


def _unwrapped(content: Path) -> Path:
    """Return the content of a single wrapping folder, unless that folder is a package."""
    entries = list(content.iterdir())
    if len(entries) == 1 and entries[0].is_dir() and not (entries[0] / "__init__.py").is_file():
        return entries[0]
    return content


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
