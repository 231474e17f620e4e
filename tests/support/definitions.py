"""Builders of topology definitions, packing plans and physical plans for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from heron_runtime.model.ids import KEY_GROUPS
from heron_runtime.model.plan import (
    ContainerPlan,
    InstancePlan,
    KeyGroupTable,
    PackingPlan,
    PhysicalPlan,
    PlanVersion,
    StreamManagerInfo,
)
from heron_runtime.model.topology import (
    ComponentKind,
    ComponentSpec,
    GroupingKind,
    GroupingSpec,
    InputSpec,
    StreamSchema,
    TopologyDefinition,
)

SHUFFLE = GroupingSpec(GroupingKind.SHUFFLE)


def component(
    name: str,
    *inputs: str | InputSpec,
    parallelism: int = 1,
    fields: tuple[str, ...] = ("x",),
    config: Mapping[str, Any] | None = None,
    code: str = "m:C",
) -> ComponentSpec:
    """Return a spout, or a bolt that reads the named components shuffled; without ``fields`` it emits nothing."""
    kind = ComponentKind.BOLT if inputs else ComponentKind.SPOUT
    edges = tuple(InputSpec(source, "default", SHUFFLE) if isinstance(source, str) else source for source in inputs)
    outputs = (StreamSchema("default", fields),) if fields else ()
    return ComponentSpec(name, kind, code, parallelism, outputs, edges, config or {})


def topology_spec(
    name: str, *components: ComponentSpec, number: str = "1", config: Mapping[str, Any] | None = None
) -> TopologyDefinition:
    """Return a topology whose id is ``name-number``."""
    return TopologyDefinition(name, f"{name}-{number}", components, config or {})


def round_robin_packing(
    definition: TopologyDefinition, containers: int = 1, shuffle: Callable[[list[int]], None] | None = None
) -> PackingPlan:
    """Number the tasks in order of the components, and assign them to containers in turn or as ``shuffle`` decides."""
    names = [spec.name for spec in definition.components for _ in range(spec.parallelism)]
    containers = min(containers, len(names))
    homes = [n % containers + 1 for n in range(len(names))]
    if shuffle is not None:
        shuffle(homes)
    numbered = list(enumerate(zip(homes, names, strict=True), 1))
    return packing_of(
        definition.name,
        {n: {task: name for task, (home, name) in numbered if home == n} for n in range(1, containers + 1)},
    )


def packing_of(topology: str, places: Mapping[int, Mapping[int, str]]) -> PackingPlan:
    """Return the packing plan in which ``places[container][task]`` is the component of a task."""
    names = {task: name for tasks in places.values() for task, name in tasks.items()}

    def index(task: int) -> int:
        return sum(other < task and names[other] == names[task] for other in names)

    return PackingPlan(
        topology,
        tuple(
            ContainerPlan(number, tuple(InstancePlan(task, name, index(task)) for task, name in sorted(tasks.items())))
            for number, tasks in sorted(places.items())
        ),
    )


def key_group_tables(packing: PackingPlan) -> tuple[KeyGroupTable, ...]:
    """Return a table for each component, which gives its tasks equal ranges of groups."""
    tasks: dict[str, list[int]] = {}
    for instance in sorted((i for c in packing.containers for i in c.instances), key=lambda i: i.task):
        tasks.setdefault(instance.component, []).append(instance.task)
    return tuple(
        KeyGroupTable(name, tuple(mine[group * len(mine) // KEY_GROUPS] for group in range(KEY_GROUPS)))
        for name, mine in tasks.items()
    )


def plan_of(
    definition: TopologyDefinition,
    packing: PackingPlan | None = None,
    version: PlanVersion = PlanVersion(1, 1),  # noqa: B008  # immutable
    stream_managers: tuple[StreamManagerInfo, ...] = (),
    *,
    tables: bool = False,
    **more: Any,
) -> PhysicalPlan:
    """Return a physical plan, by default of one container and without key-group tables."""
    packing = packing or round_robin_packing(definition)
    groups = key_group_tables(packing) if tables else ()
    return PhysicalPlan(version, 1, definition, packing, stream_managers, groups, **more)
