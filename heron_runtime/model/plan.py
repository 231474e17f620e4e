"""Packing plan, physical plan and generation.

The *packing plan* assigns tasks to containers with their resources. The *physical plan* adds the address of each stream
manager, the numbers of streams on the wire and the owner of each key group; the topology master builds, stores and
sends it. A version is (epoch, number). The epoch belongs to the master that made the plan, so that a plan of a deposed
master never wins. `routing_version` changes only when the set of tasks changes; the move of a stream manager to another
address leaves it as it is.

A *generation* is the life of a stateful topology between two restores. The loss of a process, a connection or a frame
ends it for all tasks; the next one begins everywhere from the last complete checkpoint. A topology without state stays
in generation 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from heron_runtime.model.ids import instance_id
from heron_runtime.model.topology import TopologyDefinition, TopologyState

NO_CHECKPOINT = 0  # its state is the initial one


class GenerationPhase(StrEnum):
    """Of a generation."""

    RESTORING = "restoring"  # everybody loads the state of its checkpoint; no tuple is processed
    RUNNING = "running"
    FAILED = "failed"  # somebody has to do something; see its cause


class ParticipantKind(StrEnum):
    """What stands at a place."""

    STREAM_MANAGER = "stmgr"
    TASK = "task"


@dataclass(frozen=True, slots=True, order=True)
class ParticipantId:
    """Where one process of the plan stands: the stream manager of a container, or a task."""

    kind: ParticipantKind
    number: int

    def __str__(self) -> str:
        return (
            f"stream manager of container {self.number}"
            if self.kind is ParticipantKind.STREAM_MANAGER
            else f"task {self.number}"
        )


def stream_manager_of(container: int) -> ParticipantId:
    """The place of a container's stream manager."""
    return ParticipantId(ParticipantKind.STREAM_MANAGER, container)


def task_participant(task: int) -> ParticipantId:
    """The place of a task."""
    return ParticipantId(ParticipantKind.TASK, task)


@dataclass(frozen=True, slots=True, order=True)
class GenerationMember:
    """The process that takes part in a generation."""

    place: ParticipantId
    incarnation: int


@dataclass(frozen=True)
class Generation:
    """A field of the physical plan: how state is begun with. A topology starts with (1, restoring, from nothing).

    ``members``: once it runs, the incarnation at each place that has reported to be restored; nobody else does
    anything. ``failures``: restores in a row, without a complete checkpoint between, that user code or storage caused.
    """

    number: int
    phase: GenerationPhase
    restore_from: int = NO_CHECKPOINT
    members: tuple[GenerationMember, ...] = ()
    failures: int = 0
    cause: str = ""

    def incarnation(self, place: ParticipantId) -> int | None:
        """Of the member at a place; None if none is named."""
        return next((member.incarnation for member in self.members if member.place == place), None)


NO_GENERATION = Generation(0, GenerationPhase.RUNNING)


@dataclass(frozen=True, slots=True)
class Resources:
    """What an instance or container needs: CPU cores, bytes of memory, bytes of disk."""

    cpu: float = 0.0
    ram_bytes: int = 0
    disk_bytes: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(self.cpu + other.cpu, self.ram_bytes + other.ram_bytes, self.disk_bytes + other.disk_bytes)


NO_RESOURCES = Resources()


@dataclass(frozen=True, slots=True)
class InstancePlan:
    """One task in its container. ``component_index`` counts the tasks of the component from 0."""

    task: int
    component: str
    component_index: int
    resources: Resources = NO_RESOURCES


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """One container (numbered from 1) and its tasks, in order of task id."""

    container: int
    instances: tuple[InstancePlan, ...]
    resources: Resources = NO_RESOURCES


@dataclass(frozen=True, slots=True)
class PackingPlan:
    """All containers with tasks, in order of number. A task id is never used again: ``next_task`` is above all that
    were ever given out (0: nothing has been repacked, so it is above those in the plan)."""

    topology: str
    containers: tuple[ContainerPlan, ...] = ()
    next_task: int = 0

    def instances(self) -> list[InstancePlan]:
        """Every task, in order of task id."""
        return sorted((i for c in self.containers for i in c.instances), key=lambda i: i.task)

    def container(self, number: int) -> ContainerPlan:
        """The container of this number. Raises KeyError."""
        for plan in self.containers:
            if plan.container == number:
                return plan
        raise KeyError(number)


