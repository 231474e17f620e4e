"""The user's package, made ready to ship: copied or unpacked into a folder that instances put on ``sys.path``.

What comes in may be a .py file, a folder, a .zip or a .tar.gz, and is treated as hostile: an archive may have been
fetched from anywhere. The checks are ours (``writer`` writes what ``archive`` unpacks), the work is done in a new
folder beside the destination, and only a whole package gets the destination's name. Layout of the result::

    FOLDER/word_count.py        a file
    FOLDER/wordcount/…          a package (a folder with __init__.py)
    FOLDER/…                    the content of any other folder
    FOLDER/requirements/        what requirements.txt asks for, linked from the cache
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from heron_control.packaging.writer import ArchiveLimits, Writer
from heronry.api.errors import PackageError

REQUIREMENTS = "requirements"
REQUIREMENTS_FILE = "requirements.txt"
ARCHIVES = (".zip", ".tar.gz", ".tgz")
_NEVER_SHIPPED = ("__pycache__", ".git", ".hg", ".svn", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox")


@dataclass(frozen=True, slots=True)
class StagedPackage:
    """Where the package lies, and what to give ``define_topology``.

    ``entry`` is the user's own .py file where there is one, so that paths it makes from ``__file__`` for its
    configuration stay true; else the folder here. (Code in a folder finds its data at run time, in ``initialize``.)
    """

    root: Path
    entry: Path
    requirements: Path | None  # its requirements.txt


def stage_package(source: Path, destination: Path, limits: ArchiveLimits | None = None) -> StagedPackage:
    """Copy or unpack ``source`` into ``destination``, which must be absent or empty.

    Raises PackageError (what is refused, and why), FileNotFoundError and other OSError.
    """
    source, destination = Path(source), Path(destination)
    if not source.exists():
        raise FileNotFoundError(2, "there is no such file or folder", str(source))
    if not source.is_file() and not source.is_dir():  # a pipe would never end, and a device has no bytes of its own
        raise PackageError(f"{source} is neither a file nor a folder; give a .py file, a folder, a .zip or a .tar.gz")
    if destination.exists() and any(destination.iterdir()):
        raise PackageError(f"{destination} is not empty; a package is staged into a folder of its own")
    destination.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{destination.name}-", dir=destination.parent))
    try:
        content = work / "content"
        content.mkdir()
        writer = Writer(content, source.name, limits or ArchiveLimits())
        _fill(source, writer)
        ready = _unwrapped(content) if source.name.endswith(ARCHIVES) else content
        if not any(ready.iterdir()):
            raise PackageError(f"{source.name} holds no files")
        os.replace(ready, destination)  # onto an empty folder, or nothing
    finally:
        shutil.rmtree(work, ignore_errors=True)
    package = staged(destination)
    return replace(package, entry=source.absolute()) if source.suffix == ".py" and source.is_file() else package


def staged(root: Path) -> StagedPackage:
    """The package that lies in ``root`` already."""
    entries = [entry for entry in sorted(root.iterdir()) if entry.name != REQUIREMENTS]
    entry = root
    if len(entries) == 1 and (entries[0].suffix == ".py" or (entries[0] / "__init__.py").is_file()):
        entry = entries[0]
    places = (root / REQUIREMENTS_FILE, entry / REQUIREMENTS_FILE)
    return StagedPackage(root, entry, next((place for place in places if place.is_file()), None))


def import_paths(root: Path) -> list[str]:
    """What a staged package adds to ``sys.path``, in this order: its own modules first, then its requirements."""
    return [str(folder) for folder in (root, root / REQUIREMENTS) if folder.is_dir()]


def _fill(source: Path, writer: Writer) -> None:
    if source.is_dir():
        prefix = f"{source.name}/" if (source / "__init__.py").is_file() else ""
        for file in _files_of(source):
            _copy(file, prefix + file.relative_to(source).as_posix(), writer)
    elif source.suffix == ".py":
        _copy(source, source.name, writer)
    elif source.suffix == ".zip":
        from heron_control.packaging.archive import unpack_zip  # here, since most packages are no archives

        unpack_zip(source, writer)
    elif source.name.endswith(ARCHIVES):
        from heron_control.packaging.archive import unpack_tar

        unpack_tar(source, writer)
    else:
        raise PackageError(f"{source.name} is no package; give a .py file, a folder, a .zip or a .tar.gz")


def _copy(file: Path, name: str, writer: Writer) -> None:
    with file.open("rb") as content:
        writer.file(name, content, bool(file.stat().st_mode & 0o100))


def _files_of(folder: Path) -> Iterator[Path]:
    """The files to ship, in order. Raises PackageError for a link, which would point elsewhere on another machine."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _skipped(Path(place, name)))
        for name in [*folders, *sorted(files)]:
            path = Path(place, name)
            if path.is_symlink():
                raise PackageError(
                    f"{path} is a symbolic link, which is not shipped; replace it by what it points to, or remove it"
                )
            if name in folders or path.suffix == ".pyc":
                continue
            if not path.is_file():
                raise PackageError(f"{path} is neither a file nor a folder; remove it")
            yield path


def _skipped(folder: Path) -> bool:
    return folder.name in _NEVER_SHIPPED or (folder / "pyvenv.cfg").is_file()


def _unwrapped(content: Path) -> Path:
    """An archive often holds one folder with everything in it; if that is no package, its content is what is meant."""
    entries = list(content.iterdir())
    if len(entries) == 1 and entries[0].is_dir() and not (entries[0] / "__init__.py").is_file():
        return entries[0]
    return content
