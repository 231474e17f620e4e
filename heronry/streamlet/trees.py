"""File trees: the files of a source, below a path of this machine or at a URL that fsspec supports (url_tree.py).

Theory of operation. A *tree* lists the files below its root, by names relative to it, and opens them. reading.py reads
their contents. A file may have a *version*, which a reader keeps with its position. The version must be unchanged when
the file is opened, and once more at its end. Otherwise the data read would not be of a single file. Files on this
machine have no versions: writers to local folders are trusted to follow the rules.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from heronry.streamlet.endpoints import FileSource, is_url

LOOK_SECONDS = 0.2
log = logging.getLogger(__name__)


class Seen(NamedTuple):
    """Listed file. ``version`` is empty on this machine."""

    size: int
    version: str = ""


Listing = Mapping[str, Seen]


def joined(files: Iterable[Seen]) -> Seen:
    """Return the entry of a folder of files that is read as one, in the order of their names."""
    sizes, versions = zip(*files, strict=True)
    text = " ".join(versions).strip()
    return Seen(sum(sizes), hashlib.sha256(text.encode()).hexdigest()[:16] if text else "")


class FileTree(Protocol):
    """Interface of the files of one source.

    Methods raise FileNotFoundError. They also raise other OSErrors on this machine, and ConnectError and ReadError at a
    URL.
    """

    look_seconds: float  # minimum time between two listings
    appended: bool  # True if lines may be appended to a file

    def listed(self) -> Listing | None:
        """Return the current files, in no particular order.

        The name is ``""`` if the root is a file itself. None if the root does not exist.
        """

    def size(self, name: str) -> int:
        """Return the size in bytes of a file that grows, now or as of the last listing.

        Raises:
            FileNotFoundError: The file does not exist.
        """

    def inside(self, name: str) -> list[str]:
        """Return the files in a folder, in order, without those in its subfolders. For a file, return the file."""

    def open(self, name: str, version: str = "") -> BinaryIO:
        """Open a file for reading its bytes.

        Raises:
            ReadError: The file no longer has this version.
        """

    def columns(self, name: str, version: str = "") -> Any:
        """Open a file for pyarrow. Otherwise as ``open``."""

    def check(self, name: str, version: str) -> None:
        """Check the version of a file at its end.

        Raises:
            ReadError: The file no longer has this version.
        """

    def close(self) -> None:
        """Close the store."""


def whole_name(source: FileSource[Any], name: str) -> str:
    """Return the full name of a file, for messages, and for fields in its path. URLs of sources contain no secrets."""
    if not is_url(source.path):
        return str(Path(source.path, name) if name else Path(source.path))
    return f"{source.path.rstrip('/')}/{name}" if name else source.path


def is_hidden(name: str) -> bool:
    """Return True for a file or folder that no engine reads. Hadoop copies under names ``NAME._COPYING_``."""
    return name.startswith((".", "_")) or name.endswith("._COPYING_")


class LocalFileTree:
    """Files on this machine. Links to files are followed, as at URLs.

    ``skipped`` has the paths that the last listing has omitted, with the reason. Links to folders are omitted, because
    their contents may be in the tree under another name, or the link may be circular.
    """

    look_seconds, appended = LOOK_SECONDS, True

    def __init__(self, source: FileSource[Any], *, quiet: bool = False) -> None:
        self._root, self._quiet = Path(source.path), quiet
        self._told: set[str] = set()
        self.skipped: dict[str, str] = {}

    def listed(self) -> Listing | None:
        """List the files, without their sizes. See FileTree."""
        if self._root.is_file():
            return {"": Seen(0)}
        if not self._root.is_dir():
            return None
        self.skipped = {}
        files = {name: Seen(0) for name in self._below(str(self._root), "")}
        for path, why in self.skipped.items():
            if path not in self._told and not self._quiet:
                self._told.add(path)
                log.warning("%s is not read: it is %s", path, why)
        return files

    def _below(self, folder: str, prefix: str) -> Iterator[str]:
        """Yield the names of the files in a folder and its subfolders, each after ``prefix``."""
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            for entry in entries:
                if is_hidden(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    yield from self._below(entry.path, f"{prefix}{entry.name}/")
                elif entry.is_symlink() and _is_circular(entry):
                    self.skipped[entry.path] = "a link to itself"
                elif entry.is_file():
                    yield prefix + entry.name
                elif entry.is_symlink():
                    self.skipped[entry.path] = "a link to a folder" if entry.is_dir() else "a link to nothing"
                else:
                    self.skipped[entry.path] = "not a file or folder"

    def size(self, name: str) -> int:
        """Return the current size of a file. See FileTree."""
        return self._path(name).stat().st_size

    def _path(self, name: str) -> Path:
        return self._root / name if name else self._root

    def inside(self, name: str) -> list[str]:
        """Return the files in a folder. See FileTree."""
        place = self._path(name)
        if place.is_file():
            return [name]
        files = (path for path in place.iterdir() if path.is_file() and not is_hidden(path.name))
        return sorted(path.relative_to(self._root).as_posix() for path in files)

    def open(self, name: str, version: str = "") -> BinaryIO:
        """Open a file. See FileTree."""
        return self._path(name).open("rb")

    def columns(self, name: str, version: str = "") -> Any:
        """Return the path: pyarrow opens it itself, which is faster. See FileTree."""
        return self._path(name)

    def check(self, name: str, version: str) -> None:
        """Do nothing: local files have no versions."""

    def close(self) -> None:
        """Do nothing: a local tree has no store to close."""


def _is_circular(link: os.DirEntry[str]) -> bool:
    try:
        link.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def tree_of(source: FileSource[Any]) -> FileTree:
    """Return the file tree of a source.

    Raises:
        ConnectError: A store cannot be opened.
    """
    if not is_url(source.path):
        return LocalFileTree(source)
    from heronry.streamlet.url_tree import UrlFileTree  # imported only if URLs are read

    return UrlFileTree(source)
