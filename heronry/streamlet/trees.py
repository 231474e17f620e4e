"""Where the files of a source are: below a path of this machine, or at a URL that fsspec knows (url_tree.py).

Theory of operation. A *tree* lists the files below its root, by names relative to it, and opens them at any place; what
is in them is reading.py's. A file may have a *version*, which whoever reads it keeps with its position: when it is
opened, and once more at its end, the version must still be that one, or what was read is no one file's. On this machine
there are none: whoever may write to a folder there is trusted to keep to its rules.
"""

from __future__ import annotations

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
    """A file as it was listed; ``version`` is empty on this machine."""

    size: int
    version: str = ""


Listing = Mapping[str, Seen]


def joined(files: Iterable[Seen]) -> Seen:
    """A folder of files that is read as one, in the order of their names."""
    sizes, versions = zip(*files, strict=True)
    told = " ".join(versions).strip()
    return Seen(sum(sizes), hashlib.sha256(told.encode()).hexdigest()[:16] if told else "")


class Tree(Protocol):
    """The files of one source. Methods raise FileNotFoundError, other OSErrors on this machine, ConnectError and
    ReadError at a URL."""

    look_seconds: float  # between two listings, at the least
    appended: bool  # lines may come at the end of a file

    def listed(self) -> Listing | None:
        """The files there are now, in no order; ``""`` if the root is a file itself; None if it is not there."""

    def size(self, name: str) -> int:
        """Bytes of a file that grows, as it was listed last or now. Raises FileNotFoundError."""

    def inside(self, name: str) -> list[str]:
        """The files in a folder, in order, without those in folders of it; a file stands for itself."""

    def open(self, name: str, version: str = "") -> BinaryIO:
        """Its bytes. Raises ReadError if it is not of this version any more."""

    def columns(self, name: str, version: str = "") -> Any:
        """The same, for pyarrow."""

    def check(self, name: str, version: str) -> None:
        """At its end. Raises ReadError if it is not of this version any more."""

    def close(self) -> None:
        """Let go of the store."""


def whole_name(source: FileSource[Any], name: str) -> str:
    """A file's, for people, and for the fields that stand in it. URLs of sources hold no secrets."""
    if not is_url(source.path):
        return str(Path(source.path, name) if name else Path(source.path))
    return f"{source.path.rstrip('/')}/{name}" if name else source.path


def is_hidden(name: str) -> bool:
    """Return True for a file or folder that no engine reads; Hadoop copies under names ``NAME._COPYING_``."""
    return name.startswith((".", "_")) or name.endswith("._COPYING_")


class LocalTree:
    """Files on this machine, also behind links to files, as at URLs.

    ``skipped``: what the last listing has left out, path → why. Folders behind links are left out, for what they hold
    may lie in the tree under another name, or around the link.
    """

    look_seconds, appended = LOOK_SECONDS, True

    def __init__(self, source: FileSource[Any], *, quiet: bool = False) -> None:
        self._root, self._quiet = Path(source.path), quiet
        self._told: set[str] = set()
        self.skipped: dict[str, str] = {}

    def listed(self) -> Listing | None:
        """See Tree; sizes are not looked at."""
        if self._root.is_file():
            return {"": Seen(0)}
        if not self._root.is_dir():
            return None
        self.skipped = {}
        found = {name: Seen(0) for name in self._below(str(self._root), "")}
        for path, why in self.skipped.items():
            if path not in self._told and not self._quiet:
                self._told.add(path)
                log.warning("%s is not read: it is %s", path, why)
        return found

    def _below(self, folder: str, prefix: str) -> Iterator[str]:
        """Yield the names of the files in a folder and its folders, each behind ``prefix``."""
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            for entry in entries:
                if is_hidden(entry.name):
                    continue
                if entry.is_file():
                    yield prefix + entry.name
                elif entry.is_dir(follow_symlinks=False):
                    yield from self._below(entry.path, f"{prefix}{entry.name}/")
                elif entry.is_symlink():
                    self.skipped[entry.path] = "a link to a folder" if entry.is_dir() else "a link to nothing"
                else:
                    self.skipped[entry.path] = "neither a file nor a folder"

    def size(self, name: str) -> int:
        """See Tree."""
        return self._path(name).stat().st_size

    def _path(self, name: str) -> Path:
        return self._root / name if name else self._root

    def inside(self, name: str) -> list[str]:
        """See Tree."""
        place = self._path(name)
        if place.is_file():
            return [name]
        found = (path for path in place.iterdir() if path.is_file() and not is_hidden(path.name))
        return sorted(path.relative_to(self._root).as_posix() for path in found)

    def open(self, name: str, version: str = "") -> BinaryIO:
        """See Tree."""
        return self._path(name).open("rb")

    def columns(self, name: str, version: str = "") -> Any:
        """See Tree; pyarrow opens it itself, which is faster."""
        return self._path(name)

    def check(self, name: str, version: str) -> None:
        """There are no versions."""

    def close(self) -> None:
        """There is nothing."""


def tree_of(source: FileSource[Any]) -> Tree:
    """Where a source's files are. Raises ConnectError if a store cannot be opened."""
    if not is_url(source.path):
        return LocalTree(source)
    from heronry.streamlet.url_tree import UrlTree  # who reads no URLs needs nothing of it

    return UrlTree(source)
