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
    """Phase of a generation."""

    RESTORING = "restoring"  # all tasks load the state of its checkpoint; no tuple is processed
    RUNNING = "running"
    FAILED = "failed"  # a user has to act; see its cause


class ParticipantKind(StrEnum):
    """Kind of a participant in a generation."""

    STREAM_MANAGER = "stmgr"
    TASK = "task"


@dataclass(frozen=True, slots=True, order=True)
class ParticipantId:
    """Participant of the plan: the stream manager of a container, or a task."""

    kind: ParticipantKind
    number: int

    def __str__(self) -> str:
        return (
            f"stream manager of container {self.number}"
            if self.kind is ParticipantKind.STREAM_MANAGER
            else f"task {self.number}"
        )


def stream_manager_of(container: int) -> ParticipantId:
    """Return the participant for the stream manager of a container."""
    return ParticipantId(ParticipantKind.STREAM_MANAGER, container)


def task_participant(task: int) -> ParticipantId:
    """Return the participant for a task."""
    return ParticipantId(ParticipantKind.TASK, task)


@dataclass(frozen=True, slots=True, order=True)
class GenerationMember:
    """Process that takes part in a generation."""

    place: ParticipantId
    incarnation: int


@dataclass(frozen=True)
class Generation:
    """Generation of a physical plan. A topology starts with generation 1, restoring from the initial state.

    `members`: once it runs, the incarnation of each participant that has reported its restore; others stay idle.
    `failures`: consecutive restores without a complete checkpoint that user code or storage caused.
    """

    number: int
    phase: GenerationPhase
    restore_from: int = NO_CHECKPOINT
    members: tuple[GenerationMember, ...] = ()
    failures: int = 0
    cause: str = ""

    def incarnation(self, place: ParticipantId) -> int | None:
        """Return the incarnation of a participant, or None if it is not a member."""
        return next((member.incarnation for member in self.members if member.place == place), None)


