"""All that the state store knows about one submission of a topology, as one value."""

from __future__ import annotations

from dataclasses import dataclass

from heron_runtime.model.plan import PackingPlan, PhysicalPlan
from heron_runtime.model.stored import ContainerLocation, ExecutionState, MasterLocation, SchedulerLocation
from heron_runtime.model.topology import TopologyDefinition


@dataclass(frozen=True)
class TopologyRecord:
    """All the store knows about one submission of a topology."""

    definition: TopologyDefinition
    packing: PackingPlan
    physical: PhysicalPlan | None
    execution: ExecutionState
    master: MasterLocation | None
    scheduler: SchedulerLocation | None
    containers: tuple[ContainerLocation, ...]

    def container(self, number: int) -> ContainerLocation | None:
        """Where this container's ``heron_container`` listens, if it is there."""
        return next((c for c in self.containers if c.container == number), None)
