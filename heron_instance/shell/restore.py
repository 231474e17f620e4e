"""What a task begins a generation with, read from the files of a checkpoint.

The manifest says which files the key groups of the plan are read from; each block proves itself. A task reads only
blocks of groups it owns now, and the task blocks of its component, which are small. Anything that is missing or damaged
is named, with file, checkpoint and task: the topology fails then, it is never wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from heron_instance.core.state.kept import Restored, key_widths, owned_groups
from heron_instance.core.state.part_file import read_part
from heron_instance.core.state.taken import GroupRows, Row
from heron_instance.core.values_codec import ValuesCodec
from heron_runtime.checkpoint_files import CheckpointFolder
from heron_runtime.model.checkpoints import Manifest, Part, reading_plan
from heron_runtime.model.plan import NO_CHECKPOINT, PhysicalPlan
from heron_runtime.wire.checkpoint_formats import TASK_STATE
from heron_runtime.wire.errors import MalformedMessage


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
