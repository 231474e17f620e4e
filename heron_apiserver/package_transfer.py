"""One operation on a remote package store, run as ``python -m heron_apiserver.package_transfer``.

The libraries of the stores have their own threads, event loops and retries, and few have time limits. So each
operation is a process that the caller can kill, and that ends itself if the caller is gone. The request arrives as
JSON on stdin (it may contain credentials); the answer is the last line of stdout, as JSON.

A package appears whole: an object store (``OBJECT_STORES``) shows nothing before a put has finished. Elsewhere the
file is uploaded as ``.incoming-…``, its size is checked, and a move gives it its name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heron_control.packaging.shipping import is_digest
from heron_runtime.file_store import LibraryMissing, OpenStore, store_class
from heron_runtime.model.file_urls import DISTRIBUTIONS, OBJECT_STORES, scheme_of

SUFFIX = ".tar.gz"
INCOMING = ".incoming-"
CHUNK = 1 << 20
GRACE_SECONDS = 5


@dataclass(frozen=True)
class TransferRequest:
    """Operation to execute.

    Attributes:
        space: folder below the URL.
        file: file to upload, or to write a download to.
    """

    operation: str
    url: str = field(repr=False)
    options: dict[str, Any] = field(repr=False)
    space: str
    seconds: float
    max_bytes: int
    digest: str = ""
    file: str = ""


class TransferError(Exception):
    """The operation failed: reason and, optionally, a hint."""


def package_file_name(digest: str) -> str:
    """Return the file name of a package. Raises ValueError for an invalid digest."""
    if not is_digest(digest):
        raise ValueError("not a SHA-256 in hex")
    return f"{digest}{SUFFIX}"


def install_command(scheme: str, distribution: str = "") -> str:
    """Return the command that installs the library of a store."""
    return f"pip install 'heronry[uploaders]' {distribution or DISTRIBUTIONS.get(scheme, '')}".rstrip()


def load(scheme: str) -> None:
    """Load the library of a store. Raises TransferError with the command that installs it."""
    try:
        store_class(scheme)
    except LibraryMissing as error:
        cure = f"Type: {install_command(scheme)}" if error.known else "Look at the URL, or install what implements it."
        raise TransferError(str(error), cure) from None


class TransferStore:
    """Packages below one folder of a remote store."""

    def __init__(self, request: TransferRequest) -> None:
        scheme = scheme_of(request.url)
        load(scheme)
        self._store = OpenStore(request.url, request.options)
        self._files = self._store.files
        self._folder = f"{self._store.root.rstrip('/')}/{request.space}"
        self._whole = scheme in OBJECT_STORES

    def _path(self, digest: str) -> str:
        return f"{self._folder}/{package_file_name(digest)}"

    def has(self, digest: str) -> bool:
        """Return True if the package exists."""
        return bool(self._files.exists(self._path(digest)))

    def keep(self, digest: str, file: str) -> None:
        """Upload the file, unless the same bytes are stored already."""
        path, size = self._path(digest), Path(file).stat().st_size
        if self._holds(path, digest, size):
            return
        if self._whole:
            self._files.put_file(file, path)
            self._check_size(path, size)
            return
        self._files.makedirs(self._folder, exist_ok=True)
        under_way = f"{self._folder}/{INCOMING}{secrets.token_hex(8)}"
        try:
            self._files.put_file(file, under_way)
            self._check_size(under_way, size)
            try:
                self._files.mv(under_way, path)
            except Exception:
                if not self._holds(
                    path, digest, size
                ):  # a move does not replace everywhere, and another upload was faster
                    raise
        finally:
            with contextlib.suppress(Exception):  # gone after the move; otherwise the next start removes it
                self._files.rm_file(under_way)

    def _holds(self, path: str, digest: str, size: int) -> bool:
        try:
            return self._files.info(path)["size"] == size and self._copy(path, None, size) == digest
        except FileNotFoundError:
            return False

    def _check_size(self, path: str, size: int) -> None:
        stored = self._files.info(path)["size"]
        if stored != size:
            self._files.rm_file(path)
            raise TransferError(f"only {stored} of {size} bytes were kept", "Look whether the store is full.")

    def fetch(self, digest: str, file: str, max_bytes: int) -> str:
        """Download a package to ``file`` and return the SHA-256 of the received bytes."""
        with open(file, "xb") as target:
            return self._copy(self._path(digest), target, max_bytes)

    def _copy(self, path: str, target: Any, max_bytes: int) -> str:
        hashed, count = hashlib.sha256(), 0
        with self._files.open(path, "rb") as source:
            while chunk := source.read(CHUNK):
                count += len(chunk)
                if count > max_bytes:
                    raise TransferError(f"the package there is larger than {max_bytes} bytes")
                hashed.update(chunk)
                if target is not None:
                    target.write(chunk)
        return hashed.hexdigest()

    def digests(self) -> list[str]:
        """Return all digests and remove incomplete uploads. Called by the leader only."""
        try:
            entries = self._files.ls(self._folder, detail=False)
        except FileNotFoundError:
            return []
        names = [str(path).rstrip("/").rpartition("/")[2] for path in entries]
        for name in names:
            if name.startswith(INCOMING):
                self._files.rm_file(f"{self._folder}/{name}")
        digests = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
        return sorted(filter(is_digest, digests))

    def remove(self, digest: str) -> None:
        """Delete a package. Idempotent."""
        with contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._path(digest))


def execute_transfer(request: TransferRequest) -> Any:
    """Execute a request. Raises TransferError, FileNotFoundError and errors of the store's library."""
    if request.operation == "load":
        load(scheme_of(request.url))
        return None
    store = TransferStore(request)
    match request.operation:
        case "has":
            return store.has(request.digest)
        case "keep":
            return store.keep(request.digest, request.file)
        case "fetch":
            return store.fetch(request.digest, request.file, request.max_bytes)
        case "digests":
            return store.digests()
        case "remove":
            return store.remove(request.digest)
    raise TransferError(f"unknown operation {request.operation!r}")


def main() -> int:
    """Execute the request on stdin and print the answer. Returns 0 for reported errors as well."""
    request = TransferRequest(**json.load(sys.stdin))
    signal.alarm(int(request.seconds) + GRACE_SECONDS)
    try:
        answer = {"result": execute_transfer(request)}
    except FileNotFoundError as error:
        answer = {"absent": str(error)}
    except TransferError as trouble:
        answer = {"trouble": trouble.args[0], "cure": "".join(trouble.args[1:])}
    except Exception as error:
        answer = {"trouble": f"{type(error).__name__}: {error}"}
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
