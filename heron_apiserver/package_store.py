"""Package stores by digest: a local or NFS folder, or any URL that fsspec supports.

All stores give the same guarantees (``PackageStore``, one contract test): a package appears whole, storing is
idempotent, a package that is read has the SHA-256 it is named by, and only digests become parts of a path.

Each operation on a URL runs in a process with a time limit (``package_transfer``). Packages sent to or fetched from
a URL stay as copies in the home, at most ``COPIES``, so the containers of a topology do not fetch the same bytes one
after another. Only the API server has the credentials of the store; containers ask the API server.

A URL and its options may contain credentials (``heron_runtime/model/file_urls.py``): only the results of
``PackageLocation.display_name`` and ``PackageLocation.redact`` may be printed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import subprocess
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from heron_apiserver.package_transfer import INCOMING, SUFFIX, TransferRequest, package_file_name
from heron_control.packaging.shipping import digest_of, is_digest
from heron_runtime.failures import NotAllowed, Unavailable, UsageError, one_line
from heron_runtime.file_store import options_in
from heron_runtime.model.file_urls import redacted, scheme_of, shown_url
from heron_runtime.model.masking import HIDDEN
from heron_runtime.spawn import child_environment, python_command

MAX_BYTES = 2 << 30
LOOK_SECONDS = 30.0
TRANSFER_SECONDS = 600.0
COPIES = 8
READERS = 8
SLOT_SECONDS = 1.0


class PackageStoreError(Unavailable):
    """The package store failed; the operation left nothing half done."""

    cure = "Check the store and its credentials (--packages, --packages-options of the API server), and try again."


class PackageStore(Protocol):
    """Storage of packages by digest.

    Every method may block, is thread-safe, and raises PackageStoreError or OSError. ``keep`` and ``remove`` raise
    ValueError for an invalid digest.
    """

    def keep(self, digest: str, file: Path) -> None:
        """Move the file with this SHA-256 into the store. Atomic and idempotent."""

    def has(self, digest: str) -> bool:
        """Return True if the package exists."""

    def path(self, digest: str) -> Path | None:
        """Return a local file with exactly the bytes of the package, or None if it does not exist."""

    def digests(self) -> list[str]:
        """Return all digests and remove incomplete packages. Not to be called during uploads."""

    def remove(self, digest: str) -> None:
        """Delete a package. Idempotent."""


def _damaged(digest: str, actual: str, where: str) -> PackageStoreError:
    return PackageStoreError(
        f"the package {digest} in {where} is damaged: its SHA-256 is {actual}",
        "Submit the topology's code again, which replaces it; or put the file back from a backup.",
    )


class FolderPackageStore:
    """Packages in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, tuple[int, int, int]] = {}  # verified files: inode, size, modification time
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _file(self, digest: str) -> Path:
        return self._folder / package_file_name(digest)

    def keep(self, digest: str, file: Path) -> None:
        """Rename the file; copy it under a temporary name first if it is on another disk."""
        try:
            os.replace(file, self._file(digest))
            return
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        under_way = self._folder / f"{INCOMING}{secrets.token_hex(8)}"
        try:
            with file.open("rb") as source, under_way.open("xb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
                target.flush()
                os.fsync(target.fileno())
            os.replace(under_way, self._file(digest))
        finally:
            under_way.unlink(missing_ok=True)
        file.unlink()

    def has(self, digest: str) -> bool:
        """See PackageStore."""
        return is_digest(digest) and self._file(digest).is_file()

    def path(self, digest: str) -> Path | None:
        """Return the file itself. Its SHA-256 is checked once, and again after a change."""
        if not self.has(digest):
            return None
        path = self._file(digest)
        status = path.stat()
        mark = (status.st_ino, status.st_size, status.st_mtime_ns)
        if self._known.get(digest) != mark:
            actual = digest_of(path)
            if actual != digest:
                raise _damaged(digest, actual, str(self._folder))
            self._known[digest] = mark
        return path

    def digests(self) -> list[str]:
        """See PackageStore."""
        names = [entry.name for entry in self._folder.iterdir()]
        for name in names:
            if name.startswith(INCOMING):
                (self._folder / name).unlink(missing_ok=True)
        return sorted(filter(is_digest, (n.removesuffix(SUFFIX) for n in names if n.endswith(SUFFIX))))

    def remove(self, digest: str) -> None:
        """See PackageStore."""
        self._known.pop(digest, None)
        self._file(digest).unlink(missing_ok=True)


class RemotePackageStore:
    """Packages at a URL, in the folder ``space`` below it.

    Args:
        location: URL and options.
        space: folder below the URL.
        copies: local folder for copies, owned by this store and emptied at the start.
        look_seconds: time limit of short operations.
        transfer_seconds: time limit of transfers.
    """

    def __init__(
        self, place: PackageLocation, space: str, copies: Path, *,
        look_seconds: float = LOOK_SECONDS, transfer_seconds: float = TRANSFER_SECONDS,
    ) -> None:  # fmt: skip
        self._place = place
        self._space = space
        self._folder = copies
        self._look_seconds = look_seconds
        self._transfer_seconds = transfer_seconds
        self._copies: OrderedDict[str, Path] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()
        self._fetch_locks = [
            threading.Lock() for _ in range(16)
        ]  # by digest: one caller fetches, the others reuse the copy
        self._reader_slots = threading.BoundedSemaphore(READERS)
        shutil.rmtree(copies, ignore_errors=True)
        copies.mkdir(mode=0o700, parents=True)

    def keep(self, digest: str, file: Path) -> None:
        """Upload the file, which becomes the local copy."""
        package_file_name(digest)
        self._transfer("keep", self._transfer_seconds, digest, file)
        copy = self._folder / secrets.token_hex(16)
        os.replace(file, copy)
        self._add(digest, copy)

    def has(self, digest: str) -> bool:
        """See PackageStore."""
        if not is_digest(digest):
            return False
        with self._reader_slot():
            return self._transfer("has", self._look_seconds, digest) is True

    def path(self, digest: str) -> Path | None:
        """Return a local copy. After a timeout the next caller fetches the package again."""
        if not is_digest(digest):
            return None
        if (copy := self._copy(digest)) is not None:
            return copy
        with self._reader_slot(), self._fetch_locks[int(digest[0], 16)]:
            return self._copy(digest) or self._fetch(digest)

    def digests(self) -> list[str]:
        """See PackageStore."""
        digests = self._transfer("digests", self._transfer_seconds)
        return [digest for digest in digests or () if is_digest(digest)]

    def remove(self, digest: str) -> None:
        """See PackageStore."""
        package_file_name(digest)
        with self._lock:
            copy = self._copies.pop(digest, None)
        if copy is not None:
            copy.unlink(missing_ok=True)
        self._transfer("remove", self._look_seconds, digest)

    def _fetch(self, digest: str) -> Path | None:
        copy = self._folder / secrets.token_hex(16)
        try:
            actual = self._transfer("fetch", self._transfer_seconds, digest, copy)
            if actual is None:
                return None
            if actual != digest:
                raise _damaged(digest, actual, f"{self._place.display_name}/{self._space}")
            self._add(digest, copy)
            return copy
        finally:
            if self._copies.get(digest) != copy:
                copy.unlink(missing_ok=True)

    def _copy(self, digest: str) -> Path | None:
        with self._lock:
            if digest in self._copies:
                self._copies.move_to_end(digest)
            return self._copies.get(digest)

    def _add(self, digest: str, copy: Path) -> None:
        with self._lock:
            gone = [self._copies.pop(digest)] if digest in self._copies else []
            self._copies[digest] = copy
            while len(self._copies) > COPIES:
                gone.append(self._copies.popitem(last=False)[1])
        for path in gone:  # a reader has its file open
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _reader_slot(self) -> Iterator[None]:
        if not self._reader_slots.acquire(timeout=SLOT_SECONDS):
            raise PackageStoreError(
                f"{READERS} requests wait for the store of packages, which is the most", "Try again in a few seconds."
            )
        try:
            yield
        finally:
            self._reader_slots.release()

    def _transfer(self, operation: str, seconds: float, digest: str = "", file: Path | None = None) -> Any:
        """Run one transfer and return its result, or None for a missing package. Raises PackageStoreError."""
        request = TransferRequest(
            operation, self._place.url, dict(self._place.options), self._space, seconds, MAX_BYTES, digest,
            str(file or ""),
        )  # fmt: skip
        return run_transfer(self._place, request)


def run_transfer(place: PackageLocation, request: TransferRequest) -> Any:
    """Run one transfer in a process and return its result, None for a missing package. Raises PackageStoreError."""
    try:
        done = subprocess.run(
            python_command("heron_apiserver.package_transfer"), input=json.dumps(asdict(request)).encode(),
            capture_output=True, cwd="/", env=child_environment(), timeout=request.seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise _error(place, f"does not answer within {request.seconds:g} s") from None
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        raise _error(place, f"failed: {done.stderr[-500:].decode('utf-8', 'replace')}") from None
    if "trouble" in answer:
        raise _error(place, f"failed: {answer['trouble']}", answer.get("cure", ""))
    return answer.get("result")


def _error(place: PackageLocation, what: str, cure: str = "") -> PackageStoreError:
    said = one_line(place.redact(what)).strip() or HIDDEN
    return PackageStoreError(f"the store of packages {place.display_name} {said}", place.redact(cure))


def load_package_location(text: str, options_file: str = "") -> PackageLocation:
    """Parse ``--packages`` and ``--packages-options`` and check that the library of the URL is installed.

    Does not connect to the store.

    Raises:
        UsageError: the options are invalid.
        PackageStoreError: the library is missing.
    """
    place = parse_package_location(text, options_in(Path(options_file), "--packages-options") if options_file else None)
    if place.url:
        run_transfer(place, TransferRequest("load", place.url, {}, "", LOOK_SECONDS, 0))
    return place


def open_package_store(place: PackageLocation, home: Path, home_id: Callable[[Path], str]) -> PackageStore | None:
    """Return the package store of this home, or None for the default in the home itself.

    Each home has a folder of its own in the store, named by its id, so that several homes may share a location.

    Raises:
        NotAllowed: the folder is not writable.
    """
    if place == PackageLocation():
        return None
    try:
        if place.url:
            return RemotePackageStore(place, home_id(home), home / "copies")
        return FolderPackageStore(Path(place.folder, home_id(home)))
    except OSError as error:
        raise NotAllowed(
            f"{place.display_name}: {error.strerror}", "Make it writable, or give another --packages."
        ) from None


NOT_KEPT = frozenset({"memory", "data", "http", "https", "zip", "tar", "filecache", "simplecache", "blockcache"})
_URL = re.compile(r"([a-z][a-z0-9+.-]*)://", re.ASCII)


@dataclass(frozen=True, slots=True)
class PackageLocation:
    """Parsed value of ``--packages``: a folder, a URL with options, or (both empty) the home."""

    folder: str = ""
    url: str = field(default="", repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def scheme(self) -> str:
        """Return the scheme of the URL."""
        return scheme_of(self.url)

    @property
    def display_name(self) -> str:
        """Return the location without user, password and query."""
        return shown_url(self.url) if self.url else self.folder or "the home"

    def redact(self, text: str) -> str:
        """Remove the credentials of this location from a text."""
        return redacted(text, self.url, self.options)


def parse_package_location(text: str, options: Mapping[str, Any] | None = None) -> PackageLocation:
    """Parse ``--packages``. Raises UsageError, whose message shows only the scheme of the text."""
    given = dict(options or {})
    if not text:
        if given:
            raise UsageError("--packages-options: requires a URL in --packages", "Give --packages, or omit it.")
        return PackageLocation()
    scheme = _URL.match(text)
    if scheme is None:
        if "://" in text or "::" in text:
            raise UsageError("--packages: not a URL of a store", "Give SCHEME://…, or a folder's path.")
        if given:
            raise UsageError("--packages-options: requires a URL in --packages", "Omit it for a folder.")
        if not text.startswith("/") or "\0" in text:
            raise UsageError("--packages: neither an absolute path nor a URL", "Give /a/folder, or s3://bucket/prefix.")
        return PackageLocation(folder=text)
    name = scheme[1]
    if name in NOT_KEPT:
        raise UsageError(
            f"--packages: {name}://… does not keep files for other or later API servers",
            "Give a store that keeps files: a folder, s3://, gs://, hdfs://, sftp://, file://.",
        )
    try:
        urlsplit(text)
    except ValueError:
        raise UsageError(f"--packages: invalid URL {name}://…", "Check its host and its brackets.") from None
    if "::" in text or not text[scheme.end() :].strip("/") or any(part == ".." for part in text.split("/")):
        raise UsageError(
            f"--packages: {name}://… has no folder", "Give SCHEME://HOST-OR-BUCKET/FOLDER, without '::' and '..'."
        )
    return PackageLocation(url=text, options=given)
