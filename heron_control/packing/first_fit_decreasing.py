"""First fit decreasing: the neediest tasks first, each into the first container with room. Few containers, well filled.

Order: memory, then cores, then disk, larger first; among equals by task id. For one resource without padding it needs
at most 11/9 of the best number of containers plus 6/9 (Dósa 2007). ``topology.stmgrs`` plays no part. Where no limit
at all is set, a container holds ten tasks, as Heron's default container does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from heron_control.packing.demand import Demand, demand_of
from heron_runtime.model.plan import NO_RESOURCES, InstancePlan, PackingPlan, Resources
from heron_runtime.model.topology import TopologyDefinition

DEFAULT_MAX_INSTANCES = 10


@dataclass
class _Bin:
    """A container being filled; ``load`` is what its tasks need, without padding."""

    instances: list[InstancePlan] = field(default_factory=list)
    load: Resources = NO_RESOURCES

    def takes(self, instance: InstancePlan, demand: Demand) -> bool:
        if demand.max_instances is not None and len(self.instances) >= demand.max_instances:
            return False
        return demand.exceeded(demand.padded(self.load + instance.resources)) is None

    def put(self, instance: InstancePlan) -> None:
        self.instances.append(instance)
        self.load = self.load + instance.resources


def pack_first_fit_decreasing(definition: TopologyDefinition) -> PackingPlan:
    """The plan. Raises PackingError when a task fits into no container."""
    demand = demand_of(definition)
    if not demand.limits and demand.max_instances is None:
        demand = replace(demand, max_instances=DEFAULT_MAX_INSTANCES)
    bins: list[_Bin] = []
    # Tasks of one need come in a row, and a bin that had no room for one has none for the next: start where it ended.
    first, last = 0, None
    for instance in sorted(demand.instances, key=_decreasing):
        if instance.resources != last:
            first, last = 0, instance.resources
        while first < len(bins) and not bins[first].takes(instance, demand):
            first += 1
        if first == len(bins):
            bins.append(_Bin())
        bins[first].put(instance)
    return PackingPlan(
        definition.name,
        tuple(
            demand.container(number, filled.instances, demand.padded(filled.load))
            for number, filled in enumerate(bins, 1)
        ),
    )


def _decreasing(instance: InstancePlan) -> tuple[float, float, float, int]:
    needs = instance.resources
    return -needs.ram_bytes, -needs.cpu, -needs.disk_bytes, instance.task
