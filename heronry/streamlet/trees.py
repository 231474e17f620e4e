"""Where the files of a source are: below a path of this machine, or at a URL that fsspec knows.

Theory of operation. A *tree* lists the files below its root, by names relative to it, and opens them at any place; what
is in them is reading.py's. At a URL bytes are fetched by ranges, as they are needed: a reader that goes on in the
middle of a file fetches what is behind that, and no file is ever held whole. Nothing there can be locked, so a file has
a *version*, what the store says of it (etag, else size and time of change), which whoever reads it keeps with its
position: when it is opened, and once more at its end, the version must still be that one, or what was read is no one
file's. What may be appended to (lines, where the store has appends) has no version, as on this machine.

Passwords and keys of a store are in a JSON file that each host has (``options``), read when a task begins.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, cast

from heron_runtime.failures import UsageError, one_line
from heron_runtime.file_store import LibraryMissing, open_store, options_in, store_class
from heron_runtime.model.file_urls import (
    APPENDED,
    DISTRIBUTIONS,
    OBJECT_STORES,
    SINGLE,
    redacted,
    scheme_of,
    source_problem,
)
from heronry.connect.settings import ConnectError
from heronry.streamlet.endpoints import FileSource, is_url
from heronry.streamlet.packed import ReadError

RANGE_BYTES = 1 << 20  # fetched at once, and held for each file that is open
LOCAL_LOOK_SECONDS, URL_LOOK_SECONDS = 0.2, 5.0
_ETAGS = ("ETag", "etag", "generation", "Content-MD5", "content_md5", "md5Hash", "checksum")
_TIMES = ("mtime", "LastModified", "Last-Modified", "last_modified", "updated", "modified", "modificationTime", "created")


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
    """The files of one source. Methods raise OSError on this machine, ConnectError and ReadError at a URL."""

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
        """Raises ReadError if it is not of this version any more."""

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

    look_seconds, appended = LOCAL_LOOK_SECONDS, True

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


class UrlTree:
    """At a URL. Opens the store at once. Raises ConnectError."""

    look_seconds = URL_LOOK_SECONDS

    def __init__(self, source: FileSource) -> None:
        self._source, self._url, self._scheme = source, source.path, scheme_of(source.path)
        self._options: dict[str, Any] = {}
        self.appended = self._scheme in APPENDED
        self._sizes: dict[str, int] = {}
        if problem := source_problem(self._url):
            raise ConnectError(problem)
        try:
            self._options = options_in(Path(source.options), "options= of files()") if source.options else {}
        except UsageError as error:
            raise ConnectError(f"{self._url}: {error}", f"{error.cure} It must be on each host.") from None
        with self._asking(""):
            self._files, self._root = open_store(self._url, self._options)

    def listed(self) -> Listing | None:
        """See Tree."""
        with self._asking(""):
            self._files.invalidate_cache()
            try:
                info = self._files.info(self._root)
            except FileNotFoundError as error:
                if error.__cause__ is not None and self._scheme in SINGLE and _status(error.__cause__) != 404:
                    raise error.__cause__ from None  # fsspec says so of whatever goes wrong
                return None
            if info["type"] != "directory":
                found = {"": Seen(int(info["size"] or 0), _version(info))}
            else:
                found = dict(self._below(self._root.rstrip("/")))
        self._sizes = {name: seen.size for name, seen in found.items()}
        return found

    def _below(self, root: str) -> Iterator[tuple[str, Seen]]:
        for info in self._all_below(root):
            name = str(info["name"]).rstrip("/")[len(root) + 1 :]
            if name and not any(map(is_hidden, name.split("/"))):
                yield name, Seen(int(info["size"] or 0), _version(info))

    def _all_below(self, root: str) -> Iterator[dict[str, Any]]:
        if self._scheme in OBJECT_STORES:  # by their names' beginning, in one go
            found = self._files.find(root, detail=True)
            yield from (info for name, info in found.items() if info["type"] != "directory" and not name.endswith("/"))
            return
        # Not fsspec's walk, which passes over what it may not read.
        places = [root]
        while places:
            place = places.pop()
            try:
                infos = self._files.ls(place or "/", detail=True)
            except FileNotFoundError:
                continue  # taken away just now
            for info in infos:
                if info["type"] == "link":
                    info = self._behind(info)
                name = str(info["name"]).rstrip("/")
                if info["type"] == "file":
                    yield info
                elif info["type"] == "directory" and name != place and not is_hidden(name.rpartition("/")[2]):
                    places.append(name)

    def _behind(self, link: dict[str, Any]) -> dict[str, Any]:
        """The file behind a link; folders behind links are not looked into, here as on this machine."""
        try:
            info = self._files.info(link["name"])
        except FileNotFoundError:
            return link
        return {**info, "name": link["name"]} if info["type"] == "file" else link

    def size(self, name: str) -> int:
        """See Tree."""
        if name not in self._sizes:
            raise FileNotFoundError(2, "it is not listed any more", whole_name(self._source, name))
        return self._sizes[name]

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}" if name not in ("", ".") else self._root

    def inside(self, name: str) -> list[str]:
        """See Tree."""
        return [name for name, _ in self._inside(name)]

    def _inside(self, name: str) -> list[tuple[str, Seen]]:
        with self._asking(name):
            path = self._path(name)
            if self._files.info(path)["type"] != "directory":
                return [(name, Seen(0))]
            below = [each for each in self._files.ls(path, detail=True) if each["type"] == "file"]
        root = len(self._root.rstrip("/")) + 1
        found = [(str(each["name"])[root:], Seen(int(each["size"] or 0), _version(each))) for each in below]
        return sorted(pair for pair in found if not is_hidden(pair[0].rpartition("/")[2]))

    def open(self, name: str, version: str = "") -> BinaryIO:
        """See Tree."""
        info = self._look(name, version)
        with self._asking(name):
            handle = self._files.open(self._path(name), "rb", cache_type="none")
            if info["size"] is None or not handle.seekable():
                handle.close()
                raise ReadError(
                    f"{whole_name(self._source, name)} cannot be read: its server does not say how long it is, or gives no ranges of "
                    "files; take one that does, or copy the file"
                )
        return cast(BinaryIO, io.BufferedReader(_Ranges(self, name, handle, int(info["size"])), RANGE_BYTES))

    columns = open

    def check(self, name: str, version: str) -> None:
        """See Tree."""
        self._look(name, version)

    def _look(self, name: str, version: str) -> dict[str, Any]:
        with self._asking(name):
            self._files.invalidate_cache()
            info: dict[str, Any] = self._files.info(self._path(name))
        if version:
            is_folder = info["type"] == "directory"
            if version != (joined([seen for _, seen in self._inside(name)]).version if is_folder else _version(info)):
                raise self.changed(name)
        return info

    def changed(self, name: str) -> ReadError:
        """Another file has its name now."""
        return ReadError(
            f"{whole_name(self._source, name)} has changed since it was listed (another size, time or etag), so what was read and "
            "what would follow are not of one file: put the old one back, give new contents a new name, or begin anew "
            "without the state (heron submit after heron kill)"
        )

    @contextmanager
    def _asking(self, name: str) -> Iterator[None]:
        """Whatever the store's library raises becomes a ConnectError with a cure, and without secrets."""
        try:
            yield
        except (ConnectError, ReadError):
            raise
        except Exception as error:
            raise self.failed(name, error) from None

    def failed(self, name: str, error: BaseException) -> ConnectError:
        """What the user is told."""
        said = redacted(f"{type(error).__name__}: {error}", self._url, self._options)
        what, cure = _told(self._scheme, error)
        return ConnectError(f"{whole_name(self._source, name)} {what} ({one_line(said, 300)})" if what else one_line(said), cure)

    def close(self) -> None:
        """See Tree; what the library holds ends with its last reader."""
        self.__dict__.pop("_files", None)


