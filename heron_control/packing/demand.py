"""Resources of a topology's tasks and limits of a container, read from the settings once for all algorithms.

Defaults: a task without an entry in the component maps needs 0.5 cores, 256 MiB of memory and no disk, for a Python
process that is rarely busy all the time. (Heron's 1 core and 1 GiB suit a Java machine.) A container needs the sum of
its tasks plus padding for its stream manager, metrics manager and supervisor. The padding is, for each resource, the
larger of ``topology.container.padding.percentage`` and the absolute padding.

A container may be no larger than its stated size (``topology.container.ram`` and so on) or the hint
(``topology.container.max.ram.hint`` and so on), whichever is smaller. Without either, containers are unlimited.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from heron_runtime.failures import InvalidTopology
from heron_runtime.model.plan import ContainerPlan, InstancePlan, Resources
from heron_runtime.model.settings import Keys, MiB, Setting, setting
from heron_runtime.model.topology import TopologyDefinition

DEFAULT_CPU = 0.5
DEFAULT_RAM = 256 * MiB
DEFAULT_DISK = 0
_MAPS = {
    "cpu": Keys.TOPOLOGY_COMPONENT_CPUMAP,
    "ram": Keys.TOPOLOGY_COMPONENT_RAMMAP,
    "disk": Keys.TOPOLOGY_COMPONENT_DISKMAP,
}
_BOUNDS: tuple[tuple[str, Setting[float | None], Setting[float | None]], ...] = (
    # resource, stated size of a container, maximum size of a container
    ("ram", Keys.TOPOLOGY_CONTAINER_RAM, Keys.TOPOLOGY_CONTAINER_MAX_RAM_HINT),
    ("cpu", Keys.TOPOLOGY_CONTAINER_CPU, Keys.TOPOLOGY_CONTAINER_MAX_CPU_HINT),
    ("disk", Keys.TOPOLOGY_CONTAINER_DISK, Keys.TOPOLOGY_CONTAINER_MAX_DISK_HINT),
)
_WORDS = {"cpu": "cores", "ram": "memory", "disk": "disk"}


class PackingError(InvalidTopology, ValueError):
    """Raised if no packing plan meets the limits. Names the component and the setting at fault."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Limit of one resource of a container, and the setting it comes from."""

    resource: str  # cpu, ram or disk
    most: float
    key: str


@dataclass(frozen=True, slots=True)
class Demand:
    """Tasks with their resources, in order of task id, and the limits of a container."""

    instances: tuple[InstancePlan, ...]
    limits: tuple[Limit, ...]
    max_instances: int | None
    fixed: tuple[tuple[str, float], ...]  # the stated size of a container, by resource, where one is stated
    padding_percent: int
    ram_padding: int
    cpu_padding: float

    def needs(self, instances: Iterable[InstancePlan]) -> Resources:
        """Return the needs of a container with these tasks, including padding."""
        bare = Resources()
        for instance in instances:
            bare = bare + instance.resources
        return self.padded(bare)

    def padded(self, bare: Resources) -> Resources:
        """Return ``bare`` with the container's padding."""
        percent = self.padding_percent
        return Resources(
            round(bare.cpu + max(bare.cpu * percent / 100, self.cpu_padding), 6),
            bare.ram_bytes + max(bare.ram_bytes * percent // 100, self.ram_padding),
            bare.disk_bytes + bare.disk_bytes * percent // 100,
        )

    def exceeded(self, needs: Resources) -> Limit | None:
        """Return the first limit that ``needs`` exceeds, or None."""
        for limit in self.limits:
            if part(needs, limit.resource) > limit.most + 1e-9:
                return limit
        return None

    def size(self, needs: Resources) -> Resources:
        """Return the size of a container with these needs: its stated size, if there is one."""
        stated = dict(self.fixed)
        return Resources(
            float(stated.get("cpu", needs.cpu)),
            int(stated.get("ram", needs.ram_bytes)),
            int(stated.get("disk", needs.disk_bytes)),
        )

    def container(self, number: int, instances: Iterable[InstancePlan], needs: Resources) -> ContainerPlan:
        """Return the plan of one container."""
        return ContainerPlan(number, tuple(sorted(instances, key=lambda i: i.task)), self.size(needs))


def demand_of(definition: TopologyDefinition) -> Demand:
    """Read the settings and number the tasks from 1, component by component in order of definition.

    Raises:
        PackingError: A single task does not fit into any container.
    """
    demand = _read(definition)
    seen: set[str] = set()
    for instance in demand.instances:
        if instance.component in seen:
            continue
        seen.add(instance.component)
        limit = demand.exceeded(demand.needs((instance,)))
        if limit is not None:
            raise PackingError(_too_large(definition.name, demand, instance, limit))
    return demand


def _read(definition: TopologyDefinition) -> Demand:
    config = definition.config
    cpus, rams, disks = (setting(config, _MAPS[resource]) for resource in ("cpu", "ram", "disk"))
    instances: list[InstancePlan] = []
    for spec in definition.components:
        resources = Resources(
            float(cpus.get(spec.name, DEFAULT_CPU)),
            int(rams.get(spec.name, DEFAULT_RAM)),
            int(disks.get(spec.name, DEFAULT_DISK)),
        )
        for index in range(spec.parallelism):
            instances.append(InstancePlan(len(instances) + 1, spec.name, index, resources))
    limits, fixed = [], []
    for resource, size_key, hint_key in _BOUNDS:
        stated, hint = setting(config, size_key), setting(config, hint_key)
        bounds = [(most, key) for most, key in ((stated, size_key.name), (hint, hint_key.name)) if most is not None]
        if stated is not None:
            fixed.append((resource, min(bounds)[0]))
        if bounds:
            limits.append(Limit(resource, *min(bounds)))
    return Demand(
        tuple(instances),
        tuple(limits),
        setting(config, Keys.TOPOLOGY_CONTAINER_MAX_INSTANCES),
        tuple(fixed),
        setting(config, Keys.TOPOLOGY_CONTAINER_PADDING_PERCENTAGE),
        setting(config, Keys.TOPOLOGY_CONTAINER_RAM_PADDING) or 0,
        setting(config, Keys.TOPOLOGY_CONTAINER_CPU_PADDING) or 0.0,
    )


def part(resources: Resources, resource: str) -> float:
    """Return one of the resources by name: cpu, ram or disk."""
    return {"cpu": resources.cpu, "ram": resources.ram_bytes, "disk": resources.disk_bytes}[resource]


def amount(resource: str, value: float) -> str:
    """Format an amount, such as ``2 GiB of memory`` or ``1.5 cores``."""
    if resource == "cpu":
        return f"{value:g} cores"
    for unit, size in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if value >= size:
            return f"{round(value / size, 2):g} {unit} of {_WORDS[resource]}"
    return f"{int(value)} bytes of {_WORDS[resource]}"


def _too_large(topology: str, demand: Demand, instance: InstancePlan, limit: Limit) -> str:
    own, whole = part(instance.resources, limit.resource), part(demand.needs((instance,)), limit.resource)
    return (
        f"topology {topology!r}: one task of {instance.component!r} needs {amount(limit.resource, own)}, "
        f"{amount(limit.resource, whole)} with the container's padding, but a container has at most "
        f"{amount(limit.resource, limit.most)} ({limit.key}); raise that, "
        f"or lower {instance.component!r} in {_MAPS[limit.resource]}"
    )
