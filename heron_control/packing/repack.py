"""Repacking of a running topology whose parallelism or number of containers changes, with the fewest moves.

A task that moves has to be stopped, started and given its state elsewhere, so tasks stay where they are. If the number
of containers is open, no task moves: new tasks go to the containers with the fewest tasks and enough room, or to new
containers. If the number is given, shares are balanced so that they differ by at most one, with the fewest moves. A
component that shrinks loses its last tasks. Task ids, and numbers of containers that stay, are kept. An id is never
reused, so the caller passes the first free one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from heron_control.packing.demand import Demand, PackingError, demand_of
from heron_runtime.failures import UsageError
from heron_runtime.model.ids import FIRST_STANDBY
from heron_runtime.model.plan import InstancePlan, PackingPlan
from heron_runtime.model.topology import TopologyDefinition


@dataclass(frozen=True, slots=True)
class PackingDiff:
    """Differences of two plans: tasks that come, go and move (task, from, to), containers that come and go."""

    come: tuple[int, ...]
    go: tuple[int, ...]
    move: tuple[tuple[int, int, int], ...]
    new_containers: tuple[int, ...]
    old_containers: tuple[int, ...]


def diff_plans(old: PackingPlan, new: PackingPlan) -> PackingDiff:
    """Return the differences of two plans."""
    before, after = _places(old), _places(new)
    moves = tuple(
        (task, before[task], after[task]) for task in sorted(before) if after.get(task, before[task]) != before[task]
    )
    there, then = ({each.container for each in plan.containers} for plan in (old, new))
    return PackingDiff(
        tuple(sorted(set(after) - set(before))),
        tuple(sorted(set(before) - set(after))),
        moves,
        tuple(sorted(then - there)),
        tuple(sorted(there - then)),
    )


def repack(
    definition: TopologyDefinition,
    current: PackingPlan,
    next_task: int,
    containers: int | None = None,
    move: int | None = None,
) -> PackingPlan:
    """Return the plan for ``definition`` with its new parallelism.

    Args:
        definition: Definition with the wanted parallelism.
        current: Plan that runs.
        next_task: First task id that was never used.
        containers: Wanted number of containers, or None.
        move: Container whose tasks move to a new one, or None.

    Raises:
        UsageError: The container to move does not exist.
        PackingError: The limits cannot be met, or there would be more containers than tasks.
    """
    demand = demand_of(definition)
    placed, new = _tasks(demand, current, next_task)
    held = {plan.container: placed.get(plan.container, []) for plan in current.containers}
    if move is not None:
        if move not in held:
            there = ", ".join(map(str, held))
            raise UsageError(f"{definition.name} has no container {move} with tasks", f"It has {there}.")
        another = max(held) + 1  # computed first, so that it differs from the container's own number
        held[another] = held.pop(move)
    if containers is None:
        _place_where_there_is_room(definition, demand, held, new)
    else:
        total = len(new) + sum(map(len, held.values()))
        if not 0 < containers <= total:
            raise PackingError(
                f"topology {definition.name!r}: {containers} containers for {total} tasks; use 1 to {total}"
            )
        held = _even_out(held, new, containers)
    if max(held) >= FIRST_STANDBY:
        raise PackingError(
            f"topology {definition.name!r}: updates have used up the container numbers",
            "Submit it with --replace.",
        )
    filled = [demand.container(number, tasks, demand.needs(tasks)) for number, tasks in sorted(held.items()) if tasks]
    for plan in filled:
        _check(definition, demand, plan.container, list(plan.instances))
    return PackingPlan(definition.name, tuple(filled))


def _places(plan: PackingPlan) -> dict[int, int]:
    return {instance.task: each.container for each in plan.containers for instance in each.instances}


def _tasks(
    demand: Demand, current: PackingPlan, next_task: int
) -> tuple[dict[int, list[InstancePlan]], list[InstancePlan]]:
    """Return the tasks that stay, by container, and the new ones."""
    wanted = {(instance.component, instance.component_index): instance for instance in demand.instances}
    placed: dict[int, list[InstancePlan]] = {}
    for plan in current.containers:
        for instance in plan.instances:
            now = wanted.pop((instance.component, instance.component_index), None)
            if now is not None:
                placed.setdefault(plan.container, []).append(replace(now, task=instance.task))
    return placed, [replace(instance, task=next_task + n) for n, instance in enumerate(wanted.values())]


def _place_where_there_is_room(
    definition: TopologyDefinition, demand: Demand, held: dict[int, list[InstancePlan]], new: list[InstancePlan]
) -> None:
    for instance in new:
        for number in sorted(held, key=lambda number: (len(held[number]), number)):
            if _fits(demand, [*held[number], instance]):
                held[number].append(instance)
                break
        else:
            held[max(held) + 1] = [instance]


def _even_out(
    held: Mapping[int, list[InstancePlan]], new: list[InstancePlan], containers: int
) -> dict[int, list[InstancePlan]]:
    by_holding = sorted(held, key=lambda number: (-len(held[number]), number))
    stay = by_holding[:containers]
    numbers = stay + [max(held) + 1 + n for n in range(containers - len(stay))]
    share, larger = divmod(len(new) + sum(map(len, held.values())), containers)
    # The containers that hold most get the larger shares, which saves one move each.
    room = {number: share + (rank < larger) for rank, number in enumerate(numbers)}
    placed = {number: list(held.get(number, ()))[: room[number]] for number in numbers}
    homeless = [instance for number in stay for instance in held[number][room[number] :]]
    homeless += [instance for number in by_holding[containers:] for instance in held[number]]
    for instance in homeless + new:
        number = min(numbers, key=lambda number: (len(placed[number]) - room[number], number))
        placed[number].append(instance)
    return placed


def _fits(demand: Demand, tasks: list[InstancePlan]) -> bool:
    if demand.max_instances is not None and len(tasks) > demand.max_instances:
        return False
    return demand.exceeded(demand.needs(tasks)) is None


def _check(definition: TopologyDefinition, demand: Demand, number: int, tasks: list[InstancePlan]) -> None:
    if _fits(demand, tasks):
        return
    limit = demand.exceeded(demand.needs(tasks))
    why = f"at most {demand.max_instances} tasks" if limit is None else f"{limit.key} {limit.most:g}"
    raise PackingError(
        f"topology {definition.name!r}: container {number} would have {len(tasks)} tasks, beyond its limit ({why})",
        "Ask for more containers, or raise that limit.",
    )
