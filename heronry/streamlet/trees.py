"""Where the files of a source are: below a path of this machine, or at a URL that fsspec knows (url_tree.py).

Theory of operation. A *tree* lists the files below its root, by names relative to it, and opens them at any place; what
is in them is reading.py's. A file may have a *version*, which whoever reads it keeps with its position: when it is
opened, and once more at its end, the version must still be that one, or what was read is no one file's. On this machine
there are none: whoever may write to a folder there is trusted to keep to its rules.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from heronry.streamlet.endpoints import FileSource, is_url

LOOK_SECONDS = 0.2


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


def whole_name(source: FileSource, name: str) -> str:
    """A file's, for people, and for the fields that stand in it. URLs of sources hold no secrets."""
    if not is_url(source.path):
        return str(Path(source.path, name) if name else Path(source.path))
    return f"{source.path.rstrip('/')}/{name}" if name else source.path


def is_hidden(name: str) -> bool:
    """Of a file or folder: it is not seen."""
    return name.startswith((".", "_"))


class LocalTree:
    """On this machine."""

    look_seconds, appended = LOOK_SECONDS, True

    def __init__(self, source: FileSource) -> None:
        self._root = Path(source.path)

    def listed(self) -> Listing | None:
        """See Tree; sizes are not looked at."""
        if self._root.is_file():
            return {"": Seen(0)}
        if not self._root.is_dir():
            return None
        found = {}
        for place, folders, names in os.walk(self._root):
            folders[:] = sorted(name for name in folders if not is_hidden(name))
            below = Path(place).relative_to(self._root)
            found.update({(below / name).as_posix(): Seen(0) for name in names if not is_hidden(name)})
        return found

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


def tree_of(source: FileSource) -> Tree:
    """Where a source's files are. Raises ConnectError if a store cannot be opened."""
    if not is_url(source.path):
        return LocalTree(source)
    from heronry.streamlet.url_tree import UrlTree  # who reads no URLs needs nothing of it

    return UrlTree(source)
