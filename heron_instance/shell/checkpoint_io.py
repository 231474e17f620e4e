"""What a task begins a generation with, read from the files of a checkpoint.

The manifest says which files the key groups of the plan are read from; each block proves itself. A task reads only
blocks of groups it owns now, and the task blocks of its component, which are small. Anything that is missing or damaged
is named, with file, checkpoint and task: the topology fails then, it is never wrong.

Encodes and writes parts of checkpoints on a thread of its own, while records are processed.

One part at a time; of those that wait only the newest is worth writing, since a later checkpoint has begun. What became
of each is put into the inbox. Nothing else waits for the disk.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from heron_instance.core.state.snapshot import CannotEncode, GroupRows, Row, Snapshot, read_part
from heron_instance.core.state.task_state import Restored, key_widths, owned_groups
from heron_instance.core.values_codec import ValuesCodec
from heron_instance.shell.inbox import Item, PartFailed, PartWritten
from heron_runtime.checkpoint_files import CheckpointFolder
from heron_runtime.model.checkpoints import Manifest, Part, reading_plan
from heron_runtime.model.generations import NO_CHECKPOINT
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.wire.errors import MalformedMessage
from heron_runtime.wire.part_heads import TASK_STATE

log = logging.getLogger(__name__)


class PartWriter:
    """Of one instance. ``put`` tells the executor."""

    def __init__(self, folder: CheckpointFolder, put: Callable[[Item], None]) -> None:
        self._folder = folder
        self._put = put
        self._waiting: deque[Snapshot] = deque()
        self._bell = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name="checkpoint parts", daemon=True)
        self._thread.start()

    def write(self, snapshot: Snapshot) -> None:
        """Write its part; returns at once."""
        self._waiting.append(snapshot)
        self._bell.release()

    def _run(self) -> None:
        while True:
            self._bell.acquire()
            self._write(self._waiting.popleft())

    def _write(self, snapshot: Snapshot) -> None:
        draft = snapshot.draft
        if self._waiting:
            self._failed(draft, "the one before it took so long that a later one has begun")
            return
        try:
            part, pieces = snapshot.encode()
            self._folder.write_part(part.name, pieces)
        except (OSError, CannotEncode, MemoryError) as error:
            why = str(error) or "there is no memory for it"
            log.error("checkpoint %d: %s cannot be written: %s", draft.checkpoint, draft.name, why)
            self._failed(draft, f"{self._folder.folder} does not take {draft.name}: {why}")
        else:
            self._put(PartWritten(part))

    def _failed(self, part: Part, why: str) -> None:
        self._put(PartFailed(part.generation, part.checkpoint, why))


class CannotRestore(Exception):
    """A checkpoint cannot be loaded. The text names the file and what is wrong with it."""


def restored_from(folder: CheckpointFolder, plan: PhysicalPlan, task: int, codec: ValuesCodec) -> Restored:
    """What ``task`` begins the plan's generation with; key groups are read as they are asked for. Raises
    CannotRestore, then and later."""
    checkpoint = plan.generation.restore_from
    if checkpoint == NO_CHECKPOINT:
        return Restored()
    manifest = _manifest(folder, checkpoint, plan.topology.id)
    name = plan.component_of(task)
    own: dict[int, list[Row]] = {}
    for part in manifest.parts:
        if part.component == name:
            own[part.task] = [row for block in _read(folder, part, 0, codec) for row in block.rows]
    return Restored(
        checkpoint, _blocks(folder, manifest, plan, task, codec), own,
        manifest.tokens_of(task, plan.tasks_of(name), name), manifest.tokens, manifest.adopted,
    )  # fmt: skip


def _manifest(folder: CheckpointFolder, checkpoint: int, topology_id: str) -> Manifest:
    try:
        manifest = folder.read_manifest(checkpoint)
    except (OSError, MalformedMessage) as error:
        raise CannotRestore(f"the manifest of checkpoint {checkpoint} in {folder.folder}: {error}") from error
    if manifest.topology_id != topology_id:
        raise CannotRestore(
            f"checkpoint {checkpoint} in {folder.folder} is of topology {manifest.topology_id}: each topology needs a "
            "folder of its own (topology.stateful.checkpoint.storage)"
        )
    return manifest


def _blocks(
    folder: CheckpointFolder, manifest: Manifest, plan: PhysicalPlan, task: int, codec: ValuesCodec
) -> Iterator[GroupRows]:
    name = plan.component_of(task)
    if not key_widths(plan, name):
        return
    for part, wanted in reading_plan(manifest.layers.get(name, ()), owned_groups(plan, task)):
        for block in _read(folder, part, wanted, codec):
            if block.group != TASK_STATE:
                yield block


def _read(folder: CheckpointFolder, part: Part, groups: int, codec: ValuesCodec) -> Iterator[Any]:
    try:
        with folder.open_part(part.name) as read:
            yield from (b for b in read_part(part, read, groups, codec) if groups or b.group == TASK_STATE)
    except (OSError, ValueError) as error:
        raise CannotRestore(f"checkpoint {part.checkpoint}, {part.component} task {part.task}: {error}") from error
