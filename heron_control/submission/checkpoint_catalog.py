"""Checkpoints of a cluster's topologies: those in their storage and those with a name."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from heron_control.inspection.checkpoint_copies import damaged_parts
from heron_control.inspection.checkpoints import details, read_manifest, record_in, rows
from heron_control.inspection.inspector import Inspector
from heron_control.inspection.remote_checkpoints import reachable_storage
from heron_control.progress import Progress, silent
from heron_control.submission.checkpoint_adoption import CheckpointResolver, CheckpointSource, check_adoptable
from heron_control.submission.named_checkpoints import NamedCheckpoints
from heron_control.submission.submission import ClusterConfig, StartFrom
from heron_runtime.failures import NotFound, UsageError
from heron_runtime.model.records import TopologyRecord
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.state.store import StateStore


class CheckpointCatalog:
    """Checkpoints of one cluster. Thread-safe."""

    def __init__(self, config: ClusterConfig, store: StateStore) -> None:
        self._config = config
        self._store = store
        self._inspector = Inspector(store, config.homes)
        self._named = NamedCheckpoints(config.home, config.cluster, config.quota.checkpoint_bytes)

    def find(self, start: StartFrom, definition: TopologyDefinition) -> CheckpointSource:
        """Return the checkpoint that a topology starts with. Raises as ``CheckpointResolver.find``."""
        finder = CheckpointResolver(
            self._store, self._inspector, self._named, self._config.cluster, folders=self._config.shared
        )
        checkpoint = finder.find(start.reference)
        check_adoptable(checkpoint, definition, may_drop=start.may_drop)
        return checkpoint

    def name(
        self, record: TopologyRecord, name: str, wait_seconds: float, progress: Progress = silent
    ) -> tuple[int, Path]:
        """Take a checkpoint, copy it under a name, and return its number and folder.

        Also raises what ``take_checkpoint`` does.

        Raises:
            ExistsAlready: The name is taken.
            UsageError: The name is invalid.
            DamagedCheckpoint: A file of the checkpoint is damaged.
            OSError: The copy cannot be written.
        """
        stored = record.execution
        whose = stored.role, stored.environ, stored.topology
        self._named.check_free(*whose, name)
        folder = reachable_storage(record)
        number = self._inspector.take_checkpoint(record, wait_seconds, progress)
        progress(f"copying checkpoint {number}")
        return number, self._named.save(folder, read_manifest(folder, number), *whose, name)

    def keep(self, record: TopologyRecord, number: int) -> str:
        """Copy a complete checkpoint under the name ``upgrade-NUMBER``, and return the name.

        Raises:
            DamagedCheckpoint: A file of the checkpoint is damaged.
            UsageError: The topology is stateless.
            Failure: The storage cannot be reached or the disk is too full.
            OSError: The copy cannot be written.
        """
        label = f"upgrade-{number}"
        self.forget(record, label)  # left by an abandoned attempt
        stored, folder = record.execution, reachable_storage(record)
        self._named.save(folder, read_manifest(folder, number), stored.role, stored.environ, stored.topology, label)
        return label

    def forget(self, record: TopologyRecord, label: str) -> None:
        """Remove the copy made by ``keep``, if it exists.

        Raises:
            OSError: It cannot be removed.
        """
        stored = record.execution
        with suppress(NotFound):
            self._named.delete(stored.role, stored.environ, stored.topology, label)

    def delete(self, name: str, role: str, environ: str, label: str) -> None:
        """Remove the checkpoint of this name.

        Raises:
            NotFound: The name is unknown.
            UsageError: The name is invalid.
            OSError: It cannot be removed.
        """
        self._named.delete(role, environ, name, label)

    def rows(self, name: str, role: str, environ: str) -> list[dict[str, Any]]:
        """Return a row for each stored and each named checkpoint, also of a killed topology.

        Raises:
            NotFound: The topology is unknown.
            UsageError: The topology is stateless.
            StoreError: The store is unavailable.
            OSError: The storage cannot be read.
        """
        named = self._named.rows(role, environ, name)
        try:
            record = self._inspector.find(name, role, environ)
            documents = rows(reachable_storage(record), record_in(self._store, name).complete)
        except (NotFound, UsageError):  # it was killed, or a stateless topology has its name now
            if not named:
                raise
            documents = []
        return [{**row, "name": None, "folder": None} for row in documents] + named

    def details(self, name: str, role: str, environ: str, which: str, *, verify: bool = False) -> dict[str, Any]:
        """Return the content of a checkpoint by number or name.

        ``verify`` adds ``damaged_files``, one line each. Raises as ``rows``, and Failure for a damaged manifest.
        """
        if which.isdecimal():
            record = self._inspector.find(name, role, environ)
            folder, number = reachable_storage(record), int(which)
            complete = record_in(self._store, name).complete
            document = {**details(folder, number, complete), "name": None, "folder": None}
        else:
            folder, manifest = self._named.manifest(role, environ, name, which)
            number, document = manifest.checkpoint, self._named.details(role, environ, name, which)
        if verify:
            document["damaged_files"] = damaged_parts(folder, read_manifest(folder, number))
        return document
