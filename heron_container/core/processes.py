"""Which processes a container consists of: a pure function of the packing plan and two settings.

Container 0 holds the topology masters (one acts, the others stand by) and a metrics manager. A container with tasks
holds a stream manager, a metrics manager and one instance per task. Each process has a *slot*, its place in the
container's heartbeat file, which it keeps for as long as the container lives.
"""

from __future__ import annotations

from dataclasses import dataclass

from heron_runtime.model.ids import MASTER_CONTAINER, instance_id
from heron_runtime.model.plan import PackingPlan

INSTANCE = "heron_instance"
METRICS_MANAGER = "metrics_manager"


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process that should run. ``kind`` is the room's name, ``name`` names the log file and the title."""

    slot: int
    kind: str
    name: str
    component: str = ""
    task: int = 0
    replica: int = 0  # of a topology master; 0 is the first, others stand by

    @property
    def stops_last(self) -> bool:
        """True for the metrics manager: the others send it their last reports when they are asked to stop."""
        return self.kind == METRICS_MANAGER

    @property
    def is_instance(self) -> bool:
        """True for the process of a task."""
        return self.kind == INSTANCE


def master_container(replicas: int) -> list[ProcessSpec]:
    """The processes of container 0."""
    masters = [
        ProcessSpec(slot, "topology_master", "topology_master-0" + (f"-{slot}" if slot else ""), replica=slot)
        for slot in range(replicas)
    ]
    return [*masters, ProcessSpec(replicas, METRICS_MANAGER, "metrics_manager-0")]


def worker_container(container: int, plan: PackingPlan, known: dict[int, int] | None = None) -> list[ProcessSpec]:
    """The processes of a container with tasks. Raises KeyError when the plan has no such container.

    ``known`` (task to slot) keeps the slots of tasks that run already; new tasks get slots that nobody has.
    """
    slots = dict(known or {})
    specs = [
        ProcessSpec(0, "stream_manager", f"stream_manager-{container}"),
        ProcessSpec(1, METRICS_MANAGER, f"metrics_manager-{container}"),
    ]
    for instance in sorted(plan.container(container).instances, key=lambda i: i.task):
        slot = slots.setdefault(instance.task, max(slots.values(), default=1) + 1)
        name = instance_id(container, instance.component, instance.task)
        specs.append(ProcessSpec(slot, INSTANCE, name, instance.component, instance.task))
    return specs


def processes_of(
    container: int, plan: PackingPlan, replicas: int, known: dict[int, int] | None = None
) -> list[ProcessSpec]:
    """The processes of any container. Raises KeyError when the plan has no such container."""
    if container == MASTER_CONTAINER:
        return master_container(replicas)
    return worker_container(container, plan, known)
