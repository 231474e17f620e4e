"""``python -m heron_apiserver.package_transfer``: one operation on a store of packages, in a process of its own.

The libraries of the stores have threads, loops and retries of their own, and few a bound of time. So each operation is
a process, which whoever asked for it can end; and which ends itself, should nobody be left to. The order comes as JSON
by stdin (it may hold credentials), the answer is the last line of stdout, as JSON.

What is written appears whole: on an object store (``OBJECT_STORES``) a put shows nothing before its end; elsewhere the
file goes to ``.incoming-…`` beside its place, its size is looked at, and a move gives it its name.
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
    """``space`` is the folder below the URL; ``file`` the one to send, or to write what comes to."""

    operation: str
    url: str = field(repr=False)
    options: dict[str, Any] = field(repr=False)
    space: str
    seconds: float
    most_bytes: int
    digest: str = ""
    file: str = ""


class TransferError(Exception):
    """It cannot be done; the text says why, and the second one perhaps what to do."""


def file_name(digest: str) -> str:
    """Of a package. Raises ValueError for what is no digest: nothing else becomes a part of a path."""
    if not is_digest(digest):
        raise ValueError("that is no SHA-256 in hex")
    return f"{digest}{SUFFIX}"


def install_command(scheme: str, distribution: str = "") -> str:
    """What to type for a store's library."""
    return f"pip install 'heronry[uploaders]' {distribution or DISTRIBUTIONS.get(scheme, '')}".rstrip()


def load(scheme: str) -> None:
    """Raises TransferError with the line that installs what is missing."""
    try:
        store_class(scheme)
    except LibraryMissing as error:
        cure = f"Type: {install_command(scheme)}" if error.known else "Look at the URL, or install what implements it."
        raise TransferError(str(error), cure) from None


class Store:
    """The packages below one folder of a store."""

    def __init__(self, order: TransferRequest) -> None:
        scheme = scheme_of(order.url)
        load(scheme)
        self._store = OpenStore(order.url, order.options)
        self._files = self._store.files
        self._folder = f"{self._store.root.rstrip('/')}/{order.space}"
        self._whole = scheme in OBJECT_STORES

    def _path(self, digest: str) -> str:
        return f"{self._folder}/{file_name(digest)}"

    def has(self, digest: str) -> bool:
        """Is it here?"""
        return bool(self._files.exists(self._path(digest)))

    def keep(self, digest: str, file: str) -> None:
        """Send the file, unless the same bytes are here."""
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
                if not self._holds(path, digest, size):  # where a move does not replace, somebody was faster
                    raise
        finally:
            with contextlib.suppress(Exception):  # after the move there is none; else the next start removes it
                self._files.rm_file(under_way)

    def _holds(self, path: str, digest: str, size: int) -> bool:
        try:
            return self._files.info(path)["size"] == size and self._pour(path, None, size) == digest
        except FileNotFoundError:
            return False

    def _check_size(self, path: str, size: int) -> None:
        found = self._files.info(path)["size"]
        if found != size:
            self._files.rm_file(path)
            raise TransferError(f"only {found} of {size} bytes were kept", "Look whether the store is full.")

    def fetch(self, digest: str, file: str, most_bytes: int) -> str:
        """Write it to ``file``; returns the SHA-256 of what came."""
        with open(file, "xb") as target:
            return self._pour(self._path(digest), target, most_bytes)

    def _pour(self, path: str, target: Any, most_bytes: int) -> str:
        hashed, count = hashlib.sha256(), 0
        with self._files.open(path, "rb") as source:
            while chunk := source.read(CHUNK):
                count += len(chunk)
                if count > most_bytes:
                    raise TransferError(f"the package there is larger than {most_bytes} bytes")
                hashed.update(chunk)
                if target is not None:
                    target.write(chunk)
        return hashed.hexdigest()

    def digests(self) -> list[str]:
        """All that are here; what never came through is removed. Only who leads asks."""
        try:
            found = self._files.ls(self._folder, detail=False)
        except FileNotFoundError:
            return []
        names = [str(path).rstrip("/").rpartition("/")[2] for path in found]
        for name in names:
            if name.startswith(INCOMING):
                self._files.rm_file(f"{self._folder}/{name}")
        kept = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
        return sorted(filter(is_digest, kept))

    def remove(self, digest: str) -> None:
        """Idempotent."""
        with contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._path(digest))


def execute_transfer(order: TransferRequest) -> Any:
    """Do it. Raises TransferError, FileNotFoundError, and what the store's library raises."""
    if order.operation == "load":
        load(scheme_of(order.url))
        return None
    store = Store(order)
    match order.operation:
        case "has":
            return store.has(order.digest)
        case "keep":
            return store.keep(order.digest, order.file)
        case "fetch":
            return store.fetch(order.digest, order.file, order.most_bytes)
        case "digests":
            return store.digests()
        case "remove":
            return store.remove(order.digest)
    raise TransferError(f"no operation {order.operation!r}")


def main() -> int:
    """Read the order, answer; 0 even for trouble, which the answer tells."""
    order = TransferRequest(**json.load(sys.stdin))
    signal.alarm(int(order.seconds) + GRACE_SECONDS)
    try:
        answer = {"result": execute_transfer(order)}
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