@dataclass(frozen=True, slots=True, order=True)
class PlanVersion:
    """(epoch of the master that made the plan, running number)."""

    epoch: int = 0
    number: int = 0

    def __str__(self) -> str:
        return f"{self.epoch}.{self.number}"


NO_PLAN = PlanVersion()


@dataclass(frozen=True, slots=True)
class StreamManagerInfo:
    """Where a stream manager listens for its peers. The incarnation is new at each start."""

    container: int
    host: str
    port: int
    incarnation: int
    pid: int = 0


@dataclass(frozen=True, slots=True)
class KeyGroupTable:
    """The task of each of the 1 024 key groups of a component."""

    component: str
    tasks: tuple[int, ...]


class UpdatePhase(StrEnum):
    """Where state is not kept: how far an update is that takes tasks away. Nothing new enters in any of the two."""

    NONE = ""
    DRAINING = "draining"  # by the old plan, until nothing is on its way any more
    SETTLING = "settling"  # by the new plan, until every stream manager goes by it


@dataclass(frozen=True)
class PhysicalPlan:
    """Everything a stream manager or an instance needs to know about the topology.

    ``undrained``: why the last update did not wait for all that was on its way; empty if it did, or nothing had to.
    """

    version: PlanVersion
    routing_version: int
    topology: TopologyDefinition
    packing: PackingPlan
    stream_managers: tuple[StreamManagerInfo, ...] = ()
    key_groups: tuple[KeyGroupTable, ...] = ()
    state: TopologyState = field(default=TopologyState.RUNNING)
    generation: Generation = NO_GENERATION  # number 0: the state of tasks is not kept
    standstill: UpdatePhase = UpdatePhase.NONE
    undrained: str = ""

    @cached_property
    def _tasks(self) -> Mapping[int, tuple[int, InstancePlan]]:
        return {
            i.task: (c.container, i) for c in self.packing.containers for i in sorted(c.instances, key=lambda i: i.task)
        }

    @cached_property
    def _tasks_of(self) -> Mapping[str, tuple[int, ...]]:
        found: dict[str, list[int]] = {spec.name: [] for spec in self.topology.components}
        for task in sorted(self._tasks):
            found[self._tasks[task][1].component].append(task)
        return {name: tuple(tasks) for name, tasks in found.items()}

    @cached_property
    def streams(self) -> tuple[tuple[str, str], ...]:
        """(component, stream) by the number that stands in frames; the same in every process."""
        return tuple((spec.name, out.name) for spec in self.topology.components for out in spec.outputs)

    @cached_property
    def stream_number(self) -> Mapping[tuple[str, str], int]:
        """The inverse of ``streams``."""
        return {key: number for number, key in enumerate(self.streams)}

    def tasks(self) -> tuple[int, ...]:
        """All task ids, in order."""
        return tuple(sorted(self._tasks))

    def tasks_of(self, component: str) -> tuple[int, ...]:
        """The task ids of a component, in order. Raises KeyError."""
        return self._tasks_of[component]

    def container_of(self, task: int) -> int:
        """The container that holds the task. Raises KeyError."""
        return self._tasks[task][0]

    def component_of(self, task: int) -> str:
        """The component of the task. Raises KeyError."""
        return self._tasks[task][1].component

    def tasks_in(self, container: int) -> tuple[int, ...]:
        """The task ids in a container, in order; empty for an unknown container."""
        return tuple(t for t, (c, _) in sorted(self._tasks.items()) if c == container)

    def is_spout(self, task: int) -> bool:
        """True if the task belongs to a spout."""
        return self.topology.component(self.component_of(task)).is_spout

    def instance_name(self, task: int) -> str:
        """``container_<N>_<component>_<task>``."""
        container, plan = self._tasks[task]
        return instance_id(container, plan.component, task)

    def stream_manager(self, container: int) -> StreamManagerInfo | None:
        """Where the container's stream manager is, or None while it has not registered."""
        return next((s for s in self.stream_managers if s.container == container), None)

    def key_group_table(self, component: str) -> tuple[int, ...]:
        """The task of each key group of ``component``. Raises KeyError."""
        for table in self.key_groups:
            if table.component == component:
                return table.tasks
        raise KeyError(component)
