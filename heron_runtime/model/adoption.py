"""A topology that begins with a checkpoint of another one: what of it has a place, and what it is called there.

Pure. Components are matched by name. A component that was a spout must be one still, and keys must consist of as many
fields as before; state for which that does not hold has no place. Task ids of the new topology are its own: the tasks
of a component take over from those it had in order, and those that have no successor get a number that no task has, so
that their state of their own is merged as after an update. Numbers of checkpoints, turns and generations go on, for
which key group is read from which file follows from the turn, and tokens of lower generations are swept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from heron_runtime.model.checkpoints import AdoptionMode, Layers, Manifest, StatePart, shape_of
from heron_runtime.model.ids import MAX_TASK
from heron_runtime.model.topology import TopologyDefinition


class Kept(NamedTuple):
    """What a component has in a checkpoint: state of tasks, state by key, tokens that may not be committed yet."""

    own: bool = False
    keyed: bool = False
    tokens: bool = False


@dataclass(frozen=True, slots=True)
class NoPlaceFor:
    """State of a component that the new topology has no place for. ``keyed``: only that by key."""

    component: str
    why: str
    keyed: bool = False


def kept_in(manifest: Manifest, own: Collection[str], keyed: Collection[str]) -> dict[str, Kept]:
    """By component. ``own`` and ``keyed``: the names of parts whose files have blocks of that kind."""
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
    """What would be lost."""
    specs = {spec.name: spec for spec in definition.components}
    found = []
    for component, what in kept.items():
        if not any(what):
            continue
        spec, before = specs.get(component), manifest.shapes.get(component, "")
        if spec is None:
            found.append(NoPlaceFor(component, f"{component}: there is no component of this name"))
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
    """The manifest for the new topology, whose components have these ``tasks``; and by the name that each file it needs
    has there, the part as it was."""
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
    """By component and task id, the id in the new topology; two tasks never get the same."""
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
