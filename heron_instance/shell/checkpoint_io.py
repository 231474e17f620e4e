"""Input and output of checkpoints: writes parts on a thread of its own, and loads the state of a task.

Parts are written one at a time while records are processed. Of the waiting ones only the newest is worth writing, since
a later checkpoint has begun. The result goes to the inbox. Nothing else waits for the disk.

For a restore, the manifest states from which files the key groups of the plan are read, and each block is verified. A
task reads only blocks of groups it owns now, and the task blocks of its component, which are small. A missing or
damaged file is reported with file, checkpoint and task, and the topology fails: it never runs with wrong state.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from heron_instance.core.state.snapshot import CannotEncode, KeyGroupRows, Row, TaskSnapshot, read_part
from heron_instance.core.state.task_state import RestoredState, key_widths, owned_groups
from heron_instance.core.values_codec import ValuesCodec
from heron_instance.shell.inbox import InboxItem, PartFailed, PartWritten
from heron_runtime.checkpoint_files import CheckpointFolder
from heron_runtime.model.checkpoints import Manifest, StatePart, reading_plan
from heron_runtime.model.plan import NO_CHECKPOINT, PhysicalPlan
from heron_runtime.wire.checkpoint_formats import TASK_STATE
from heron_runtime.wire.errors import MalformedMessage

log = logging.getLogger(__name__)


class PartWriter:
    """Writer of the parts of one instance. ``put`` reports to the executor."""

    def __init__(self, folder: CheckpointFolder, put: Callable[[InboxItem], None]) -> None:
        self._folder = folder
        self._put = put
        self._waiting: deque[TaskSnapshot] = deque()
        self._bell = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name="checkpoint parts", daemon=True)
        self._thread.start()

    def write(self, snapshot: TaskSnapshot) -> None:
        """Queue the part of a snapshot. Return at once."""
        self._waiting.append(snapshot)
        self._bell.release()

    def _run(self) -> None:
        while True:
            self._bell.acquire()
            self._write(self._waiting.popleft())

    def _write(self, snapshot: TaskSnapshot) -> None:
        draft = snapshot.draft
        if self._waiting:
            self._failed(draft, "skipped: a later checkpoint began while the part before it was written")
            return
        try:
            part, pieces = snapshot.encode()
            self._folder.write_part(part.name, pieces)
        except (OSError, CannotEncode, MemoryError) as error:
            why = str(error) or "out of memory"
            log.error("checkpoint %d: %s cannot be written: %s", draft.checkpoint, draft.name, why)
            self._failed(draft, f"{self._folder.folder}: {draft.name} cannot be written: {why}")
        else:
            self._put(PartWritten(part))

    def _failed(self, part: StatePart, why: str) -> None:
        self._put(PartFailed(part.generation, part.checkpoint, why))


class CannotRestore(Exception):
    """A checkpoint cannot be loaded. The text names the file and the cause."""


def load_restored_state(folder: CheckpointFolder, plan: PhysicalPlan, task: int, codec: ValuesCodec) -> RestoredState:
    """Load the state with which ``task`` begins the plan's generation. Key groups are read lazily.

    Raises:
        CannotRestore: A file is missing or damaged; also raised by the lazy reads.
    """
    checkpoint = plan.generation.restore_from
    if checkpoint == NO_CHECKPOINT:
        return RestoredState()
    manifest = _manifest(folder, checkpoint, plan.topology.id)
    name = plan.component_of(task)
    own: dict[int, list[Row]] = {}
    for part in manifest.parts:
        if part.component == name:
            own[part.task] = [row for block in _read(folder, part, 0, codec) for row in block.rows]
    return RestoredState(
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
            f"checkpoint {checkpoint} in {folder.folder} belongs to topology {manifest.topology_id}\n"
            "hint: use a separate folder for each topology (topology.stateful.checkpoint.storage)"
        )
    return manifest


def _blocks(
    folder: CheckpointFolder, manifest: Manifest, plan: PhysicalPlan, task: int, codec: ValuesCodec
) -> Iterator[KeyGroupRows]:
    name = plan.component_of(task)
    if not key_widths(plan, name):
        return
    for part, wanted in reading_plan(manifest.layers.get(name, ()), owned_groups(plan, task)):
        for block in _read(folder, part, wanted, codec):
            if block.group != TASK_STATE:
                yield block


def _read(folder: CheckpointFolder, part: StatePart, groups: int, codec: ValuesCodec) -> Iterator[Any]:
    try:
        with folder.open_part(part.name) as read:
            yield from (b for b in read_part(part, read, groups, codec) if groups or b.group == TASK_STATE)
    except (OSError, ValueError) as error:
        raise CannotRestore(f"checkpoint {part.checkpoint}, {part.component} task {part.task}: {error}") from error
