"""Containers of a topology and their processes, for any packing plan and number of masters."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model import containers
from heron_runtime.model.ids import FIRST_STANDBY, MAX_TASK, holds_master
from heron_runtime.model.plan import ContainerPlan, InstancePlan, PackingPlan

REPLICAS = st.integers(1, 3)
NUMBERS = st.lists(st.integers(1, MAX_TASK), min_size=1, max_size=6, unique=True)


def packing(numbers: list[int]) -> PackingPlan:
    """Return a plan with two tasks in each of these containers."""
    tasks = {number: (2 * rank + 1, 2 * rank + 2) for rank, number in enumerate(numbers)}
    plans = (ContainerPlan(n, tuple(InstancePlan(t, "bolt", t - 1) for t in tasks[n])) for n in numbers)
    return PackingPlan("t", tuple(plans))


def config(replicas: int) -> dict[str, Any]:
    return {"topology.master.replicas": replicas}


@given(NUMBERS, REPLICAS)
def test_every_master_has_its_own_container(numbers: list[int], replicas: int) -> None:
    plan = packing(numbers)
    found = containers.containers_of(plan, config(replicas))
    assert len(found) == len(set(found)) == len(numbers) + replicas
    masters = [
        n for n in found if any(p.kind == "topology_master" for p in containers.processes_in(n, plan, config(replicas)))
    ]
    assert masters == [n for n in found if holds_master(n)] == list(found[:replicas])
    assert found[0] == 0
    assert not set(masters) & set(numbers), "no packing plan has their numbers"
    assert max(found) <= max(containers.LAST_STANDBY, *numbers)


@given(NUMBERS, REPLICAS)
def test_each_container_has_its_processes_once(numbers: list[int], replicas: int) -> None:
    plan = packing(numbers)
    names: list[str] = []
    tasks: list[int] = []
    for number in containers.containers_of(plan, config(replicas)):
        here = containers.processes_in(number, plan, config(replicas))
        first = "topology_master" if holds_master(number) else "stream_manager"
        assert [p.kind for p in here if not p.task] == [first, "metrics_manager"]
        tasks += [p.task for p in here if p.task]
        names += [p.name for p in here]
    assert sorted(tasks) == [instance.task for instance in plan.instances()]
    assert len(names) == len(set(names)), "logs and titles tell them apart"


@given(NUMBERS, REPLICAS, st.integers(0, FIRST_STANDBY + 9))
def test_unknown_container_is_rejected(numbers: list[int], replicas: int, other: int) -> None:
    plan = packing(numbers)
    if other not in containers.containers_of(plan, config(replicas)):
        with pytest.raises(KeyError):
            containers.processes_in(other, plan, config(replicas))


@given(NUMBERS)
def test_default_containers_are_container_0_and_those_of_the_plan(numbers: list[int]) -> None:
    assert containers.containers_of(packing(numbers), {}) == (0, *numbers)
    assert containers.standbys_of({}) == ()


def test_standby_is_labelled() -> None:
    assert [containers.label_of(number) for number in (0, 7, FIRST_STANDBY)] == ["0", "7", "100001 (standby)"]
    assert containers.listed((0, FIRST_STANDBY, 1, 2)) == "0, 1, 2, 100001"
