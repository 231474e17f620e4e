"""Physical plans: build the plan that the facts require, and store an update of a topology without state in steps.

``build_physical_plan`` is pure: the same packing plan, registrations, key groups and previous plan give the same bytes.

An update that removes, moves or restarts tasks first processes what is under way (``UpdateSequencer``)::

    old plan ──▶ old plan, draining ──all tasks silent──▶ new plan, settling ──all follow it──▶ new plan
       ▲                │ │ given up                                │ too long         ▲
       └── taken back ──┘ └─────────────────────────────────────────┴──────────────────┘

Theory of operation. Each step is a plan with its own version. While a plan drains, spouts emit nothing, and each task
reports when it has the barriers of all its senders and is silent (``heron_instance.core.state.barriers``). Nothing is
then under way, and the master stores the new plan. It settles until every stream manager, and every task that was
silent, follows it, so that no tuple goes to the former place of a task. The third plan lets all tasks resume.

A step lasts ``topology.update.drain.secs`` at most, in the master's own ticks. After that the master stores the new
plan with the reason in ``undrained``. The step is part of the plan and the request is in the store, so the next leader
continues with the same step from its beginning. Each plan it stores is one step further, or the old plan again.

*Key groups*: the 1 024 key groups of a component are assigned to its tasks, with the same result in every process. The
group of a key never changes (``heron_runtime.model.keys``); only the owner of a group does. When the number of
tasks changes, as few groups as possible move: a task gives up only the groups above its fair share. (With ranges of
groups, half of them would move from 3 tasks to 4.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from heron_runtime.model.ids import KEY_GROUPS
from heron_runtime.model.plan import (
    NO_GENERATION,
    Generation,
    KeyGroupTable,
    PackingPlan,
    ParticipantKind,
    PhysicalPlan,
    PlanVersion,
    StreamManagerInfo,
    UpdatePhase,
)
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import KEYED, TopologyDefinition, TopologyState
from heron_runtime.wire.master import ParticipantReport
from topology_master.core.membership import Membership, TickClock


def build_physical_plan(
    definition: TopologyDefinition,
    packing: PackingPlan,
    registrations: Iterable[StreamManagerInfo],
    previous: PhysicalPlan | None,
    epoch: int,
    state: TopologyState,
) -> PhysicalPlan | None:
    """Build the physical plan that the current facts require.

    Returns:
        None while a container's stream manager has not registered. ``previous`` itself if nothing differs from it.
        Otherwise a plan with the next number, of this epoch and the previous plan's generation. Its routing version is
        the previous one's unless tasks were added, removed or moved to another container.
    """
    by_container = {info.container: info for info in registrations}
    containers = sorted(c.container for c in packing.containers)
    if any(number not in by_container for number in containers):
        return None
    if previous is not None and previous.topology.id != definition.id:
        previous = None
    routing_version = 1
    if previous is not None:
        routing_version = previous.routing_version + (_places(previous.packing) != _places(packing))
    plan = PhysicalPlan(
        version=PlanVersion(epoch, 1 if previous is None else previous.version.number + 1),
        routing_version=routing_version,
        topology=definition,
        packing=packing,
        stream_managers=tuple(by_container[number] for number in containers),
        key_groups=_key_groups(definition, packing, previous),
        state=state,
        generation=NO_GENERATION if previous is None else previous.generation,
    )
    if previous is not None and not restart_reason(previous, plan):
        plan = replace(plan, undrained=previous.undrained)
    return previous if previous is not None and _content(previous) == _content(plan) else plan


def restart_reason(before: PhysicalPlan, plan: PhysicalPlan) -> str:
    """Return why all tasks whose state is kept restart with this plan, or "" if they continue."""
    if plan.routing_version != before.routing_version:
        return "the packing plan has changed"
    return "its settings have changed" if plan.topology != before.topology else ""


def removes_tasks(before: PhysicalPlan, plan: PhysicalPlan) -> bool:
    """Return whether a task is removed, moved or restarted with other settings.

    Tuples under way to such a task would be lost.
    """
    stay = set(_places(plan.packing))
    return any(place not in stay for place in _places(before.packing)) or any(
        before.topology.component_config(spec.name) != plan.topology.component_config(spec.name)
        for spec in before.topology.components
    )


def replace_state(
    plan: PhysicalPlan, state: TopologyState, epoch: int, standstill: UpdatePhase = UpdatePhase.NONE
) -> PhysicalPlan:
    """Return the plan with another state or standstill and the next version, or itself if it has them."""
    if (plan.state, plan.standstill) == (state, standstill):
        return plan
    version = PlanVersion(epoch, plan.version.number + 1)
    undrained = plan.undrained
    if plan.standstill is UpdatePhase.SETTLING and standstill is UpdatePhase.NONE:
        undrained = "a stream manager left before all had the new plan"
    return replace(plan, version=version, state=state, standstill=standstill, undrained=undrained)


def replace_generation(
    plan: PhysicalPlan, generation: Generation, before: PhysicalPlan | None, epoch: int
) -> PhysicalPlan:
    """Return the plan in another generation.

    It has the next version unless it already differs from ``before``, the plan that is stored.
    """
    if plan is not before:
        return replace(plan, generation=generation)
    return replace(plan, version=PlanVersion(epoch, plan.version.number + 1), generation=generation)


def describe_plan(plan: PhysicalPlan, links: int) -> str:
    """Return the log line for a plan that is sent on so many links."""
    step = f", {plan.standstill}" if plan.standstill is not UpdatePhase.NONE else ""
    undrained = f"; what was on its way was not waited for: {plan.undrained}" if plan.undrained else ""
    return f"physical plan {plan.version}, {plan.state}{step}, to {links} links{undrained}"


def _places(packing: PackingPlan) -> list[tuple[int, str, int]]:
    return sorted((i.task, i.component, c.container) for c in packing.containers for i in c.instances)


def _content(plan: PhysicalPlan) -> tuple[object, ...]:
    return (
        plan.routing_version, plan.topology, plan.packing, plan.stream_managers, plan.key_groups, plan.state,
        plan.standstill,
    )  # fmt: skip


def _key_groups(
    definition: TopologyDefinition, packing: PackingPlan, previous: PhysicalPlan | None
) -> tuple[KeyGroupTable, ...]:
    """Return a table for each consumer of a fields grouping.

    A table changes only with the tasks of its component, and then in the fewest groups.
    """
    consumers = {e.destination for e in definition.edges() if e.grouping.kind in KEYED}
    old = {table.component: table.tasks for table in previous.key_groups} if previous is not None else {}
    tables = []
    for component in sorted(consumers):
        tasks = sorted(i.task for i in packing.instances() if i.component == component)
        table = old.get(component)
        if table is None:
            table = initial_table(tasks)
        elif set(table) != set(tasks):
            table = rebalance(table, tasks)
        tables.append(KeyGroupTable(component, table))
    return tuple(tables)


SHOWN = 3
NOT_SETTLED = "after {:g} s (topology.update.drain.secs) some tasks still used the old plan"


class UpdateSequencer:
    """Steps of updates that remove tasks of a topology without state, while this master leads."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._reports: dict[int, dict[int, int]] = {}  # container: task: the plan for which it is silent, or 0
        self._clock = TickClock()
        self._step = PlanVersion()  # the one that stands, and since when
        self._since_ms = 0

    def advance(self, now_ms: int) -> None:
        """Advance the clock. A pause of this master does not shorten a step."""
        self._clock.advance(now_ms)

    def heard(self, container: int, reports: Iterable[ParticipantReport]) -> None:
        """Record the task reports of a container's stream manager."""
        self._reports[container] = {
            r.place.number: r.report.aligned for r in reports if r.place.kind is ParticipantKind.TASK
        }

    def next_plan(self, before: PhysicalPlan, plan: PhysicalPlan, epoch: int) -> PhysicalPlan:
        """Return the next step from the stored plan to the wanted one, or ``before`` while a step lasts."""
        if self._step != before.version:
            self._step, self._since_ms = before.version, self._clock.ms
        secs = setting(plan.topology.config, Keys.TOPOLOGY_UPDATE_DRAIN_SECS)
        over = self._clock.ms - self._since_ms >= 1000 * secs
        standstill = before.standstill
        if not removes_tasks(before, plan):
            alike = replace(before, version=plan.version, standstill=UpdatePhase.NONE) == plan
            if standstill is not UpdatePhase.SETTLING or not alike or self._settled(before):
                return plan
            return replace(plan, undrained=NOT_SETTLED.format(secs)) if over else before
        if standstill is not UpdatePhase.DRAINING:
            return replace_state(before, plan.state, epoch, UpdatePhase.DRAINING) if secs else plan
        busy = self._busy(before)
        if not busy:
            return replace(plan, standstill=UpdatePhase.SETTLING)
        if self._stream_managers_changed(before):
            return replace(plan, undrained="a stream manager restarted in the meantime")
        if over:
            return replace(plan, undrained=_not_silent(before, busy, secs))
        return before

    def _busy(self, plan: PhysicalPlan) -> list[int]:
        """Return the tasks that have not reported silence for this plan."""
        number = plan.version.number
        return [task for task in plan.tasks() if self._reports.get(plan.container_of(task), {}).get(task, 0) != number]

    def _settled(self, plan: PhysicalPlan) -> bool:
        """Return whether no task follows another plan. Tasks without a report start with this one."""
        here = [self._reports.get(container.container, {}) for container in plan.packing.containers]
        said = (number for reports in here for number in reports.values() if number)
        return self._membership.all_follow(plan.version) and all(number >= plan.version.number for number in said)

    def _stream_managers_changed(self, plan: PhysicalPlan) -> bool:
        known = {info.container: info for info in plan.stream_managers}
        return any(info != known.get(info.container, info) for info in self._membership.registrations())

    def check(self) -> None:
        """Assert every invariant."""
        assert self._since_ms <= self._clock.ms


