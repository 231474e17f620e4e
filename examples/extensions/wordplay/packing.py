"""Packing algorithm with a container for each component, so that components do not share memory."""

from __future__ import annotations

from heron_control.packing import PackingError
from heron_control.packing.demand import demand_of
from heron_runtime.model.plan import ContainerPlan, PackingPlan
from heron_runtime.model.topology import TopologyDefinition


def by_component(definition: TopologyDefinition) -> PackingPlan:
    """Return a plan with a container for each component. Raises PackingError if one exceeds a limit."""
    demand = demand_of(definition)  # numbered tasks with their resources, and the limits
    containers: list[ContainerPlan] = []
    for component in dict.fromkeys(task.component for task in demand.instances):
        tasks = [task for task in demand.instances if task.component == component]
        needs = demand.needs(tasks)  # with the container's padding
        limit = demand.exceeded(needs)
        if limit is not None:
            raise PackingError(f"all tasks of {component!r} in one container break {limit.key}; raise it")
        containers.append(demand.container(len(containers) + 1, tasks, needs))
    return PackingPlan(definition.name, tuple(containers))
