"""Packages by the digest of their bytes: ``packages/<sha256>.tar.gz``, from uploads that are checked before they count.

An upload is written to ``uploads/`` under a name drawn here, hashed on the way, and becomes a package by one rename.
Whatever lies in ``uploads/`` at a start is the rest of an upload that did not come through. A package that no topology
refers to goes; a request that is about to refer to one holds it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from heron_control.packaging.check import check_apart
from heron_control.packaging.shipping import LIMITS, is_digest
from heron_control.packaging.writer import ArchiveLimits

SUFFIX = ".tar.gz"


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
        """All of it is on disk; returns the digest. Raises OSError."""
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

    def __init__(self, home: Path, limits: ArchiveLimits = LIMITS) -> None:
        self._folder = home / "packages"
        self._uploads = home / "uploads"
        self._limits = limits
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()
        for folder in (self._folder, self._uploads):
            folder.mkdir(mode=0o700, exist_ok=True)
        for rest in self._uploads.iterdir():
            rest.unlink()

    def incoming(self) -> Incoming:
        """A new file to write an upload to. Raises OSError."""
        return Incoming(self._uploads / secrets.token_hex(16))

    def path(self, digest: str) -> Path | None:
        """Where a package is; None if it is not there."""
        if not is_digest(digest):
            return None
        path = self._folder / f"{digest}{SUFFIX}"
        return path if path.is_file() else None

    def accept(self, incoming: Incoming) -> str:
        """Check what came and keep it; returns its digest. Raises PackageError, OSError."""
        digest = incoming.finish()
        check_apart(incoming.path, self._limits)
        with self._lock:
            os.replace(incoming.path, self._folder / f"{digest}{SUFFIX}")
        return digest

    @contextlib.contextmanager
    def held(self, digest: str) -> Iterator[None]:
        """Within, the package does not go for want of a topology that refers to it."""
        with self._lock:
            self._held[digest] += 1
        try:
            yield
        finally:
            with self._lock:
                self._held[digest] -= 1
                if not self._held[digest]:
                    del self._held[digest]

    def digests(self) -> list[str]:
        """All that are here."""
        names = (entry.name.removesuffix(SUFFIX) for entry in self._folder.iterdir())
        return sorted(name for name in names if is_digest(name))

    def remove_unless_held(self, digest: str) -> bool:
        """Remove one; False if a request holds it."""
        with self._lock:
            if digest in self._held:
                return False
            (self._folder / f"{digest}{SUFFIX}").unlink(missing_ok=True)
            return True
