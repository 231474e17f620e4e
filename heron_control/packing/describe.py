"""A packing plan as rows for people: what ``submit --dry-run`` prints as a table or as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from heron_runtime.model.plan import PackingPlan, Resources


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """One task. Cores, bytes, bytes."""

    component: str
    task: int
    cpu: float
    ram_bytes: int
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class ContainerRow:
    """One container, its size (padding included) and its tasks."""

    container: int
    cpu: float
    ram_bytes: int
    disk_bytes: int
    instances: tuple[InstanceRow, ...]


@dataclass(frozen=True, slots=True)
class PlanDescription:
    """The whole plan: totals, tasks of each component, and every container."""

    topology: str
    tasks: int
    total: Resources
    components: dict[str, int]
    containers: tuple[ContainerRow, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def describe(plan: PackingPlan) -> PlanDescription:
    """The plan as rows; containers and tasks in order."""
    total = Resources()
    components: dict[str, int] = {}
    for instance in plan.instances():
        components[instance.component] = components.get(instance.component, 0) + 1
    rows = []
    for container in plan.containers:
        size = container.resources
        total = total + size
        rows.append(
            ContainerRow(
                container.container,
                size.cpu,
                size.ram_bytes,
                size.disk_bytes,
                tuple(
                    InstanceRow(i.component, i.task, i.resources.cpu, i.resources.ram_bytes, i.resources.disk_bytes)
                    for i in container.instances
                ),
            )
        )
    total = Resources(round(total.cpu, 6), total.ram_bytes, total.disk_bytes)
    return PlanDescription(plan.topology, sum(components.values()), total, components, tuple(rows))
