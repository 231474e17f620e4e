"""Staging of the user's package: copied or unpacked into a folder that instances put on ``sys.path``.

The source is a .py file, a folder, a .zip or a .tar.gz, and is treated as hostile, because an archive may come from
anywhere. The content is checked while it is written (``writer``, ``archive``), in a new folder next to the destination.
Only a complete package is renamed to the destination. Layout of the result::

    FOLDER/word_count.py        a file
    FOLDER/wordcount/…          a package (a folder with __init__.py)
    FOLDER/…                    the content of any other folder
    FOLDER/requirements/        installed requirements.txt, linked from the cache
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from heron_control.packaging.writer import ArchiveLimits, PackageWriter
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
