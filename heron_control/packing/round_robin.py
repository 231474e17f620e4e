"""Round robin: tasks are dealt out to ``topology.stmgrs`` containers in turn, so that counts differ by one at most.

All containers get the size of the neediest, as Heron does it, since they are meant to be interchangeable. There are
never more containers than tasks. Where ``topology.stmgrs`` is not set, there are as few containers as the limits allow
(one, without limits); where it is set and the limits need more, that is an error and says how many would do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from heron_control.packing.demand import Demand, Limit, amount, demand_of, part
from heron_control.packing.errors import PackingError
from heron_runtime.model.plan import InstancePlan, PackingPlan, Resources
from heron_runtime.model.settings import Keys
from heron_runtime.model.topology import TopologyDefinition

MAX_CONTAINERS = 4096


def pack_round_robin(definition: TopologyDefinition) -> PackingPlan:
    """The plan. Raises PackingError when the limits cannot be met."""
    demand = demand_of(definition)
    wanted = definition.config.get(Keys.TOPOLOGY_STMGRS.name)
    tasks = len(demand.instances)
    containers = min(wanted, tasks) if wanted is not None else _fewest(demand)
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
    """The limit that some container breaks, or None."""
    for instances in dealt:
        if demand.max_instances is not None and len(instances) > demand.max_instances:
            return Limit("tasks", demand.max_instances, Keys.TOPOLOGY_CONTAINER_MAX_INSTANCES.name)
        limit = demand.exceeded(demand.needs(instances))
        if limit is not None:
            return limit
    return None


def _fewest(demand: Demand) -> int | None:
    """The smallest number of containers that meets the limits; None if there is none.

    More containers do not always help (the deal changes), so each number is tried, from the least the sums allow.
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
        if not _hopeless(demand, alike, containers) and _obstacle(demand, _deal(demand, containers)) is None:
            return containers
    return None


def _hopeless(demand: Demand, runs: Sequence[tuple[int, Resources]], containers: int) -> bool:
    """True if the neediest container breaks a limit clearly. A look at each run of tasks that need the same instead of
    each task: with thousands of tasks and numbers of containers to try, dealing them out takes minutes."""
    most = {limit.resource: _neediest(runs, containers, limit.resource) for limit in demand.limits}
    needs = demand.padded(Resources(most.get("cpu", 0.0), int(most.get("ram", 0)), int(most.get("disk", 0))))
    return any(part(needs, limit.resource) > 1.000001 * limit.most + 1e-6 for limit in demand.limits)


def _neediest(runs: Sequence[tuple[int, Resources]], containers: int, resource: str) -> float:
    """The most that the tasks of one container need: a run gives as much to each, and one task more to some in turn."""
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
    enough = _fewest(demand)
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
