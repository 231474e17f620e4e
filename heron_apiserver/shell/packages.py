"""Packages by the digest of their bytes, from uploads that are checked before they count.

An upload is written to ``uploads/`` under a name drawn here, hashed on the way, and becomes a package when the store
(``package_store``) has taken it whole; by default that is the folder ``packages/``, where it takes a rename.
Whatever lies in ``uploads/`` at a start is the rest of an upload that did not come through. A package that no topology
refers to goes; a request that is about to refer to one holds it, and waits if it is just going.
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

from heron_apiserver.shell.package_store import FolderStore, PackageStore, PackageStoreTrouble
from heron_control.packaging.check import check_package_apart
from heron_control.packaging.shipping import LIMITS, is_digest
from heron_control.packaging.writer import ArchiveLimits

log = logging.getLogger(__name__)


class Incoming:
    """A file on its way. ``write`` may be called from any one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._hash = hashlib.sha256()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "wb", buffering=1 << 20)

    def write(self, data: bytes) -> None:
        """Append. Raises OSError."""
        self._file.write(data)
        self._hash.update(data)
        self.size += len(data)

    def finish(self) -> str:
        """All of it is on disk; returns the digest. Idempotent. Raises OSError."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        return self._hash.hexdigest()

    def discard(self) -> None:
        """Remove it, unless it has become a package. Idempotent."""
        with contextlib.suppress(OSError):  # what it could not write at close is thrown away anyhow
            self._file.close()
        self.path.unlink(missing_ok=True)


class Packages:
    """The packages of one home. Thread-safe."""

    def __init__(self, home: Path, limits: ArchiveLimits = LIMITS, store: PackageStore | None = None) -> None:
        self._store = store or FolderStore(home / "packages")
        self._uploads = home / "uploads"
        self._limits = limits
        self._held: Counter[str] = Counter()
        self._going: set[str] = set()
        self._changed = threading.Condition()
        self._uploads.mkdir(mode=0o700, exist_ok=True)
        for rest in self._uploads.iterdir():
            rest.unlink()

    def incoming(self) -> Incoming:
        """A new file to write an upload to. Raises OSError."""
        return Incoming(self._uploads / secrets.token_hex(16))

    def has(self, digest: str) -> bool:
        """Is it here? Raises PackageStoreTrouble."""
        return is_digest(digest) and self._store.has(digest)

    def path(self, digest: str) -> Path | None:
        """A file with exactly its bytes; None if it is not here. Raises PackageStoreTrouble, OSError."""
        return self._store.path(digest) if is_digest(digest) else None

    def accept(self, incoming: Incoming) -> str:
        """Check what came and keep it; returns its digest. Raises PackageError, PackageStoreTrouble, OSError."""
        digest = incoming.finish()
        check_package_apart(incoming.path, self._limits)
        with self.held(digest):
            self._store.keep(digest, incoming.path)
        return digest

    @contextlib.contextmanager
    def held(self, digest: str) -> Iterator[None]:
        """Within, the package does not go for want of a topology that refers to it. Waits while it goes."""
        with self._changed:
            self._held[digest] += 1
            self._changed.wait_for(lambda: digest not in self._going)
        try:
            yield
        finally:
            with self._changed:
                self._held[digest] -= 1
                if not self._held[digest]:
                    del self._held[digest]

    def digests(self) -> list[str]:
        """All that are here. Raises PackageStoreTrouble, OSError."""
        return self._store.digests()

    def remove_unless_held(self, digest: str) -> bool:
        """Remove one; False if a request holds it, or the store does not do it: then the next start does."""
        if not is_digest(digest):
            return False  # whatever a submit has named: there is none
        with self._changed:
            if digest in self._held or digest in self._going:
                return False
            self._going.add(digest)
        try:
            self._store.remove(digest)
        except PackageStoreTrouble as trouble:
            log.warning("a package that nobody needs stays until the next start: %s", trouble)
            return False
        finally:
            with self._changed:
                self._going.discard(digest)
                self._changed.notify_all()
        return True