def _status(error: BaseException) -> Any:
    return getattr(error, "status", 0)


def _told(scheme: str, error: BaseException) -> tuple[str, str]:
    """What is wrong, as the end of a sentence, and what to do. Libraries are told apart by the names of their errors:
    none of them need be there."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, LibraryMissing):
        needed = " ".join(filter(None, ("fsspec", DISTRIBUTIONS.get(scheme, ""))))
        if error.known:
            return (
                "cannot be read here",
                f"Name {needed} in the topology's requirements, or on each host: pip install {needed}",
            )
        return "is of no known store", "Look at the URL's beginning, or install what implements it for fsspec."
    if "HostKeyNotVerifiable" in names:
        return "is at a host whose key is not known", (
            "Put the host's key into ~/.ssh/known_hosts of the user that the code runs as, on each host (ssh-keyscan "
            "gets it; compare it with the server's), or name such a file as known_hosts in the options."
        )
    if isinstance(error, PermissionError) or names & {"NoCredentialsError", "PermissionDenied"} or _status(error) in (401, 403):
        return "may not be read", (
            "Give the user the right to read it, or write the store's credentials into the JSON file of options= on "
            "each host (for sftp: client_keys; for s3: key and secret)."
        )
    if isinstance(error, FileNotFoundError) or _status(error) == 404:
        return "is not there any more", "Put it back; files that are read must stay until they are."
    return "cannot be read", "Look whether the store answers from this host, and at the options; then it goes on."


def _version(info: Mapping[str, Any]) -> str:
    """What the store says of a file's contents, as one short word; never empty."""
    told = next((info[key] for key in (*_ETAGS, *_TIMES) if info.get(key)), None)
    return hashlib.sha256(f"{info.get('size')} {told}".encode()).hexdigest()[:16]


class _Ranges(io.RawIOBase):
    """A file's bytes up to the size that it had when it was opened, fetched as they are asked for.

    Keeps its own place: handles of one file may share theirs (``memory://``)."""

    def __init__(self, tree: UrlTree, name: str, handle: Any, size: int) -> None:
        self._tree, self._name, self._handle, self._size = tree, name, handle, size
        self._at = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """In bytes."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """As files do."""
        self._at = max(0, offset + (0, self._at, self._size)[whence])
        return self._at

    def readinto(self, buffer: object) -> int:
        """One range. Raises ConnectError, ReadError if the file ends before."""
        view = memoryview(cast(bytearray, buffer))
        wanted = min(len(view), self._size - self._at)
        if wanted <= 0:
            return 0
        try:
            self._handle.seek(self._at)
            data = self._handle.read(wanted)
        except Exception as error:
            raise self._tree.failed(self._name, error) from None
        if not data:
            raise self._tree.changed(self._name)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        """Let go of the handle."""
        if not self.closed:
            with suppress(Exception):  # where the connection is gone there is nothing left to let go of
                self._handle.close()
        super().close()


def tree_of(source: FileSource) -> Tree:
    """Where a source's files are. Raises ConnectError if a store cannot be opened."""
    return UrlTree(source) if is_url(source.path) else LocalTree(source)


def unreadable_here(source: FileSource) -> str:
    """What this machine lacks to read a URL, with the cure; empty if nothing. No store is asked."""
    try:
        store_class(scheme_of(source.path))
    except LibraryMissing as error:
        what, cure = _told(scheme_of(source.path), error)
        return f"{source.path} {what} ({error}). {cure.rstrip('.')}"
    return ""
