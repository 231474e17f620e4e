"""Named checkpoints (``heron checkpoint create --name``): self-contained folders that outlive their topology.

They are below the home in ``checkpoints/CLUSTER/ROLE/ENV/TOPOLOGY/NAME``, next to the folders of topologies. Such a
folder has the layout of a topology's storage, with one manifest, so it can be copied anywhere. It is written to a
temporary folder next to its path and moved there by one rename, so a name always refers to a complete checkpoint.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from heron_control.inspection.checkpoint_copies import DamagedCheckpoint, copy_checkpoint, needed, size_of
from heron_control.inspection.checkpoints import details, read_manifest, rows
from heron_runtime.checkpoint_files import CHECKPOINTS, CheckpointFolder
from heron_runtime.failures import ExistsAlready, Failure, NotAllowed, NotFound, UsageError, did_you_mean
from heron_runtime.files import entries, sync_folder
from heron_runtime.model.checkpoints import Manifest, StatePart
from heron_runtime.model.ids import is_safe_name
from heron_runtime.model.settings import MiB

OWN = 0o600


class CheckpointQuotaSpent(NotAllowed):
    """Raised if a named checkpoint exceeds the quota of its role."""

    cure = "Delete named checkpoints that are not needed (`heron checkpoint delete`), or raise the quota."


class NamedCheckpoints:
    """Named checkpoints of one cluster. ``quota_bytes`` limits those of each role together; None: no limit."""

    def __init__(self, home: Path, cluster: str, quota_bytes: int | None = None) -> None:
        self._root = home / CHECKPOINTS / cluster
        self._quota_bytes = quota_bytes
        self._counting = threading.Lock()
        self._copied_bytes: Counter[str] = Counter()  # by role, of copies in progress

    def place(self, role: str, environ: str, topology: str, name: str) -> Path:
        """Return the folder for a name.

        Raises:
            UsageError: The name is invalid.
        """
        if not is_safe_name(name):
            raise UsageError(
                f"invalid checkpoint name {name[:64]!r}", "Use letters, digits, '_', '-' and '.', a letter first."
            )
        return self._root / role / environ / topology / name

    def check_free(self, role: str, environ: str, topology: str, name: str) -> None:
        """Check that a name is unused.

        Raises:
            ExistsAlready: The name is taken.
            UsageError: The name is invalid.
        """
        if self.place(role, environ, topology, name).exists():
            raise ExistsAlready(
                f"{topology} has a checkpoint {name!r} already", "`heron checkpoint delete` removes it."
            )

    def folder(self, role: str, environ: str, topology: str, name: str) -> CheckpointFolder:
        """Return the folder of an existing checkpoint.

        Raises:
            NotFound: The name is unknown.
            UsageError: The name is invalid.
        """
        place = self.place(role, environ, topology, name)
        if not place.is_dir():
            known = self._names(place.parent)
            there = f"It has {', '.join(known)}." if known else "It has none with a name."
            raise NotFound(f"{topology} has no checkpoint {name!r}{did_you_mean(name, known)}", there)
        return CheckpointFolder(place)

    def manifest(self, role: str, environ: str, topology: str, name: str) -> tuple[CheckpointFolder, Manifest]:
        """Return the manifest of a checkpoint.

        Raises:
            NotFound: The name is unknown.
            UsageError: The name is invalid.
            Failure: The manifest is damaged.
        """
        folder = self.folder(role, environ, topology, name)
        numbers = folder.manifests()
        if len(numbers) != 1:
            raise DamagedCheckpoint(f"{folder.folder} has {len(numbers)} manifests; a named checkpoint has one")
        return folder, read_manifest(folder, numbers[0])

    def save(
        self, source: CheckpointFolder, manifest: Manifest, role: str, environ: str, topology: str, name: str
    ) -> Path:
        """Copy a checkpoint and return its folder.

        Raises:
            ExistsAlready: The name is taken.
            UsageError: The name is invalid.
            DamagedCheckpoint: A file of the checkpoint is damaged.
            CheckpointQuotaSpent: The role would exceed its quota.
            Failure: The copy would take more than half of the free disk.
            OSError: The copy cannot be written.
        """
        self.check_free(role, environ, topology, name)
        place = self.place(role, environ, topology, name)
        files = {part.name: part for part in needed(manifest)}
        with self._granted(role, size_of(files.values())):
            return self._copy(source, manifest, files, place)

    def _copy(self, source: CheckpointFolder, manifest: Manifest, files: dict[str, StatePart], place: Path) -> Path:
        topology, name = place.parts[-2:]
        staging = place.with_name(f".{name}.{secrets.token_hex(4)}")
        staging.mkdir(mode=0o700, parents=True)
        try:
            _check_room(staging, manifest, size_of(files.values()))
            copy_checkpoint(source, CheckpointFolder(staging), manifest, files, OWN)
            os.rename(staging, place)
            sync_folder(place.parent)
        except BaseException as error:
            shutil.rmtree(staging, ignore_errors=True)
            self._remove_empty(place)
            if isinstance(error, OSError) and place.exists():
                raise ExistsAlready(f"{topology} has a checkpoint {name!r} already") from None
            raise
        return place

    @contextmanager
    def _granted(self, role: str, size_bytes: int) -> Iterator[None]:
        """Reserve bytes of the role's quota within the context. Raises CheckpointQuotaSpent, OSError."""
        with self._counting:
            if self._quota_bytes is not None:
                used = _used_bytes(self._root / role) + self._copied_bytes[role]
                if used + size_bytes > self._quota_bytes:
                    raise CheckpointQuotaSpent(
                        f"role {role} may have {self._quota_bytes / MiB:.1f} MiB of named checkpoints: "
                        f"{used / MiB:.1f} are used, and this one needs {size_bytes / MiB:.1f}"
                    )
            self._copied_bytes[role] += size_bytes
        try:
            yield
        finally:
            with self._counting:
                self._copied_bytes[role] -= size_bytes

    def delete(self, role: str, environ: str, topology: str, name: str) -> None:
        """Remove a checkpoint.

        Raises:
            NotFound: The name is unknown.
            UsageError: The name is invalid.
            OSError: It cannot be removed.
        """
        place = self.folder(role, environ, topology, name).folder
        gone = place.with_name(f".{name}.{secrets.token_hex(4)}")
        os.rename(place, gone)
        shutil.rmtree(gone)
        self._remove_empty(place)

    def rows(self, role: str, environ: str, topology: str) -> list[dict[str, Any]]:
        """Return ``checkpoints.rows`` with the name and folder of each.

        Raises:
            OSError: A folder cannot be read.
        """
        documents = []
        for name in self._names(self._root / role / environ / topology):
            folder = self.folder(role, environ, topology, name)
            documents += [
                {**row, "name": name, "folder": str(folder.folder)} for row in rows(folder, max(folder.manifests()))
            ]
        return documents

    def details(self, role: str, environ: str, topology: str, name: str) -> dict[str, Any]:
        """Return ``checkpoints.details``. Raises as ``manifest``."""
        folder, manifest = self.manifest(role, environ, topology, name)
        return {
            **details(folder, manifest.checkpoint, manifest.checkpoint), "name": name, "folder": str(folder.folder),
        }  # fmt: skip

    @staticmethod
    def _names(folder: Path) -> list[str]:
        return [path.name for path in entries(folder) if not path.name.startswith(".")]

    @staticmethod
    def _remove_empty(place: Path) -> None:
        with suppress(OSError):  # other checkpoints are there, or one is being created
            for above in list(place.parents)[:5]:
                above.rmdir()


def _check_room(folder: Path, manifest: Manifest, size: int) -> None:
    """Raise Failure if a copy of this size would take more than half of the free disk."""
    free = shutil.disk_usage(folder).free
    if size > free // 2:
        raise Failure(
            f"checkpoint {manifest.checkpoint} has {size / MiB:.1f} MiB, more than half of the {free / MiB:.1f} MiB "
            f"that are free below {folder.parent}",
            "Delete checkpoints or topologies that are not needed, or free disk space.",
        )


def _used_bytes(folder: Path) -> int:
    """Return the bytes of the named checkpoints of a role, without copies in progress. Raises OSError."""
    total = 0
    for place in folder.glob("*/*/[!.]*"):
        for path in place.rglob("*"):
            with suppress(FileNotFoundError):  # deleted meanwhile
                status = path.lstat()
                total += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return total