def _not_silent(plan: PhysicalPlan, tasks: list[int], secs: float) -> str:
    some = ", ".join(f"{plan.component_of(task)} task {task}" for task in tasks[:SHOWN])
    more = f" and {len(tasks) - SHOWN} more" if tasks[SHOWN:] else ""
    return f"after {secs:g} s (topology.update.drain.secs) {some}{more} had not come to rest"


def initial_table(tasks: Sequence[int]) -> tuple[int, ...]:
    """Return the task of each group, assigned round robin, so that shares differ by at most one. Raises ValueError."""
    owners = _checked(tasks)
    return tuple(owners[group % len(owners)] for group in range(KEY_GROUPS))


def rebalance(old_table: Sequence[int], tasks: Sequence[int]) -> tuple[int, ...]:
    """Return a balanced table over ``tasks`` that moves as few groups of ``old_table`` as possible.

    Raises:
        ValueError: ``tasks`` is empty or contains duplicates, or the length of ``old_table`` is wrong.
    """
    owners = _checked(tasks)
    if len(old_table) != KEY_GROUPS:
        raise ValueError(f"a key-group table has {KEY_GROUPS} entries, not {len(old_table)}")
    room = _shares(Counter(old_table), owners)
    table: list[int | None] = []
    for task in old_table:
        keeps = room.get(task, 0) > 0
        table.append(task if keeps else None)
        if keeps:
            room[task] -= 1
    takers = (task for task in owners for _ in range(room[task]))
    return tuple(next(takers) if task is None else task for task in table)


def _shares(held: Counter[int], owners: list[int]) -> dict[int, int]:
    """Return the number of groups of each task. Tasks that hold most get the larger shares, which reduces moves."""
    share, larger = divmod(KEY_GROUPS, len(owners))
    by_holding = sorted(owners, key=lambda task: (-held[task], task))
    return {task: share + (rank < larger) for rank, task in enumerate(by_holding)}


def _checked(tasks: Sequence[int]) -> list[int]:
    owners = sorted(tasks)
    if not owners:
        raise ValueError("key groups need at least one task")
    if len(set(owners)) != len(owners):
        raise ValueError(f"a task occurs twice in {owners}")
    return owners
