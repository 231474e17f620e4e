"""Packages by digest, and the uploads that become packages once they are checked.

An upload is written to ``uploads/`` under a random name and hashed on the way. It becomes a package when the store
(``package_store``) has taken it whole. Files found in ``uploads/`` at a start are incomplete uploads and are
deleted. A package that no topology refers to is deleted. A request that is about to refer to one holds it, and waits
for a deletion in progress.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from heron_apiserver.package_store import FolderPackageStore, PackageStore, PackageStoreError
from heron_control.packaging.check import check_package_apart
from heron_control.packaging.shipping import LIMITS, is_digest
from heron_control.packaging.writer import ArchiveLimits

log = logging.getLogger(__name__)


class IncomingPackage:
    """Upload in progress. ``write`` may be called from one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._hash = hashlib.sha256()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "wb", buffering=1 << 20)

    def write(self, data: bytes) -> None:
        """Append data. Raises OSError."""
        self._file.write(data)
        self._hash.update(data)
        self.size += len(data)

    def finish(self) -> str:
        """Write everything to disk and return the digest. Idempotent. Raises OSError."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        return self._hash.hexdigest()

    def discard(self) -> None:
        """Delete the file, unless it has become a package. Idempotent."""
        with contextlib.suppress(OSError):  # the data is discarded anyway
            self._file.close()
        self.path.unlink(missing_ok=True)


class PackageRepository:
    """Packages of one home. Thread-safe."""

    def __init__(self, home: Path, limits: ArchiveLimits = LIMITS, store: PackageStore | None = None) -> None:
        self._store = store or FolderPackageStore(home / "packages")
        self._uploads = home / "uploads"
        self._limits = limits
        self._held: Counter[str] = Counter()
        self._removing: set[str] = set()
        self._changed = threading.Condition()
        self._uploads.mkdir(mode=0o700, exist_ok=True)
        for rest in self._uploads.iterdir():
            rest.unlink()

    def incoming(self) -> IncomingPackage:
        """Create a file for an upload. Raises OSError."""
        return IncomingPackage(self._uploads / secrets.token_hex(16))

    def has(self, digest: str) -> bool:
        """Return True if the package exists. Raises PackageStoreError."""
        return is_digest(digest) and self._store.has(digest)

    def path(self, digest: str) -> Path | None:
        """Return a file with exactly the bytes of the package, or None. Raises PackageStoreError, OSError."""
        return self._store.path(digest) if is_digest(digest) else None

    def accept(self, incoming: IncomingPackage) -> str:
        """Check an upload, store it and return its digest. Raises PackageError, PackageStoreError, OSError."""
        digest = incoming.finish()
        check_package_apart(incoming.path, self._limits)
        with self.hold(digest):
            self._store.keep(digest, incoming.path)
        return digest

    @contextlib.contextmanager
    def hold(self, digest: str) -> Iterator[None]:
        """Protect a package from deletion within the context. Waits for a deletion in progress."""
        with self._changed:
            self._held[digest] += 1
            self._changed.wait_for(lambda: digest not in self._removing)
        try:
            yield
        finally:
            with self._changed:
                self._held[digest] -= 1
                if not self._held[digest]:
                    del self._held[digest]

    def digests(self) -> list[str]:
        """Return the digests of all packages. Raises PackageStoreError, OSError."""
        return self._store.digests()

    def remove_unless_held(self, digest: str) -> bool:
        """Delete a package.

        Returns:
            False if a request holds it or the store fails; the next start deletes it then.
        """
        if not is_digest(digest):
            return False  # a submit may name anything
        with self._changed:
            if digest in self._held or digest in self._removing:
                return False
            self._removing.add(digest)
        try:
            self._store.remove(digest)
        except PackageStoreError as error:
            log.warning("unused package stays until the next start: %s", error)
            return False
        finally:
            with self._changed:
                self._removing.discard(digest)
                self._changed.notify_all()
        return True
