"""Repacking: properties, and comparison with brute force: the even plan with the fewest moves."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_control.packing import PackingError, pack
from heron_control.packing.repack import PackingDiff, diff_plans, repack
from heron_runtime.model.ids import FIRST_STANDBY
from heron_runtime.model.plan import ContainerPlan, InstancePlan, PackingPlan
from heron_runtime.model.settings import GiB, MiB
from heron_runtime.model.topology import TopologyDefinition
from tests.unit.packing.test_packing import topology

sizes = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 6), min_size=1)


def counts(plan: PackingPlan) -> list[int]:
    return [len(each.instances) for each in plan.containers]


def after(old: TopologyDefinition, **sizes: int) -> TopologyDefinition:
    return topology({**{spec.name: spec.parallelism for spec in old.components}, **sizes})


def test_container_never_gets_the_number_of_a_standby() -> None:
    definition = topology({"a": 2})
    last = PackingPlan("t", (replace(pack(definition).containers[0], container=FIRST_STANDBY - 1),))
    assert [plan.container for plan in repack(definition, last, 3).containers] == [FIRST_STANDBY - 1]
    with pytest.raises(PackingError, match="used up the container numbers"):
        repack(definition, last, 3, move=FIRST_STANDBY - 1)


@given(sizes, sizes, st.integers(1, 8), st.one_of(st.none(), st.integers(1, 12)), st.data())
def test_every_task_is_packed_once_and_keeps_its_id(
    before: dict[str, int], wanted: dict[str, int], stmgrs: int, containers: int | None, data: st.DataObject
) -> None:
    wanted = {name: wanted.get(name, size) for name, size in before.items()}
    old = pack(topology(before, stmgrs=stmgrs))
    definition = topology(wanted)
    if containers is not None and containers > sum(wanted.values()):
        with pytest.raises(PackingError, match="containers for"):
            repack(definition, old, 100, containers)
        return
    new = repack(definition, old, 100, containers)
    packed = Counter((i.component, i.component_index) for i in new.instances())
    assert packed == Counter((name, index) for name, size in wanted.items() for index in range(size))
    done = diff_plans(old, new)
    kept = {(i.component, i.component_index): i.task for i in old.instances()}
    for instance in new.instances():
        assert instance.task == kept.get((instance.component, instance.component_index), instance.task)
        assert (instance.task >= 100) == (instance.task in done.come)
    assert len(done.go) == sum(max(0, size - wanted[name]) for name, size in before.items())
    if containers is None:
        assert done.move == ()
    else:
        assert len(new.containers) == containers
        assert max(counts(new)) - min(counts(new)) <= 1
        if done.come or done.go:
            return
        again = repack(definition, new, 200, containers)
        assert again == new, "what is even stays as it is"


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(0, 3), st.integers(1, 5))
def test_repacking_uses_the_fewest_moves_of_all_even_plans(held: list[int], new: int, containers: int) -> None:
    total = sum(held)
    if not total or containers > total + new:
        return
    tasks = iter(range(1, total + 1))
    old = PackingPlan(
        "T",
        tuple(
            ContainerPlan(number, tuple(InstancePlan(task, "a", task - 1) for task in itertools.islice(tasks, count)))
            for number, count in enumerate(held, 1)
        ),
    )
    done = diff_plans(old, repack(topology({"a": total + new}), old, 100, containers))
    assert len(done.move) == _fewest(held, total + new, containers)


def _fewest(held: list[int], total: int, containers: int) -> int:
    """Return the minimum, by trying every choice of remaining containers and of larger shares."""
    share, larger = divmod(total, containers)
    best = sum(held)
    for stay in range(min(containers, len(held)) + 1):
        for some in itertools.combinations(held, stay):
            for more in range(min(larger, stay) + 1):
                if larger - more > containers - stay:
                    continue  # the larger shares must be placed
                for richer in itertools.combinations(range(stay), more):
                    kept = sum(min(count, share + (n in richer)) for n, count in enumerate(some))
                    best = min(best, sum(held) - kept)
    return best


def test_new_tasks_are_placed_where_there_is_room() -> None:
    config = {"container__ram": 2 * GiB, "container__ram__padding": 0, "component__rammap": {"a": 900 * MiB}}
    old = pack(topology({"a": 3}, stmgrs=2, **config))
    new = repack(topology({"a": 6}, **config), old, 4)
    assert [[i.task for i in each.instances] for each in new.containers] == [[1, 3], [2, 4], [5, 6]]
    assert diff_plans(old, new) == PackingDiff((4, 5, 6), (), (), (3,), ())
    with pytest.raises(PackingError, match=r"container 1 would have 3 tasks.*topology\.container\.ram"):
        repack(topology({"a": 6}, **config), old, 4, containers=2)


def test_empty_container_is_removed_and_others_keep_their_numbers() -> None:
    old = pack(topology({"a": 1, "b": 2}, stmgrs=3))
    new = repack(topology({"a": 1, "b": 1}), old, 4)
    assert [each.container for each in new.containers] == [1, 2]
    fewer = repack(topology({"a": 1, "b": 2}), old, 4, containers=2)
    assert diff_plans(old, fewer) == PackingDiff((), (), ((3, 3, 1),), (), (3,))
    later = repack(topology({"a": 2, "b": 2}), fewer, 9, containers=4)
    assert diff_plans(fewer, later).come == (9,)
    assert diff_plans(fewer, later).new_containers == (3, 4)
