"""Where each task lives and what each spout can reach: a plan, seen from one container.

Made anew for each plan and never changed, so a packet is routed by one plan from its first frame to its last. Whoever
needs the plan in force gets it as an argument, in the ``Standing`` of the stream manager.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heron_runtime.model.causes import Cause, CauseKind
from heron_runtime.model.plan import NO_PLAN, PackingPlan, PhysicalPlan
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.wire.data import Frame
from stream_manager.core.ack_tracker import column

NOTHING = PhysicalPlan(NO_PLAN, 0, TopologyDefinition("", ""), PackingPlan(""))  # before the first plan


class Routes:
    """The tables of one plan for one container."""

    def __init__(self, plan: PhysicalPlan, container: int) -> None:
        self.plan = plan
        self.container = container
        self.where: dict[int, int] = {task: plan.container_of(task) for task in plan.tasks()}
        self.component: dict[int, str] = {task: plan.component_of(task) for task in plan.tasks()}
        self.local_tasks = plan.tasks_in(container)
        self.local_spouts = tuple(task for task in self.local_tasks if plan.is_spout(task))
        self.peers = tuple(c.container for c in plan.packing.containers if c.container != container)
        self._reach = {s.name: plan.topology.reachable_from(s.name) for s in plan.topology.components if s.is_spout}
        self._readers = _readers(plan)
        self._hosted = {
            c.container: frozenset(instance.component for instance in c.instances) for c in plan.packing.containers
        }

    def reaches(self, spout: str, cause: Cause) -> bool:
        """True if tuples of this spout component can come to what is slow."""
        reach = self._reach.get(spout, frozenset())
        if cause.kind is CauseKind.TASK:
            return cause.component in reach
        return not reach.isdisjoint(self._hosted.get(cause.peer, frozenset()))

    def readers(self, task: int) -> tuple[int, ...]:
        """The tasks that this one may send tuples to."""
        return self._readers.get(self.component.get(task, ""), ())

    def instance_name(self, task: int) -> str:
        """The instance's name, or ``task_<N>`` when the plan does not know it."""
        return self.plan.instance_name(task) if task in self.where else f"task_{task}"


def _readers(plan: PhysicalPlan) -> dict[str, tuple[int, ...]]:
    """By component, the tasks of every component that reads one of its streams."""
    tasks: dict[str, list[int]] = {}
    for task in plan.tasks():
        tasks.setdefault(plan.component_of(task), []).append(task)
    found: dict[str, dict[int, None]] = {}
    for spec in plan.topology.components:
        for edge in spec.inputs:
            found.setdefault(edge.component, {}).update(dict.fromkeys(tasks.get(spec.name, ())))
    return {name: tuple(readers) for name, readers in found.items()}


@dataclass(frozen=True, slots=True)
class Standing:
    """What a stream manager goes by, replaced as a whole: the highest epoch heard, the newest plan's routes, and which
    causes pause a spout."""

    epoch: int
    routes: Routes
    scope: str = ""


def roots_by_spout(frame: Frame) -> list[tuple[int, bytes]]:
    """The distinct roots of a frame's tuples, grouped by the spout task that opened them."""
    if not frame.roots:
        return []
    roots = np.unique(column(frame.roots))
    tasks = roots >> np.uint64(48)
    starts = np.flatnonzero(np.diff(tasks, prepend=np.uint64(0)) != 0)  # tasks count from 1
    groups = np.split(roots, starts[1:])
    return [(int(group[0]) >> 48, group.tobytes()) for group in groups]


def tracked_count(frame: Frame) -> int:
    """How many tuples of a frame hang on at least one root."""
    if not frame.offsets:
        return frame.count if frame.roots else 0
    return int(np.count_nonzero(np.diff(np.frombuffer(frame.offsets, "<u4"))))
