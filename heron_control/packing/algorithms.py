"""Packing algorithms: round robin and first fit decreasing. Pure: equal definitions give equal plans.

Task ids count from 1, component by component in order of definition; containers count from 1.

Round robin deals the tasks to ``topology.stmgrs`` containers in turn, so that their numbers of tasks differ by at most
one. All containers get the size of the largest, as in Heron, so that they are interchangeable. There are never more
containers than tasks. Without ``topology.stmgrs`` there are as few containers as the limits allow (one without limits).
If the limits need more than ``topology.stmgrs``, the error says how many would suffice.

First fit decreasing places the largest tasks first, each into the first container with room, which gives few and well
filled containers. Tasks are ordered by memory, then cores, then disk, then task id. For one resource without padding it
needs at most 11/9 of the optimal number of containers plus 6/9 (Dósa 2007). ``topology.stmgrs`` is ignored. Without any
limit a container holds ten tasks, as Heron's default container does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from heron_control.packing.demand import Demand, Limit, PackingError, amount, demand_of, part
from heron_runtime.extensions import PACKING, ExtensionError
from heron_runtime.model.plan import NO_RESOURCES, InstancePlan, PackingPlan, Resources
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import TopologyDefinition

MAX_CONTAINERS = 4096
DEFAULT_MAX_INSTANCES = 10


class PackingAlgorithm(Protocol):
    """Pure function named by ``topology.packing``. ``heron_control.packing.demand`` reads its settings."""

    def __call__(self, definition: TopologyDefinition) -> PackingPlan:
        """Return the plan, with tasks and containers numbered from 1.

        Raises:
            PackingError: No plan meets the limits.
        """


def pack(definition: TopologyDefinition) -> PackingPlan:
    """Return the packing plan by the algorithm that ``topology.packing`` names.

    Raises:
        PackingError: No plan meets the limits, or the algorithm returned an invalid plan.
    """
    if not any(spec.parallelism > 0 for spec in definition.components):
        raise PackingError(f"topology {definition.name!r} has no tasks; give it a spout")
    name = setting(definition.config, Keys.TOPOLOGY_PACKING)
    try:
        algorithm: PackingAlgorithm = PACKING.load(name)
    except ExtensionError as error:
        raise PackingError(f"topology {definition.name!r}: {error}", error.cure) from error
    plan = algorithm(definition)
    fault = _find_violation(definition, plan)
    if fault:
        raise PackingError(f"topology {definition.name!r}: the packing algorithm {name!r} {fault}")
    return plan


def _find_violation(definition: TopologyDefinition, plan: PackingPlan) -> str:
    """Return what an algorithm got wrong that other parts rely on, or ""."""
    wanted = [(spec.name, index) for spec in definition.components for index in range(spec.parallelism)]
    packed = [(task.task, task.component, task.component_index) for task in plan.instances()]
    if packed != [(task, *place) for task, place in enumerate(wanted, 1)]:
        return "must pack each task once, numbered from 1 in the order of the definition"
    if [each.container for each in plan.containers] != list(range(1, len(plan.containers) + 1)):
        return "must number the containers from 1, in order"
    return ""


def pack_round_robin(definition: TopologyDefinition) -> PackingPlan:
    """Return the round-robin plan.

    Raises:
        PackingError: The limits cannot be met.
    """
    demand = demand_of(definition)
    wanted = definition.config.get(Keys.TOPOLOGY_STMGRS.name)
    tasks = len(demand.instances)
    containers = min(wanted, tasks) if wanted is not None else _smallest_count(demand)
    if containers is None or _obstacle(demand, _deal(demand, containers)) is not None:
        raise PackingError(f"topology {definition.name!r}: {_why_not(demand, wanted)}")
    dealt = _deal(demand, containers)
    needs = [demand.needs(instances) for instances in dealt]
    largest = Resources(max(n.cpu for n in needs), max(n.ram_bytes for n in needs), max(n.disk_bytes for n in needs))
    return PackingPlan(
        definition.name,
        tuple(demand.container(number, instances, largest) for number, instances in enumerate(dealt, 1)),
    )


def _deal(demand: Demand, containers: int) -> list[tuple[InstancePlan, ...]]:
    return [demand.instances[first::containers] for first in range(containers)]


def _obstacle(demand: Demand, dealt: list[tuple[InstancePlan, ...]]) -> Limit | None:
    """Return the limit that some container exceeds, or None."""
    for instances in dealt:
        if demand.max_instances is not None and len(instances) > demand.max_instances:
            return Limit("tasks", demand.max_instances, Keys.TOPOLOGY_CONTAINER_MAX_INSTANCES.name)
        limit = demand.exceeded(demand.needs(instances))
        if limit is not None:
            return limit
    return None


def _smallest_count(demand: Demand) -> int | None:
    """Return the smallest number of containers that meets the limits, or None.

    More containers do not always help, because tasks are dealt differently. So each number is tried, starting with the
    least that the sums allow.
    """
    tasks = len(demand.instances)
    least = 1
    if demand.max_instances is not None:
        least = -(-tasks // demand.max_instances)
    for limit in demand.limits:
        bare = sum(part(instance.resources, limit.resource) for instance in demand.instances)
        least = max(least, math.ceil(bare / limit.most - 1e-6) if limit.most > 0 else 1)
    runs = [list(same) for _, same in itertools.groupby(demand.instances, key=lambda each: each.component)]
    alike = [(len(run), run[0].resources) for run in runs]
    for containers in range(max(least, 1), min(tasks, MAX_CONTAINERS) + 1):
        if not _is_hopeless(demand, alike, containers) and _obstacle(demand, _deal(demand, containers)) is None:
            return containers
    return None


def _is_hopeless(demand: Demand, runs: Sequence[tuple[int, Resources]], containers: int) -> bool:
    """Return True if the largest container certainly exceeds a limit.

    Looks at runs of tasks with equal needs instead of single tasks: with thousands of tasks and many container numbers,
    dealing takes minutes.
    """
    most = {limit.resource: _largest_need(runs, containers, limit.resource) for limit in demand.limits}
    needs = demand.padded(Resources(most.get("cpu", 0.0), int(most.get("ram", 0)), int(most.get("disk", 0))))
    return any(part(needs, limit.resource) > 1.000001 * limit.most + 1e-6 for limit in demand.limits)


def _largest_need(runs: Sequence[tuple[int, Resources]], containers: int, resource: str) -> float:
    """Return the most that the tasks of one container need.

    A run gives an equal number of tasks to each container, and one more to some containers in turn.
    """
    each, at = 0.0, 0
    steps: dict[int, float] = {0: 0.0}
    for tasks, resources in runs:
        need = part(resources, resource)
        full, more = divmod(tasks, containers)
        each += full * need
        first, last = at % containers, at % containers + more
        for begin, end in ((first, min(last, containers)), (0, last - containers)):
            if end > begin:
                steps[begin] = steps.get(begin, 0.0) + need
                steps[end] = steps.get(end, 0.0) - need
        at += tasks
    return each + max(itertools.accumulate(steps[place] for place in sorted(steps)))


def _why_not(demand: Demand, wanted: int | None) -> str:
    enough = _smallest_count(demand)
    containers = min(wanted or MAX_CONTAINERS, len(demand.instances))
    dealt = _deal(demand, containers)
    limit = _obstacle(demand, dealt)
    assert limit is not None
    if limit.resource == "tasks":
        worst = max(dealt, key=len)
        what = f"dealing {len(demand.instances)} tasks to {containers} containers puts {len(worst)} into one"
        bound = f"at most {int(limit.most)} are allowed ({limit.key})"
    else:
        worst = max(dealt, key=lambda group: part(demand.needs(group), limit.resource))
        hungriest = max(worst, key=lambda instance: part(instance.resources, limit.resource))
        needs = amount(limit.resource, part(demand.needs(worst), limit.resource))
        what = f"with {containers} containers one needs {needs}, most of it for tasks of {hungriest.component!r}"
        bound = f"a container has at most {amount(limit.resource, limit.most)} ({limit.key})"
    more = f"set {Keys.TOPOLOGY_STMGRS} to {enough}"
    cure = more if enough is not None else "use topology.packing first_fit_decreasing"
    return f"{what}, and {bound}; {cure}, or raise that limit"


@dataclass
class _Bin:
    """Container being filled; ``load`` is the sum of its tasks, without padding."""

    instances: list[InstancePlan] = field(default_factory=list)
    load: Resources = NO_RESOURCES

    def takes(self, instance: InstancePlan, demand: Demand) -> bool:
        """Return True if the task fits."""
        if demand.max_instances is not None and len(self.instances) >= demand.max_instances:
            return False
        return demand.exceeded(demand.padded(self.load + instance.resources)) is None

    def put(self, instance: InstancePlan) -> None:
        """Add the task."""
        self.instances.append(instance)
        self.load = self.load + instance.resources


def pack_first_fit_decreasing(definition: TopologyDefinition) -> PackingPlan:
    """Return the first-fit-decreasing plan.

    Raises:
        PackingError: A task does not fit into any container.
    """
    demand = demand_of(definition)
    if not demand.limits and demand.max_instances is None:
        demand = replace(demand, max_instances=DEFAULT_MAX_INSTANCES)
    bins: list[_Bin] = []
    # Tasks with equal needs are adjacent. A bin without room for one lacks room for the next: start where it ended.
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
