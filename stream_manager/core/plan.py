"""Where each task lives and what each spout can reach: a plan, seen from one container.

Made anew for each plan and never changed, so a packet is routed by one plan from its first frame to its last. Whoever
needs the plan in force gets it as an argument, in the ``CurrentPlan`` of the stream manager.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heron_runtime.model.causes import Cause, CauseKind
from heron_runtime.model.checkpoints import NO_WISH, CheckpointWish, TaskReport
from heron_runtime.model.generations import Phase, stream_manager_of, task_place
from heron_runtime.model.plan import NO_PLAN, PackingPlan, PhysicalPlan, StreamManagerInfo
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.wire.data import Frame
from heron_runtime.wire.master import PlaceReport
from stream_manager.core.ack_tracker import column
from stream_manager.core.connections import ConnectionTable, LocalInstance, Neighbour

EMPTY_PLAN = PhysicalPlan(NO_PLAN, 0, TopologyDefinition("", ""), PackingPlan(""))  # before the first plan


class PlanRoutes:
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
class CurrentPlan:
    """What a stream manager goes by, replaced as a whole: the highest epoch heard, the newest plan's routes, and which
    causes pause a spout."""

    epoch: int
    routes: PlanRoutes
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


NONE_CARRIED = -1


class GenerationState:
    """What one stream manager goes by, and what it has to say of it."""

    def __init__(self, info: StreamManagerInfo, connections: ConnectionTable) -> None:
        self.plan_generation = 0  # by the plan
        self.carried_generation = 0  # whose frames are carried; NONE_CARRIED: nobody's
        self.loss_reason = ""  # why nothing opens in it any more
        self.command = NO_WISH  # what the master has said last; it stays in force while there is none
        self._place = stream_manager_of(info.container)
        self._incarnation = info.incarnation
        self._connections = connections
        self._peers: tuple[int, ...] = ()
        self._own = TaskReport(0)
        self._reported = True  # the master has heard all reports as they are

    def apply_plan(self, routes: PlanRoutes) -> bool:
        """A new plan; True if it is for other connections than before to carry frames."""
        generation, before = routes.plan.generation, self.carried_generation
        self._peers = routes.peers
        if generation.number != self.plan_generation:
            self.carried_generation = self.plan_generation = generation.number
            self.loss_reason = ""
        member = generation.incarnation(self._place)
        if self.plan_generation and generation.phase is Phase.RUNNING and member != self._incarnation:
            self.carried_generation = NONE_CARRIED
            self.loss_reason = (
                self.loss_reason or f"generation {self.plan_generation} runs with another process in this place"
            )
        return self.carried_generation != before

    def mismatch_reason(self, *generations: int) -> str:
        """Why hellos that name these generations do not go together; empty if they do."""
        other = next((number for number in generations if number != self.plan_generation), None)
        return "" if other is None else f"generation {other} was named, and {self.plan_generation} is in force here"

    def closed_reason(self) -> str:
        """Why nothing opens in the generation in force any more; empty if it may."""
        return f"generation {self.plan_generation} is over: {self.loss_reason}" if self.loss_reason else ""

    def record_ended(self, neighbour: Neighbour) -> None:
        """A connection that carried frames, or was about to, has ended."""
        if self.plan_generation and neighbour.generation == self.plan_generation:
            self.loss_reason = self.loss_reason or f"the connection to {neighbour} ended"

    def set_command(self, command: CheckpointWish) -> bool:
        """What the master wants; True if that is news. One that has no generation yet says nothing."""
        news = bool(command.generation) and command != self.command
        if news:
            self.command = command
        return news

    def set_report(self, instance: LocalInstance, report: TaskReport | None) -> None:
        """An instance's word, which is kept with its connection; None: that has ended."""
        if instance.report != report:
            instance.report = report
            self._reported = False

    # What the master is told.

    def has_unreported_changes(self) -> bool:
        """True if a report has changed since the master was told last."""
        if not self.plan_generation:
            return not self._reported
        restored = self.carried_generation == self.plan_generation and not self.loss_reason and self._all_open()
        own = self._own
        if (own.generation, own.restored, own.lost) != (self.plan_generation, restored, self.loss_reason):
            self._own = TaskReport(self.plan_generation, restored, lost=self.loss_reason)
            self._reported = False
        return not self._reported

    def take_reports(self) -> tuple[PlaceReport, ...]:
        """All reports as they are, its own first where state is kept; the master hears them now."""
        self.has_unreported_changes()
        self._reported = True
        own = (PlaceReport(self._place, self._incarnation, self._own),) if self.plan_generation else ()
        return (
            *own,
            *(
                PlaceReport(task_place(task), instance.incarnation or 0, instance.report)
                for task, instance in sorted(self._connections.instances.items())
                if instance.report is not None
            ),
        )

    def check(self) -> None:
        """Assert every invariant."""
        assert self.carried_generation in (self.plan_generation, NONE_CARRIED), (
            "no other generation is carried than the plan's"
        )
        assert self.plan_generation or not self.loss_reason, "where state is not kept nothing is over"
        for neighbour in self._connections.all():
            carried = neighbour.generation == self.carried_generation
            assert carried or not neighbour.link.is_open, f"{neighbour} hears frames of another generation"
        for instance in self._connections.instances.values():
            assert instance.report is None or instance.connection is not None, "reports go with their connections"

    def _all_open(self) -> bool:
        peers = self._connections.peers
        return all(container in peers and peers[container].link.is_open for container in self._peers)
