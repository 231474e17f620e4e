"""Adoption of a checkpoint by another topology: the state that can be restored, and its names in the new topology.

Pure. Components are matched by name. A spout must still be a spout, and keys must consist of as many fields as before;
otherwise the state cannot be restored. Task ids of the new topology are independent of the old ones: the tasks of a
component take over from its former tasks in order. A former task without a successor gets an unused number, so that its
own state is merged as after an update. Numbers of checkpoints, turns and generations continue, since the turn defines
from which file a key group is read, and tokens of lower generations are removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from heron_runtime.model.checkpoints import AdoptionMode, Layers, Manifest, StatePart, shape_of
from heron_runtime.model.ids import MAX_TASK
from heron_runtime.model.topology import TopologyDefinition


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
    found = {}
    for component in sorted({part.component for part in manifest.parts}):
        parts = [part for part in manifest.parts if part.component == component]
        layers = manifest.layers.get(component, ())
        found[component] = Kept(
            any(part.name in own for part in parts),
            any(part.name in keyed for part in layers),
            any(part.tokens for part in parts),
        )
    return found


def without_place(manifest: Manifest, kept: Mapping[str, Kept], definition: TopologyDefinition) -> list[NoPlaceFor]:
    """Return the state that the topology of `definition` cannot restore and would lose."""
    specs = {spec.name: spec for spec in definition.components}
    found = []
    for component, what in kept.items():
        if not any(what):
            continue
        spec, before = specs.get(component), manifest.shapes.get(component, "")
        if spec is None:
            found.append(NoPlaceFor(component, f"{component}: unknown component"))
            continue
        now = shape_of(spec)
        if before in ("", now):
            continue
        if (before == "a spout") != spec.is_spout:
            found.append(NoPlaceFor(component, f"{component}: it was {before} and is {now}"))
        elif what.keyed:
            found.append(NoPlaceFor(component, f"{component}: it was {before} and is {now}", keyed=True))
    return found


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
    found: dict[tuple[str, int], int] = {}
    spare = MAX_TASK + 1
    now = {(part.component, part.task) for part in manifest.parts}
    earlier = {(part.component, part.task) for layers in manifest.layers.values() for part in layers} - now
    heirs = {component: list(ids) for component, ids in tasks.items()}
    for component, task in (*sorted(now), *sorted(earlier)):
        heir = heirs.get(component)
        if heir and (component, task) in now:
            found[component, task] = heir.pop(0)
        else:
            found[component, task] = spare
            spare += 1
    return found
