"""Checkpoints as values: parts written by tasks, manifests, and the files from which key groups are read.

Theory of operation. For each checkpoint, a task of a keyed component writes one file, its *part*. It contains, for
every key group that the task owns, the keys that have changed since the last complete checkpoint known to the task. For
one group in eight it contains all keys instead. The checkpoint's *turn*, the number of checkpoints that were complete
when it began, selects the groups that are written in full. Among any eight consecutive complete checkpoints, each group
is thus written in full once, regardless of its owner. The *layers* of a component are the parts that make up its state,
oldest first. The state of a group is its last full block with the changes in later layers applied. The owner of a group
may change between two checkpoints (rescaling), since the rule depends on groups only.

A set of key groups is an integer: bit g is group g.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from heron_runtime.model.ids import KEY_GROUPS
from heron_runtime.model.plan import NO_CHECKPOINT, NO_PLAN, PlanVersion
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import ComponentSpec, GroupingKind

FULL_EVERY = 8  # number of complete checkpoints; older files are never needed
ALL_GROUPS = (1 << KEY_GROUPS) - 1
_EVERY_EIGHTH = sum(1 << group for group in range(0, KEY_GROUPS, FULL_EVERY))


def keeps_state(config: Mapping[str, Any]) -> bool:
    """Return True if a topology with this configuration takes checkpoints."""
    return setting(config, Keys.TOPOLOGY_RELIABILITY_MODE) == "EFFECTIVELY_ONCE"


def groups_of(table: Sequence[int], task: int) -> int:
    """Return the set of groups that a key-group table assigns to a task."""
    return sum(1 << group for group, owner in enumerate(table) if owner == task)


def full_groups(turn: int) -> int:
    """Return the groups that a checkpoint of this turn holds in full, independent of their owners."""
    return _EVERY_EIGHTH << turn % FULL_EVERY


@dataclass(frozen=True, slots=True, order=True)
class CommitToken:
    """Output that a two-phase sink has prepared for a checkpoint, under the name that the sink gave it."""

    checkpoint: int
    name: str


@dataclass(frozen=True, slots=True)
class StatePart:
    """File of one task for one checkpoint, with its size and checksum.

    ``groups`` are the key groups that the task owned. ``checksum`` is that of the file's head, which contains the
    checksums of its blocks. The file name identifies the writer, so a process of an older generation never writes to a
    file that another process reads (S7).
    """

    component: str
    task: int
    incarnation: int
    generation: int
    checkpoint: int
    turn: int
    size: int
    checksum: str
    groups: int = 0
    tokens: tuple[CommitToken, ...] = ()

    @property
    def name(self) -> str:
        """Name of the file in the storage of the topology."""
        return part_name(self.generation, self.checkpoint, self.task, self.incarnation)


def part_name(generation: int, checkpoint: int, task: int, incarnation: int) -> str:
    """Return the file name of a part."""
    return f"{generation}-{checkpoint}-{task}-{incarnation:x}.part"


Layers = tuple[StatePart, ...]  # of one component, oldest first


class AdoptionMode(StrEnum):
    """Adoption of the checkpoint of another topology (``heron submit --from-checkpoint``)."""

    NO = ""
    WHOLE = "whole"  # a task that finds state without a place reports it
    IN_PART = "in part"  # such state is dropped


def shape_of(spec: ComponentSpec) -> str:
    """Return the kind of state of a component. State is lost where the kind changes."""
    if spec.is_spout:
        return "a spout"
    widths = {len(source.grouping.fields) for source in spec.inputs if source.grouping.kind is GroupingKind.FIELDS}
    if not widths:
        return "a bolt without keys"
    return f"a bolt with keys of {min(widths)} field{'s' if min(widths) > 1 else ''}"


@dataclass(frozen=True)
class Manifest:
    """Manifest of a checkpoint that is complete or may become complete.

    ``parts`` has one part for every task of the plan. ``shapes`` holds the result of ``shape_of`` for each component.
    """

    topology_id: str
    checkpoint: int
    generation: int
    turn: int
    plan: PlanVersion = NO_PLAN
    parts: tuple[StatePart, ...] = ()
    layers: Mapping[str, Layers] = field(default_factory=dict)
    tables: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    code_digest: str = ""
    shapes: Mapping[str, str] = field(default_factory=dict)
    adopted: AdoptionMode = AdoptionMode.NO

    @property
    def files(self) -> frozenset[str]:
        """Names of all files that the checkpoint needs."""
        needed = {part.name for part in self.parts}
        return frozenset(needed.union(part.name for layers in self.layers.values() for part in layers))

    def tokens_of(self, task: int, tasks: Sequence[int], component: str) -> tuple[CommitToken, ...]:
        """Return the tokens that `task` commits after a restore (S6), in order of checkpoints.

        These are its own and, if it is the lowest of `tasks` (those of the component now), those of removed tasks.
        """
        tokens = [
            token
            for part in self.parts
            if part.component == component and (part.task == task or (part.task not in tasks and task == min(tasks)))
            for token in part.tokens
        ]
        return tuple(sorted(tokens))

    @property
    def tokens(self) -> frozenset[str]:
        """Names of all tokens of all tasks."""
        return frozenset(token.name for part in self.parts for token in part.tokens)


def initial_manifest(topology_id: str) -> Manifest:
    """Return the manifest of a topology that has not taken a checkpoint."""
    return Manifest(topology_id, NO_CHECKPOINT, 0, -1)


def next_manifest(
    base: Manifest,
    parts: Iterable[StatePart],
    plan: PlanVersion,
    tables: Mapping[str, tuple[int, ...]],
    code_digest: str = "",
    shapes: Mapping[str, str] | None = None,
) -> Manifest:
    """Return the manifest of a new checkpoint.

    Args:
        base: Manifest of the last complete checkpoint.
        parts: Parts of the new checkpoint, one for each task.
        plan: Version of the plan with which it was taken.
        tables: Key-group tables of keyed components.
        code_digest: Digest of the user's package.
        shapes: Kind of state of each component (``shape_of``).

    Raises:
        ValueError: The parts do not belong to one checkpoint that follows ``base``, or their key groups differ from
            the tables.
    """
    ordered = sorted(parts, key=lambda part: part.task)
    kinds = {(part.checkpoint, part.generation, part.turn) for part in ordered}
    if len(kinds) != 1 or len({part.task for part in ordered}) != len(ordered):
        raise ValueError(f"these parts are of no one checkpoint: {[part.name for part in ordered]}")
    ((checkpoint, generation, turn),) = kinds
    if turn != base.turn + 1 or checkpoint <= base.checkpoint:
        raise ValueError(f"checkpoint {checkpoint} of turn {turn} does not follow {base.checkpoint} of {base.turn}")
    layers = {}
    for component, table in sorted(tables.items()):
        newest = [part for part in ordered if part.component == component]
        for part in newest:
            if part.groups != groups_of(table, part.task):
                raise ValueError(f"{part.name} of {component} holds other key groups than the plan gives to its task")
        if set(table) - {part.task for part in newest}:
            raise ValueError(f"{component}: no task has written its key groups for checkpoint {checkpoint}")
        layers[component] = needed_layers((*base.layers.get(component, ()), *newest))
    return Manifest(
        base.topology_id, checkpoint, generation, turn, plan, tuple(ordered), layers, dict(tables), code_digest,
        dict(shapes or {}),
    )  # fmt: skip


def needed_layers(layers: Layers) -> Layers:
    """Return the layers from which at least one group is still read, oldest first."""
    return tuple(part for part, _ in reading_plan(layers, ALL_GROUPS))


def reading_plan(layers: Layers, groups: int) -> list[tuple[StatePart, int]]:
    """Return the parts to read for the state of ``groups``, oldest first, each with the groups to read from it.

    Blocks are applied in this order. The first block of a group is a full one.
    """
    reads: list[tuple[StatePart, int]] = []
    open_groups = groups
    for part in reversed(layers):
        wanted = part.groups & open_groups
        if wanted:
            reads.append((part, wanted))
            open_groups &= ~(wanted & full_groups(part.turn))
    return reads[::-1]


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """Checkpoints of a topology in the state store: generation of the plan, newest number, last complete checkpoint.

    It is one node, so that its version checks each change against all others.
    """

    generation: int = 0
    begun: int = NO_CHECKPOINT
    complete: int = NO_CHECKPOINT


@dataclass(frozen=True, slots=True)
class CheckpointCommand:
    """Complete command of the master in each of its messages. Receivers act by comparing numbers.

    ``under`` is the checkpoint that spouts shall begin, with its ``turn``. 0 means none, or that tasks have resumed
    from it. All checkpoints up to ``over`` are finished or cancelled. ``complete`` is the last complete one.
    """

    generation: int
    under: int = NO_CHECKPOINT
    turn: int = 0
    over: int = NO_CHECKPOINT
    complete: int = NO_CHECKPOINT
    timeout_ms: float = 60_000.0


@dataclass(frozen=True, slots=True)
class TaskReport:
    """Report about a task with each heartbeat. All numbers belong to this generation.

    ``lost`` is the reason why channels are no longer reliable. ``failed`` is the error of user code, a load or a
    commit. Both are empty without a fault. ``declined_why`` is the cause of ``declined``.
    """

    generation: int
    restored: bool = False
    aligned: int = NO_CHECKPOINT
    stored: tuple[StatePart, ...] = ()
    declined: int = NO_CHECKPOINT
    declined_why: str = ""
    confirmed: int = NO_CHECKPOINT
    lost: str = ""
    failed: str = ""


NO_WISH = CheckpointCommand(0)  # the command in a topology without state
