"""The physical plan: packing plan, addresses, key groups, state. Pure; the same facts give the same bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from heron_runtime.model.generations import NO_GENERATION, Generation
from heron_runtime.model.key_groups import initial_table, rebalance
from heron_runtime.model.plan import (
    KeyGroupTable,
    PackingPlan,
    PhysicalPlan,
    PlanVersion,
    Standstill,
    StreamManagerInfo,
)
from heron_runtime.model.topology import KEYED, TopologyDefinition, TopologyState


def build_physical_plan(
    definition: TopologyDefinition,
    packing: PackingPlan,
    registrations: Iterable[StreamManagerInfo],
    previous: PhysicalPlan | None,
    epoch: int,
    state: TopologyState,
) -> PhysicalPlan | None:
    """The plan these facts ask for.

    None while a container's stream manager has not registered. ``previous`` itself when nothing differs from it.
    Otherwise a plan with the next number, of this epoch and the previous one's generation; its routing version is the
    previous one's unless tasks came, went or changed container.
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
    if previous is not None and not why_anew(previous, plan):
        plan = replace(plan, undrained=previous.undrained)
    return previous if previous is not None and _content(previous) == _content(plan) else plan


def why_anew(before: PhysicalPlan, plan: PhysicalPlan) -> str:
    """Why all tasks whose state is kept begin anew with this plan; empty if they go on."""
    if plan.routing_version != before.routing_version:
        return "the packing plan has changed"
    return "its settings have changed" if plan.topology != before.topology else ""


def takes_away(before: PhysicalPlan, plan: PhysicalPlan) -> bool:
    """Whether a task goes, moves, or begins anew with other settings: what is on its way to it would be lost."""
    stay = set(_places(plan.packing))
    return any(place not in stay for place in _places(before.packing)) or any(
        before.topology.component_config(spec.name) != plan.topology.component_config(spec.name)
        for spec in before.topology.components
    )


def with_state(
    plan: PhysicalPlan, state: TopologyState, epoch: int, standstill: Standstill = Standstill.NONE
) -> PhysicalPlan:
    """The plan with another state or standstill and the next version, everything else as it is; itself if it is so."""
    if (plan.state, plan.standstill) == (state, standstill):
        return plan
    version = PlanVersion(epoch, plan.version.number + 1)
    undrained = plan.undrained
    if plan.standstill is Standstill.SETTLING and standstill is Standstill.NONE:
        undrained = "a stream manager went before everybody had the new plan"
    return replace(plan, version=version, state=state, standstill=standstill, undrained=undrained)


def with_generation(
    plan: PhysicalPlan, generation: Generation, before: PhysicalPlan | None, epoch: int
) -> PhysicalPlan:
    """The plan in another generation. It has the next version unless it differs already from the one that stands."""
    if plan is not before:
        return replace(plan, generation=generation)
    return replace(plan, version=PlanVersion(epoch, plan.version.number + 1), generation=generation)


def in_words(plan: PhysicalPlan, links: int) -> str:
    """For the log, when it is sent on so many links."""
    step = f", {plan.standstill}" if plan.standstill is not Standstill.NONE else ""
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
    """A table for each consumer of a fields grouping; it changes only with the component's tasks, and then least."""
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
