"""Checkpoint files of the topology master: manifests are read, written and removed outside the event loop.

Storage may be slow or hang, so writing and removal have a thread each, separate from the event loop's pool: requests to
the state store never wait for a disk. At most one removal runs; only the newest request made meanwhile follows it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from heron_runtime.checkpoint_files import CheckpointFolder, checkpoint_folder
from heron_runtime.launch import Launch
from heron_runtime.model.checkpoints import CheckpointRecord, Manifest, initial_manifest, keeps_state
from heron_runtime.model.plan import NO_CHECKPOINT
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.wire.errors import MalformedMessage
from topology_master.core.checkpoints import select_removable
from topology_master.core.events import Event, ManifestWritten, RemoveOldCheckpoints, StoreSnapshot, WriteManifest

log = logging.getLogger(__name__)


class ManifestFiles:
    """Checkpoint files of one topology, for one master.

    ``failed`` is called in the event loop when old files could not be removed.
    """

    def __init__(self, launch: Launch, inbox: Callable[[Event], None], failed: Callable[[], None]) -> None:
        self._launch = launch
        self._inbox = inbox
        self._failed = failed
        self._folder: CheckpointFolder | None = None
        self._known: dict[int, Manifest] = {}  # of those that are there: to read one again takes long, and none changes
        self._writing = ThreadPoolExecutor(1, "manifests")
        self._removing = ThreadPoolExecutor(1, "old files")
        self._removal: asyncio.Task[None] | None = None
        self._next: RemoveOldCheckpoints | None = None

    def add_manifest(self, stored: StoreSnapshot) -> StoreSnapshot:
        """Return ``stored`` with the manifest of the last complete checkpoint. Runs on the store's thread."""
        definition = stored.definition
        if definition is None or not keeps_state(definition.config):
            return stored
        if stored.record is None and self._launch.start_checkpoint:
            start = self._launch.start_checkpoint
            stored = replace(stored, record=CheckpointRecord(self._launch.start_generation, start, start))
        number = stored.record.complete if stored.record is not None else NO_CHECKPOINT
        try:
            return replace(stored, complete=self._manifest(definition, number))
        except ValueError as error:  # a setting; MalformedMessage of a damaged file is a ValueError
            return replace(stored, storage_fault=f"checkpoint {number}: {error}")
        except OSError as error:
            return replace(stored, storage_fault=f"checkpoint {number}: {_said(error)}")

    def _manifest(self, definition: TopologyDefinition, number: int) -> Manifest:
        if self._folder is None:
            url = setting(definition.config, Keys.TOPOLOGY_STATEFUL_CHECKPOINT_STORAGE)
            self._folder = checkpoint_folder(url, self._launch.home)
        if number == NO_CHECKPOINT:
            return initial_manifest(definition.id)
        manifest = self._known.get(number)
        if manifest is None:
            try:
                manifest = self._folder.read_manifest(number)
            except MalformedMessage as error:
                raise ValueError(f"its manifest below {self._folder.folder} is not whole: {error}") from error
            if (manifest.topology_id, manifest.checkpoint) != (definition.id, number):
                raise ValueError(
                    f"below {self._folder.folder} is that of {manifest.topology_id}, {manifest.checkpoint}"
                )
            self._known[number] = manifest
        return manifest

    async def manifests(self) -> dict[int, Manifest | None]:
        """Return all manifests, None for one that cannot be read.

        Raises:
            OSError: The storage does not answer.
        """
        folder = self._folder
        return {} if folder is None else await asyncio.to_thread(self._read_all, folder)

    def _read_all(self, folder: CheckpointFolder) -> dict[int, Manifest | None]:
        return {number: self._known.get(number) or self._readable(folder, number) for number in folder.manifests()}

    def write(self, request: WriteManifest) -> None:
        """Write a manifest; ``ManifestWritten`` follows."""
        loop, manifest, folder = asyncio.get_running_loop(), request.manifest, self._folder
        assert folder is not None, "who takes a checkpoint has read the last one"

        def work() -> None:
            why = ""
            try:
                folder.write_manifest(manifest)
                self._known[manifest.checkpoint] = manifest
            except OSError as error:
                why = _said(error)
            loop.call_soon_threadsafe(self._inbox, ManifestWritten(manifest.checkpoint, why))

        self._writing.submit(work)

    def remove(self, request: RemoveOldCheckpoints) -> None:
        """Remove old files after the removal under way."""
        self._next = request
        if self._removal is None or self._removal.done():
            self._removal = asyncio.create_task(self._remove(), name="old files")

    async def _remove(self) -> None:
        while self._next is not None:
            request, self._next = self._next, None
            try:
                await asyncio.get_running_loop().run_in_executor(self._removing, self.remove_now, request)
            except OSError as error:
                self._failed()
                log.warning("old checkpoints stay: %s", _said(error))

    def remove_now(self, request: RemoveOldCheckpoints) -> None:
        """Remove old files, on the calling thread.

        Raises:
            OSError: A file cannot be removed.
        """
        folder = self._folder
        assert folder is not None
        manifests = self._read_all(folder)
        old = select_removable(manifests, folder.parts(), request.complete, request.running, request.keep)
        for number in old.manifests:
            folder.remove_manifest(number)
            self._known.pop(number, None)
        folder.remove_parts(old.parts)
        if old.manifests or old.parts:
            log.info(
                "removed manifests %s and %d parts", ", ".join(map(str, old.manifests)) or "of none", len(old.parts)
            )

    def _readable(self, folder: CheckpointFolder, number: int) -> Manifest | None:
        try:
            manifest = self._known[number] = folder.read_manifest(number)
            return manifest
        except FileNotFoundError:
            return None
        except MalformedMessage as error:
            log.warning("the manifest of checkpoint %d below %s: %s", number, folder.folder, error)
            return None

    def close(self) -> None:
        """Cancel pending work without waiting."""
        if self._removal is not None:
            self._removal.cancel()
        self._writing.shutdown(wait=False, cancel_futures=True)
        self._removing.shutdown(wait=False, cancel_futures=True)


def _said(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)
