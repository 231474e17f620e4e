"""Start checkpoint of a topology (``heron submit --from-checkpoint``): of another topology or of its own past.

::

    REF ──▶ folder and number
        ──▶ refuse state that no component can restore
        ──▶ copy the files into the new topology's storage, under its names, and verify them
        ──▶ its launch names the checkpoint
        ──▶ if its containers have storage of their own, the scheduler copies the files there

Theory of operation. A start is a restore (``topology_master/core/recovery.py``). The launch gives the generation and
the last complete checkpoint until the store does. The master begins the next generation from there, as after a fault.
The copies belong to the new topology, so retention of the old one does not affect them.

The choice of the state that can be restored (``adopt``) is pure. Components are matched by name. A spout must still be
a spout, and keys must consist of as many fields as before; otherwise the state cannot be restored. Task ids of the new
topology are independent of the old ones: the tasks of a component take over from its former tasks in order. A former
task without a successor gets an unused number, so that its own state is merged as after an update. Numbers of
checkpoints, turns and generations continue, since the turn defines from which file a key group is read, and tokens of
lower generations are removed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from heron_control.inspection.checkpoint_copies import DamagedCheckpoint, contents, copy_checkpoint
from heron_control.inspection.checkpoints import read_manifest, record_in, rows
from heron_control.inspection.inspector import Inspector
from heron_control.inspection.remote_checkpoints import reachable_storage
from heron_control.progress import Progress
from heron_control.submission.named_checkpoints import NamedCheckpoints
from heron_runtime.checkpoint_files import CheckpointFolder, checkpoint_folder
from heron_runtime.failures import Failure, InvalidTopology, NotFound, UsageError, listing
from heron_runtime.launch import Launch
from heron_runtime.model.checkpoints import AdoptionMode, Layers, Manifest, StatePart, keeps_state, shape_of
from heron_runtime.model.containers import volume_bytes
from heron_runtime.model.ids import MAX_TASK, is_safe_name
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.settings import Keys, MiB, setting
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.state.store import StateStore

SHAPES = "Write file:///folder[@NUMBER], or CLUSTER/ROLE/ENV/TOPOLOGY[@NUMBER or @NAME]."
READ_BY_ALL = 0o644  # only this user and instances can access their folder
_FOLDER = re.compile(r"file://(?:localhost)?(/.*?)(?:@(\d+))?")


@dataclass(frozen=True, slots=True)
class CheckpointSource:
    """Checkpoint to start from. ``generation`` is the latest known of the topology that took it."""

    folder: CheckpointFolder
    manifest: Manifest
    generation: int


class CheckpointResolver:
    """Resolver of checkpoint references in one cluster. With ``folders``, local folders are allowed."""

    def __init__(
        self, store: StateStore, inspector: Inspector, named: NamedCheckpoints, cluster: str, *, folders: bool
    ) -> None:
        self._store = store
        self._inspector = inspector
        self._named = named
        self._cluster = cluster
        self._folders = folders

    def find(self, reference: str) -> CheckpointSource:
        """Return the referenced checkpoint.

        Raises:
            UsageError: The reference is invalid.
            NotFound: The checkpoint does not exist.
            InvalidTopology: The topology is stateless.
            Failure: The checkpoint is damaged.
        """
        if reference.startswith("file:"):
            return self._in_folder(reference)
        place, at, which = reference.partition("@")
        parts = place.split("/")
        if len(parts) != 4 or not all(map(is_safe_name, parts)) or (at and not which):
            raise UsageError(f"{reference[:200]!r} names no checkpoint", SHAPES)
        cluster, role, environ, topology = parts
        if cluster != self._cluster:
            raise UsageError(
                f"{reference[:200]!r} is of cluster {cluster!r}, and this goes to {self._cluster!r}",
                "Copy the folder of a named checkpoint to where the new topology runs, and pass it as file:///folder.",
            )
        if which and not which.isdecimal():
            return self._of(self._named.folder(role, environ, topology, which))
        record = self._inspector.find(topology, role, environ)
        stored = record_in(self._store, topology)
        number = int(which) if which else stored.complete
        folder = reachable_storage(record)
        if not number:
            raise NotFound(f"{topology} has no complete checkpoint yet", "Run `heron checkpoint create --wait`.")
        manifest = read_manifest(folder, number)
        if not any(row["complete"] for row in rows(folder, stored.complete) if row["checkpoint"] == number):
            raise NotFound(f"checkpoint {number} of {topology} is not complete; the last one is {stored.complete}")
        return CheckpointSource(folder, manifest, stored.generation)

    def _in_folder(self, reference: str) -> CheckpointSource:
        if not self._folders:
            raise UsageError(
                f"{reference[:200]!r} is a folder, and the api server takes checkpoints of its own cluster only",
                "Name the topology, as CLUSTER/ROLE/ENV/TOPOLOGY@NAME.",
            )
        match = _FOLDER.fullmatch(reference)
        if match is None:
            raise UsageError(f"{reference[:200]!r} names no checkpoint", SHAPES)
        return self._of(CheckpointFolder(Path(match[1])), int(match[2] or 0))

    def _of(self, folder: CheckpointFolder, number: int = 0) -> CheckpointSource:
        numbers = folder.manifests()
        if not numbers:
            raise NotFound(f"no checkpoint in {folder.folder}", "A checkpoint has the folders manifests and parts.")
        if not number and len(numbers) > 1:
            raise UsageError(
                f"{folder.folder} has the checkpoints {listing(map(str, numbers))}, and not all need be complete",
                "Append @NUMBER to the folder.",
            )
        manifest = read_manifest(folder, number or numbers[0])
        return CheckpointSource(folder, manifest, manifest.generation)


class CheckpointCopy:
    """Files of a start checkpoint that were copied for a submission. ``undo`` removes them."""

    def __init__(self, folder: CheckpointFolder, names: Sequence[str], manifest: Manifest, generation: int) -> None:
        self.checkpoint, self.generation = manifest.checkpoint, max(manifest.generation, generation)
        self._folder = folder
        self._names = names

    def undo(self) -> None:
        """Remove the copied files.

        Raises:
            OSError: A file cannot be removed.
        """
        self._folder.remove_manifest(self.checkpoint)
        self._folder.remove_parts(self._names)


def check_reachable(launch: Launch, place: Path, definition: TopologyDefinition) -> None:
    """Check that a checkpoint can be put into the topology's storage.

    Where its containers have a home of their own, only the scheduler can bring a checkpoint there.

    Raises:
        InvalidTopology: The storage cannot be reached.
    """
    stated = setting(definition.config, Keys.TOPOLOGY_STATEFUL_CHECKPOINT_STORAGE)
    if stated and launch.home != str(place):
        raise InvalidTopology(
            f"the checkpoints of {launch.topology} belong in {stated} of its containers, and nothing can be put "
            "there from outside",
            f"Leave {Keys.TOPOLOGY_STATEFUL_CHECKPOINT_STORAGE.name} out.",
        )


def check_adoptable(checkpoint: CheckpointSource, definition: TopologyDefinition, *, may_drop: bool) -> None:
    """Check the checkpoint before anything changes.

    Raises:
        InvalidTopology: State would be lost; names every component.
        DamagedCheckpoint: A file is damaged.
    """
    name = definition.name
    if not keeps_state(definition.config):
        raise InvalidTopology(
            f"{name} keeps no state, so it cannot start from a checkpoint",
            "Set topology.reliability.mode = EFFECTIVELY_ONCE.",
        )
    lost = _lost(checkpoint, definition)
    if lost and not may_drop:
        raise InvalidTopology(
            f"{name} has no place for state of checkpoint {checkpoint.manifest.checkpoint}: {'; '.join(lost)}",
            "Name its components as they were, or drop this state with --allow-dropped-state.",
        )


def empty_storage(definition: TopologyDefinition, home: Path) -> CheckpointFolder:
    """Return the storage of a new topology whose folder is ``home``.

    Raises:
        InvalidTopology: It contains other checkpoints.
    """
    target = checkpoint_folder(setting(definition.config, Keys.TOPOLOGY_STATEFUL_CHECKPOINT_STORAGE), str(home))
    if target.manifests():
        raise InvalidTopology(
            f"there are checkpoints of another topology in {target.folder}",
            "Set topology.stateful.checkpoint.storage to a folder of its own.",
        )
    return target


def adopt_files(
    checkpoint: CheckpointSource,
    definition: TopologyDefinition,
    packing: PackingPlan,
    home: Path,
    progress: Progress,
    *,
    bounded: bool = False,
) -> CheckpointCopy:
    """Copy a checkpoint into the storage of the new topology, whose folder is ``home``.

    With ``bounded``, the copies must fit into the topology's volume.

    Raises:
        InvalidTopology: The storage has other checkpoints, or the copies are too large.
        DamagedCheckpoint: A file is damaged.
        OSError: A file cannot be written.
    """
    target = empty_storage(definition, home)
    tasks: dict[str, list[int]] = {spec.name: [] for spec in definition.components}
    for instance in packing.instances():
        tasks[instance.component].append(instance.task)
    what = contents(checkpoint.folder, checkpoint.manifest)
    dropped = without_place(checkpoint.manifest, kept_in(checkpoint.manifest, what.own, what.keyed), definition)
    manifest, files = adopt(checkpoint.manifest, definition.id, tasks, dropped)
    size, most = sum(part.size for part in files.values()), volume_bytes(definition.config, packing)
    if bounded and size > most:
        raise InvalidTopology(
            f"checkpoint {manifest.checkpoint} has {size / MiB:.1f} MiB, and the volume of {definition.name} is "
            f"granted {most / MiB:.1f} MiB",
            f"Raise {Keys.TOPOLOGY_VOLUME_DISK.name}.",
        )
    adoption = CheckpointCopy(target, list(files), manifest, checkpoint.generation)
    progress(f"copying checkpoint {manifest.checkpoint}")
    try:
        copy_checkpoint(checkpoint.folder, target, manifest, files, READ_BY_ALL)
    except BaseException:
        adoption.undo()
        raise
    return adoption


def _lost(checkpoint: CheckpointSource, definition: TopologyDefinition) -> list[str]:
    try:
        what = contents(checkpoint.folder, checkpoint.manifest)
    except DamagedCheckpoint as error:
        raise Failure(f"{definition.name} cannot start from it: {error}", error.cure) from None
    state_by_component = kept_in(checkpoint.manifest, what.own, what.keyed)
    return [lost.why for lost in without_place(checkpoint.manifest, state_by_component, definition)]


class Kept(NamedTuple):
    """Contents of a component in a checkpoint: own state of tasks, keyed state, tokens that may be uncommitted."""

    own: bool = False
    keyed: bool = False
    tokens: bool = False


@dataclass(frozen=True, slots=True)
class NoPlaceFor:
    """State of a component that the new topology cannot restore. ``keyed``: only its keyed state is affected."""

    component: str
    why: str
    keyed: bool = False


def kept_in(manifest: Manifest, own: Collection[str], keyed: Collection[str]) -> dict[str, Kept]:
    """Return the contents of each component in a checkpoint.

    Args:
        manifest: Manifest of the checkpoint.
        own: Names of the parts whose files contain the own state of a task.
        keyed: Names of the parts whose files contain keyed state.
    """
    state_by_component = {}
    for component in sorted({part.component for part in manifest.parts}):
        parts = [part for part in manifest.parts if part.component == component]
        layers = manifest.layers.get(component, ())
        state_by_component[component] = Kept(
            any(part.name in own for part in parts),
            any(part.name in keyed for part in layers),
            any(part.tokens for part in parts),
        )
    return state_by_component


def without_place(
    manifest: Manifest, state_by_component: Mapping[str, Kept], definition: TopologyDefinition
) -> list[NoPlaceFor]:
    """Return the state that the topology of `definition` cannot restore and would lose."""
    specs = {spec.name: spec for spec in definition.components}
    components = []
    for component, what in state_by_component.items():
        if not any(what):
            continue
        spec, before = specs.get(component), manifest.shapes.get(component, "")
        if spec is None:
            components.append(NoPlaceFor(component, f"{component}: unknown component"))
            continue
        now = shape_of(spec)
        if before in ("", now):
            continue
        if (before == "a spout") != spec.is_spout:
            components.append(NoPlaceFor(component, f"{component}: it was {before} and is {now}"))
        elif what.keyed:
            components.append(NoPlaceFor(component, f"{component}: it was {before} and is {now}", keyed=True))
    return components


def adopt(
    manifest: Manifest, topology_id: str, tasks: Mapping[str, Sequence[int]], dropped: Iterable[NoPlaceFor] = ()
) -> tuple[Manifest, dict[str, StatePart]]:
    """Return the manifest of a checkpoint for the new topology, and the files that it needs.

    Args:
        manifest: Manifest of the checkpoint in the old topology.
        topology_id: Id of the new topology.
        tasks: Task ids of each component of the new topology.
        dropped: State that the new topology does not restore.

    Returns:
        The new manifest, and a mapping from the new name of each needed file to its part in the old checkpoint.
    """
    dropped = list(dropped)
    gone = {found.component for found in dropped if not found.keyed} | {
        part.component for part in manifest.parts if part.component not in tasks
    }
    keyless = gone | {found.component for found in dropped}
    numbers = _numbers(manifest, tasks)

    def renamed(parts: Iterable[StatePart]) -> Layers:
        return tuple(replace(part, task=numbers[part.component, part.task]) for part in parts)

    parts = [part for part in manifest.parts if part.component not in gone]
    layers = {component: found for component, found in manifest.layers.items() if component not in keyless}
    tables = {
        component: tuple(numbers[component, task] for task in table)
        for component, table in manifest.tables.items()
        if component in layers
    }
    files = {}
    for part in (*parts, *(part for found in layers.values() for part in found)):
        files[renamed([part])[0].name] = part
    whole = AdoptionMode.IN_PART if dropped else AdoptionMode.WHOLE
    adopted = replace(
        manifest, topology_id=topology_id, parts=tuple(sorted(renamed(parts), key=lambda part: part.task)),
        layers={component: renamed(found) for component, found in layers.items()}, tables=tables,
        shapes={name: shape for name, shape in manifest.shapes.items() if name in tasks}, adopted=whole,
    )  # fmt: skip
    return adopted, files


def _numbers(manifest: Manifest, tasks: Mapping[str, Sequence[int]]) -> dict[tuple[str, int], int]:
    """Map component and task id to the task id in the new topology. All ids in the result are different."""
    numbers: dict[tuple[str, int], int] = {}
    spare = MAX_TASK + 1
    now = {(part.component, part.task) for part in manifest.parts}
    earlier = {(part.component, part.task) for layers in manifest.layers.values() for part in layers} - now
    heirs = {component: list(ids) for component, ids in tasks.items()}
    for component, task in (*sorted(now), *sorted(earlier)):
        heir = heirs.get(component)
        if heir and (component, task) in now:
            numbers[component, task] = heir.pop(0)
        else:
            numbers[component, task] = spare
            spare += 1
    return numbers
