"""Files of a source at a URL that fsspec supports: listing, reading by ranges, and detection of changed files.

Theory of operation. Bytes are fetched as they are needed. A reader that continues in the middle of a file fetches only
what follows, and a file is never held in memory as a whole. Files in a store cannot be locked, so each has a version as
stated by the store: its etag, or else its size and the time of its last change. A file that may be appended to (lines,
if the store supports appends) is read without a version, as on this machine.

A tree has its own file system object, which is closed with it. Passwords and keys of a store are in a JSON file that
each host has (``options``), which is read when a task begins. Every error of a store's library becomes a ConnectError
with a remedy and without secrets.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from heron_runtime.failures import UsageError, one_line
from heron_runtime.file_store import LibraryMissing, OpenStore, options_in, store_class
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
from heronry.streamlet.endpoints import FileSource
from heronry.streamlet.packed import ReadError
from heronry.streamlet.trees import Listing, Seen, is_hidden, joined, whole_name

RANGE_BYTES = 1 << 20  # size of a fetch, buffered for each open file
LOOK_SECONDS = 5.0
HOST_KEYS = (
    "put the host's key into ~/.ssh/known_hosts of the user that the code runs as, on each host (ssh-keyscan gets it; "
    "compare it with the server's), or name such a file as known_hosts in the options"
)
_ETAGS = ("ETag", "etag", "generation", "Content-MD5", "content_md5", "md5Hash", "checksum")
_TIMES = (
    "mtime", "LastModified", "Last-Modified", "last_modified", "updated", "modified", "modificationTime", "created",
)  # fmt: skip


class UrlFileTree:
    """Files at a URL. The constructor opens the store, and raises ConnectError if that fails."""

    look_seconds = LOOK_SECONDS

    def __init__(self, source: FileSource[Any]) -> None:
        self._source, self._url, self._scheme = source, source.path, scheme_of(source.path)
        self._options: dict[str, Any] = {}
        self.appended = self._scheme in APPENDED
        self._sizes: dict[str, int] = {}
        if problem := source_problem(self._url):
            raise ConnectError(problem)
        try:
            self._options = options_in(Path(source.options), "options= of files()") if source.options else {}
        except UsageError as error:
            raise ConnectError(f"{self._url}: {error}. {error.cure} It must be there on each host") from None
        try:
            with self.asking(""):
                self._store = OpenStore(self._url, self._options)
                self._files, self._root = self._store.files, self._store.root
        except FileNotFoundError as error:
            raise ConnectError(
                f"{self._url} cannot be opened: a file that its options name, or the file of known hosts, is "
                f"missing ({error}): for sftp, {HOST_KEYS}"
            ) from None

    def listed(self) -> Listing | None:
        """List the files. See FileTree."""
        with self.asking(""):
            self._files.invalidate_cache()
            try:
                info = self._files.info(self._root)
            except FileNotFoundError as error:
                if error.__cause__ is not None and self._scheme in SINGLE and _status(error.__cause__) != 404:
                    raise error.__cause__ from None  # fsspec raises FileNotFoundError for any failure here
                return None
            if info["type"] != "directory":
                files = {"": Seen(int(info["size"] or 0), _version(info))}
            else:
                files = dict(self._below(self._root.rstrip("/")))
        self._sizes = {name: seen.size for name, seen in files.items()}
        return files

    def _below(self, root: str) -> Iterator[tuple[str, Seen]]:
        for info in self._all_below(root):
            name = str(info["name"]).rstrip("/")[len(root) + 1 :]
            if name and not any(map(is_hidden, name.split("/"))):
                yield name, Seen(int(info["size"] or 0), _version(info))

    def _all_below(self, root: str) -> Iterator[dict[str, Any]]:
        if self._scheme in OBJECT_STORES:  # by name prefix, in one request
            files = self._files.find(root, detail=True)
            yield from (info for name, info in files.items() if info["type"] != "directory" and not name.endswith("/"))
            return
        # fsspec's walk is not used, because it skips folders without read permission.
        places = [root]
        while places:
            place = places.pop()
            try:
                infos = self._files.ls(place or "/", detail=True)
            except FileNotFoundError:
                continue  # removed meanwhile
            for info in infos:
                if info["type"] == "link":
                    info = self._behind(info)
                name = str(info["name"]).rstrip("/")
                if info["type"] == "file":
                    yield info
                elif info["type"] == "directory" and name != place and not is_hidden(name.rpartition("/")[2]):
                    places.append(name)

    def _behind(self, link: dict[str, Any]) -> dict[str, Any]:
        """Return the file that a link points to. Links to folders are not followed, as on this machine."""
        try:
            info = self._files.info(link["name"])
        except FileNotFoundError:
            return link
        return {**info, "name": link["name"]} if info["type"] == "file" else link

    def size(self, name: str) -> int:
        """Return the size of a listed file. See FileTree."""
        if name not in self._sizes:
            raise FileNotFoundError(2, "it is not listed any more", whole_name(self._source, name))
        return self._sizes[name]

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}" if name not in ("", ".") else self._root

    def inside(self, name: str) -> list[str]:
        """Return the files in a folder. See FileTree."""
        with self.asking(name):
            return [name for name, _ in self._inside(name)]

    def _inside(self, name: str) -> list[tuple[str, Seen]]:
        path = self._path(name)
        if self._files.info(path)["type"] != "directory":
            return [(name, Seen(0))]
        below = [each for each in self._files.ls(path, detail=True) if each["type"] == "file"]
        root = len(self._root.rstrip("/")) + 1
        files = [(str(each["name"])[root:], Seen(int(each["size"] or 0), _version(each))) for each in below]
        return sorted(pair for pair in files if not is_hidden(pair[0].rpartition("/")[2]))

    def open(self, name: str, version: str = "") -> BinaryIO:
        """Open a file. See FileTree."""
        with self.asking(name), self._there(name):
            info = self._look(name, version)
            if info["size"] is None or info.get("partial") is False:
                raise ReadError(
                    f"{whole_name(self._source, name)} cannot be read: its server does not report its size, or does "
                    "not support ranges; use another server, or copy the file"
                )
            handle = self._files.open(self._path(name), "rb", cache_type="none")
        return cast(BinaryIO, io.BufferedReader(Ranges(self, name, handle, int(info["size"])), RANGE_BYTES))

    columns = open

    def check(self, name: str, version: str) -> None:
        """Check the version of a file. See FileTree. A file that was removed meanwhile does not count as changed."""
        with self.asking(name), suppress(FileNotFoundError):
            self._look(name, version)

    def _look(self, name: str, version: str) -> dict[str, Any]:
        self._files.invalidate_cache()
        info: dict[str, Any] = self._files.info(self._path(name))
        if version:
            is_folder = info["type"] == "directory"
            if version != (joined([seen for _, seen in self._inside(name)]).version if is_folder else _version(info)):
                raise self.changed(name)
        return info

    def changed(self, name: str) -> ReadError:
        """Return the error for a file that has changed."""
        return ReadError(
            f"{whole_name(self._source, name)} has changed since it was listed (another size, time or etag), so the "
            "rest does not continue what was read: give new contents a new name, and restore the old file; or kill "
            "the topology and submit it again, which reads everything again"
        )

    @contextmanager
    def _there(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(
                2, "it was listed and no longer exists: restore it, because files must exist until they are read",
                whole_name(self._source, name),
            ) from None  # fmt: skip

    @contextmanager
    def asking(self, name: str) -> Iterator[None]:
        """Convert errors of the store's library to ConnectError, with a remedy and without secrets.

        FileNotFoundError is raised unchanged.
        """
        try:
            yield
        except (ConnectError, ReadError, FileNotFoundError):
            raise
        except Exception as error:
            raise self.failed(name, error) from None

    def failed(self, name: str, error: BaseException) -> ConnectError:
        """Return the error for the user."""
        said = one_line(redacted(f"{type(error).__name__}: {error}", "", self._options), 300)
        what, cure = _explain(self._scheme, error)
        return ConnectError(f"{whole_name(self._source, name)} {what} ({said}): {cure}")

    def close(self) -> None:
        """Close the store. See FileTree. Readers must be closed before."""
        self._files = None
        self._store.close()


def _status(error: BaseException) -> Any:
    return getattr(error, "status", 0)


def _explain(scheme: str, error: BaseException) -> tuple[str, str]:
    """Return what is wrong, as the end of a sentence, and the remedy.

    Libraries are distinguished by the names of their errors, because none of them need be installed.
    """
    names = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, LibraryMissing):
        needed = " ".join(filter(None, ("fsspec", DISTRIBUTIONS.get(scheme, ""))))
        if error.known:
            return (
                "cannot be read here",
                f"name {needed} in the topology's requirements, or on each host: pip install {needed}",
            )
        return "has an unknown scheme", "check the scheme of the URL, or install its fsspec implementation"
    if "HostKeyNotVerifiable" in names:
        return "is at a host with an unknown key", HOST_KEYS
    refused = names & {"PermissionError", "NoCredentialsError", "PermissionDenied", "SFTPPermissionDenied"}
    if refused or _status(error) in (401, 403):
        return "is not readable", (
            "give the user the right to read it, or write the store's credentials into the JSON file of options= on "
            "each host (for sftp client_keys, for s3 key and secret)"
        )
    return "cannot be read", "check that the store answers from this host, and its options"


def _version(info: Mapping[str, Any]) -> str:
    """Return a short hash of the store's statement of a file's contents. It is never empty."""
    version = next((info[key] for key in (*_ETAGS, *_TIMES) if info.get(key)), None)
    if isinstance(version, dt.datetime):  # a listing may have seconds where the file's own info has a datetime
        version = version.timestamp()
    version = f"{version:.6f}" if isinstance(version, float) else version
    return hashlib.sha256(f"{info.get('size')} {version}".encode()).hexdigest()[:16]


class Ranges(io.RawIOBase):
    """Bytes of a file up to the size that it had when it was opened, fetched on demand.

    The position is kept here, because several handles of one file may share theirs (``memory://``).
    """

    def __init__(self, tree: UrlFileTree, name: str, handle: Any, size: int) -> None:
        self._tree, self._name, self._handle, self._size = tree, name, handle, size
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Change the position, as for files."""
        self._at = max(0, offset + (0, self._at, self._size)[whence])
        return self._at

    def readinto(self, buffer: object) -> int:
        """Fetch one range into the buffer.

        Raises:
            ConnectError: The store cannot be reached.
            ReadError: The file ends before the size that it had.
        """
        view = memoryview(cast(bytearray, buffer))
        wanted = min(len(view), self._size - self._at)
        if wanted <= 0:
            return 0
        data = self._fetched(wanted)
        if not data:
            raise self._tree.changed(self._name)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _fetched(self, wanted: int) -> bytes:
        with self._tree.asking(self._name), suppress(FileNotFoundError):
            self._handle.seek(self._at)
            return bytes(self._handle.read(wanted))
        return b""

    def close(self) -> None:
        """Close the handle."""
        if not self.closed:
            with suppress(Exception):  # if the connection is lost, nothing is left to close
                self._handle.close()
            self._handle = None  # the handle references the store
        super().close()


def unreadable_here(source: FileSource[Any]) -> str:
    """Return what this machine lacks to read a URL, with the remedy. Empty if nothing. The store is not contacted."""
    try:
        store_class(scheme_of(source.path))
    except LibraryMissing as error:
        what, cure = _explain(scheme_of(source.path), error)
        return f"{source.path} {what} ({error}): {cure}"
    return ""
