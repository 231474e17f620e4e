"""Physical plan as one container sees it, and the generation whose connections carry frames.

``PlanRoutes`` is built for each plan and never changed, so one plan routes a packet from its first frame to its last.
Functions that need the current plan receive it as an argument (``CurrentPlan``).
"""

from __future__ import annotations

from dataclasses import dataclass

from heron_runtime.model.checkpoints import NO_WISH, CheckpointCommand, TaskReport
from heron_runtime.model.dataflow import Cause, CauseKind
from heron_runtime.model.plan import (
    NO_PLAN,
    GenerationPhase,
    PackingPlan,
    PhysicalPlan,
    StreamManagerInfo,
    stream_manager_of,
    task_participant,
)
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.wire.master import ParticipantReport
from stream_manager.core.connections import ConnectionTable, LocalInstance, Neighbour

#: In use before the first plan arrives.
EMPTY_PLAN = PhysicalPlan(NO_PLAN, 0, TopologyDefinition("", ""), PackingPlan(""))
NONE_CARRIED = -1


class PlanRoutes:
    """Routing tables of one plan for one container."""

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
        """Return True if tuples of a spout component can reach a cause."""
        reach = self._reach.get(spout, frozenset())
        if cause.kind is CauseKind.TASK:
            return cause.component in reach
        return not reach.isdisjoint(self._hosted.get(cause.peer, frozenset()))

    def readers(self, task: int) -> tuple[int, ...]:
        """Return the tasks that a task may send tuples to."""
        return self._readers.get(self.component.get(task, ""), ())

    def instance_name(self, task: int) -> str:
        """Return the name of an instance, or ``task_<N>`` if the plan does not contain it."""
        return self.plan.instance_name(task) if task in self.where else f"task_{task}"


def _readers(plan: PhysicalPlan) -> dict[str, tuple[int, ...]]:
    """Return for each component the tasks of the components that read one of its streams."""
    tasks: dict[str, list[int]] = {}
    for task in plan.tasks():
        tasks.setdefault(plan.component_of(task), []).append(task)
    readers_by_component: dict[str, dict[int, None]] = {}
    for spec in plan.topology.components:
        for edge in spec.inputs:
            readers_by_component.setdefault(edge.component, {}).update(dict.fromkeys(tasks.get(spec.name, ())))
    return {name: tuple(readers) for name, readers in readers_by_component.items()}


@dataclass(frozen=True, slots=True)
class CurrentPlan:
    """Newest plan of a stream manager. Replaced as a whole.

    Attributes:
        epoch: Highest epoch of a topology master seen so far.
        routes: Routing tables of the plan.
        scope: Which causes pause a spout (``topology.backpressure.scope``).
    """

    epoch: int
    routes: PlanRoutes
    scope: str = ""


class GenerationState:
    """Generation of a stateful topology: which connections carry frames, and what is reported about it.

    A frame carries no generation number; the *connection* does. The hello of an instance names its generation, and so
    do both hellos of two peers. Frames are carried while that is the generation of the plan. With a plan of another
    generation the stream manager drops its queues, reads from instances of older generations without forwarding their
    frames, and ends the connections to peers, which reconnect.

    The first connection of a generation that ends loses frames that are not sent again. It is reported as ``lost``, and
    no further connection of that generation is opened. The same holds if the plan names another process in this place:
    a restarted stream manager finds such a plan on its disk and carries nothing until the next one.

    Generation 0 belongs to topologies without state: connections come and go, and only the progress of updates is
    reported.
    """

    def __init__(self, info: StreamManagerInfo, connections: ConnectionTable) -> None:
        self.plan_generation = 0  # generation that the plan names
        self.carried_generation = 0  # generation whose frames are carried, or NONE_CARRIED
        self.loss_reason = ""  # why no further connection of it is opened
        self.command = NO_WISH  # last checkpoint command; it applies until another one arrives
        self._place = stream_manager_of(info.container)
        self._incarnation = info.incarnation
        self._connections = connections
        self._peers: tuple[int, ...] = ()
        self._own = TaskReport(0)
        self._reported = True  # the master has received all current reports

    def apply_plan(self, routes: PlanRoutes) -> bool:
        """Apply a new plan. Return True if other connections than before carry frames."""
        generation, before = routes.plan.generation, self.carried_generation
        self._peers = routes.peers
        if generation.number != self.plan_generation:
            self.carried_generation = self.plan_generation = generation.number
            self.loss_reason = ""
        member = generation.incarnation(self._place)
        if self.plan_generation and generation.phase is GenerationPhase.RUNNING and member != self._incarnation:
            self.carried_generation = NONE_CARRIED
            self.loss_reason = (
                self.loss_reason or f"generation {self.plan_generation} runs with another process in this place"
            )
        return self.carried_generation != before

    def mismatch_reason(self, *generations: int) -> str:
        """Return why hellos with these generations do not match the plan, or an empty string."""
        other = next((number for number in generations if number != self.plan_generation), None)
        return "" if other is None else f"generation {other} was named, and {self.plan_generation} is in force here"

    def closed_reason(self) -> str:
        """Return why no further connection of this generation is opened, or an empty string."""
        return f"generation {self.plan_generation} is over: {self.loss_reason}" if self.loss_reason else ""

    def record_ended(self, neighbour: Neighbour) -> None:
        """Record that a connection that carried frames has ended."""
        if self.plan_generation and neighbour.generation == self.plan_generation:
            self.loss_reason = self.loss_reason or f"the connection to {neighbour} ended"

    def set_command(self, command: CheckpointCommand) -> bool:
        """Store the command of the topology master. Return True if it has changed.

        A command of generation 0 is empty and ignored.
        """
        news = bool(command.generation) and command != self.command
        if news:
            self.command = command
        return news

    def set_report(self, instance: LocalInstance, report: TaskReport | None) -> None:
        """Store the report of a task, or None when its connection has ended."""
        if instance.report != report:
            instance.report = report
            self._reported = False

    def has_unreported_changes(self) -> bool:
        """Return True if a report has changed since ``take_reports``."""
        if not self.plan_generation:
            return not self._reported
        restored = self.carried_generation == self.plan_generation and not self.loss_reason and self._all_open()
        own = self._own
        if (own.generation, own.restored, own.lost) != (self.plan_generation, restored, self.loss_reason):
            self._own = TaskReport(self.plan_generation, restored, lost=self.loss_reason)
            self._reported = False
        return not self._reported

    def take_reports(self) -> tuple[ParticipantReport, ...]:
        """Return all reports. The first is that of the stream manager if the topology has state."""
        self.has_unreported_changes()
        self._reported = True
        own = (ParticipantReport(self._place, self._incarnation, self._own),) if self.plan_generation else ()
        return (
            *own,
            *(
                ParticipantReport(task_participant(task), instance.incarnation or 0, instance.report)
                for task, instance in sorted(self._connections.instances.items())
                if instance.report is not None
            ),
        )

    def check(self) -> None:
        """Assert every invariant."""
        assert self.carried_generation in (self.plan_generation, NONE_CARRIED), (
            "only the generation of the plan is carried"
        )
        assert self.plan_generation or not self.loss_reason, "a topology without state has no closed generation"
        for neighbour in self._connections.all():
            carried = neighbour.generation == self.carried_generation
            assert carried or not neighbour.link.is_open, f"{neighbour} receives frames of another generation only"
        for instance in self._connections.instances.values():
            assert instance.report is None or instance.connection is not None, "a report is removed with its connection"

    def _all_open(self) -> bool:
        peers = self._connections.peers
        return all(container in peers and peers[container].link.is_open for container in self._peers)