NO_GENERATION = Generation(0, GenerationPhase.RUNNING)


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of an instance or container: CPU cores, bytes of memory, bytes of disk."""

    cpu: float = 0.0
    ram_bytes: int = 0
    disk_bytes: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(self.cpu + other.cpu, self.ram_bytes + other.ram_bytes, self.disk_bytes + other.disk_bytes)


NO_RESOURCES = Resources()


@dataclass(frozen=True, slots=True)
class InstancePlan:
    """Task in its container. ``component_index`` counts the tasks of the component from 0."""

    task: int
    component: str
    component_index: int
    resources: Resources = NO_RESOURCES


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """Container (numbered from 1) and its tasks, in order of task id."""

    container: int
    instances: tuple[InstancePlan, ...]
    resources: Resources = NO_RESOURCES


@dataclass(frozen=True, slots=True)
class PackingPlan:
    """All containers with tasks, in order of number.

    Task ids are never reused: ``next_task`` is greater than all ids ever assigned. 0 means that the topology has not
    been repacked, so that all assigned ids are in the plan.
    """

    topology: str
    containers: tuple[ContainerPlan, ...] = ()
    next_task: int = 0

    def instances(self) -> list[InstancePlan]:
        """Return all tasks, in order of task id."""
        return sorted((i for c in self.containers for i in c.instances), key=lambda i: i.task)

    def container(self, number: int) -> ContainerPlan:
        """Return the container of this number. Raises KeyError."""
        for plan in self.containers:
            if plan.container == number:
                return plan
        raise KeyError(number)


@dataclass(frozen=True, slots=True, order=True)
class PlanVersion:
    """Version of a plan: epoch of the master that made it, and running number."""

    epoch: int = 0
    number: int = 0

    def __str__(self) -> str:
        return f"{self.epoch}.{self.number}"


NO_PLAN = PlanVersion()


@dataclass(frozen=True, slots=True)
class StreamManagerInfo:
    """Address on which a stream manager listens for its peers. The incarnation is new at each start."""

    container: int
    host: str
    port: int
    incarnation: int
    pid: int = 0


@dataclass(frozen=True, slots=True)
class KeyGroupTable:
    """Tasks that own the 1 024 key groups of a component."""

    component: str
    tasks: tuple[int, ...]


class UpdatePhase(StrEnum):
    """Phase of an update that removes tasks from a topology without state. Spouts are paused in both phases."""

    NONE = ""
    DRAINING = "draining"  # with the old plan, until no tuples are in flight
    SETTLING = "settling"  # with the new plan, until every stream manager uses it


@dataclass(frozen=True)
class PhysicalPlan:
    """Everything that a stream manager or an instance needs to know about the topology.

    ``undrained`` is the reason why the last update did not wait for all tuples in flight. It is empty if the update
    waited or did not need to.
    """

    version: PlanVersion
    routing_version: int
    topology: TopologyDefinition
    packing: PackingPlan
    stream_managers: tuple[StreamManagerInfo, ...] = ()
    key_groups: tuple[KeyGroupTable, ...] = ()
    state: TopologyState = field(default=TopologyState.RUNNING)
    generation: Generation = NO_GENERATION  # number 0: a topology without state
    standstill: UpdatePhase = UpdatePhase.NONE
    undrained: str = ""

    @cached_property
    def _tasks(self) -> Mapping[int, tuple[int, InstancePlan]]:
        return {
            i.task: (c.container, i) for c in self.packing.containers for i in sorted(c.instances, key=lambda i: i.task)
        }

    @cached_property
    def _tasks_of(self) -> Mapping[str, tuple[int, ...]]:
        tasks_by_component: dict[str, list[int]] = {spec.name: [] for spec in self.topology.components}
        for task in sorted(self._tasks):
            tasks_by_component[self._tasks[task][1].component].append(task)
        return {name: tuple(tasks) for name, tasks in tasks_by_component.items()}

    @cached_property
    def streams(self) -> tuple[tuple[str, str], ...]:
        """Component and stream, indexed by the stream number in frames. It is the same in every process."""
        return tuple((spec.name, out.name) for spec in self.topology.components for out in spec.outputs)

    @cached_property
    def stream_number(self) -> Mapping[tuple[str, str], int]:
        """Inverse of ``streams``."""
        return {key: number for number, key in enumerate(self.streams)}

    def tasks(self) -> tuple[int, ...]:
        """Return all task ids, in order."""
        return tuple(sorted(self._tasks))

    def tasks_of(self, component: str) -> tuple[int, ...]:
        """Return the task ids of a component, in order. Raises KeyError."""
        return self._tasks_of[component]

    def container_of(self, task: int) -> int:
        """Return the container that holds the task. Raises KeyError."""
        return self._tasks[task][0]

    def component_of(self, task: int) -> str:
        """Return the component of the task. Raises KeyError."""
        return self._tasks[task][1].component

    def tasks_in(self, container: int) -> tuple[int, ...]:
        """Return the task ids in a container, in order; empty for an unknown container."""
        return tuple(t for t, (c, _) in sorted(self._tasks.items()) if c == container)

    def is_spout(self, task: int) -> bool:
        """Return True if the task belongs to a spout."""
        return self.topology.component(self.component_of(task)).is_spout

    def instance_name(self, task: int) -> str:
        """Return the name of a task's instance, ``container_<N>_<component>_<task>``. Raises KeyError."""
        container, plan = self._tasks[task]
        return instance_id(container, plan.component, task)

    def stream_manager(self, container: int) -> StreamManagerInfo | None:
        """Return the address of the container's stream manager, or None while it is not registered."""
        return next((s for s in self.stream_managers if s.container == container), None)

    def key_group_table(self, component: str) -> tuple[int, ...]:
        """Return the task of each key group of ``component``. Raises KeyError."""
        for table in self.key_groups:
            if table.component == component:
                return table.tasks
        raise KeyError(component)
