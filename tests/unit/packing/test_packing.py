"""Packing algorithms: properties, comparison with brute force, and error messages."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from heron_control.packing import PackingError, algorithms, describe, pack
from heron_control.packing.demand import Demand, demand_of, part
from heron_runtime.extensions import PACKING
from heron_runtime.model.plan import InstancePlan, PackingPlan, Resources
from heron_runtime.model.settings import GiB, MiB
from heron_runtime.model.topology import ComponentKind, ComponentSpec, TopologyDefinition
from heron_runtime.wire.message_codecs import PACKING_PLAN
from tests.support.distributions import write_distribution

BOTH = sorted(PACKING.built_in)


def topology(sizes: dict[str, int], **config: Any) -> TopologyDefinition:
    """Build a topology of components by name and parallelism; '__' in config keys stands for a dot."""
    components = tuple(
        ComponentSpec(name, ComponentKind.SPOUT if index == 0 else ComponentKind.BOLT, f"m:{name}", par)
        for index, (name, par) in enumerate(sizes.items())
    )
    return TopologyDefinition(
        "T", "T-1", components, {f"topology.{key.replace('__', '.')}": value for key, value in config.items()}
    )


@st.composite
def topologies(draw: st.DrawFn, algorithm: str | None = None) -> TopologyDefinition:
    sizes = draw(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 12), min_size=1))
    config: dict[str, Any] = {"packing": algorithm or draw(st.sampled_from(BOTH))}
    some = st.sampled_from(sorted(sizes))
    config["component__rammap"] = draw(st.dictionaries(some, st.integers(1, 4 * GiB), max_size=3))
    config["component__cpumap"] = draw(st.dictionaries(some, st.floats(0, 4), max_size=3))
    optional = {
        "stmgrs": st.integers(1, 20),
        "container__ram": st.integers(512 * MiB, 16 * GiB),
        "container__max__ram__hint": st.integers(512 * MiB, 16 * GiB),
        "container__cpu": st.floats(0.5, 16),
        "container__max__instances": st.integers(1, 10),
        "container__padding__percentage": st.integers(0, 100),
        "container__ram__padding": st.integers(0, 2 * GiB),
        "container__cpu__padding": st.floats(0, 2),
    }
    for key in draw(st.sets(st.sampled_from(sorted(optional)), max_size=4)):
        config[key] = draw(optional[key])
    return topology(sizes, **config)


def packed(definition: TopologyDefinition) -> PackingPlan:
    try:
        return pack(definition)
    except PackingError:
        assume(False)
        raise


@given(topologies())
def test_every_task_is_packed_once_with_ids_in_definition_order(definition: TopologyDefinition) -> None:
    plan = packed(definition)
    wanted = [(spec.name, index) for spec in definition.components for index in range(spec.parallelism)]
    instances = plan.instances()
    assert [(i.component, i.component_index) for i in instances] == wanted
    assert [i.task for i in instances] == list(range(1, len(wanted) + 1))
    assert [c.container for c in plan.containers] == list(range(1, len(plan.containers) + 1))
    for container in plan.containers:
        assert container.instances == tuple(sorted(container.instances, key=lambda i: i.task))
        assert container.instances


@given(topologies())
def test_containers_stay_within_their_limits(definition: TopologyDefinition) -> None:
    plan = packed(definition)
    config = definition.config
    percent = config.get("topology.container.padding.percentage", 10)
    for container in plan.containers:
        ram = sum(i.resources.ram_bytes for i in container.instances)
        ram += max(ram * percent // 100, config.get("topology.container.ram.padding", 0))
        cpu = math.fsum(i.resources.cpu for i in container.instances)
        cpu += max(cpu * percent / 100, config.get("topology.container.cpu.padding", 0))
        assert cpu - 1e-5 <= container.resources.cpu
        assert ram <= container.resources.ram_bytes
        for key in ("topology.container.ram", "topology.container.max.ram.hint"):
            assert container.resources.ram_bytes <= config.get(key, math.inf)
        assert container.resources.cpu <= config.get("topology.container.cpu", math.inf)
        assert len(container.instances) <= config.get("topology.container.max.instances", math.inf)


@given(topologies(algorithm="round_robin"))
def test_round_robin_is_balanced_with_the_requested_containers(definition: TopologyDefinition) -> None:
    plan = packed(definition)
    counts = [len(container.instances) for container in plan.containers]
    assert max(counts) - min(counts) <= 1
    assert len({container.resources for container in plan.containers}) == 1
    wanted = definition.config.get("topology.stmgrs")
    if wanted is not None:
        assert len(plan.containers) == min(wanted, len(plan.instances()))


@given(topologies())
def test_packing_is_deterministic(definition: TopologyDefinition) -> None:
    assert PACKING_PLAN.encode(packed(definition)) == PACKING_PLAN.encode(packed(definition))


@given(topologies())
def test_packing_error_names_the_limiting_setting(definition: TopologyDefinition) -> None:
    try:
        pack(definition)
    except PackingError as error:
        message = str(error)
    else:
        return
    assert "topology.container." in message
    assert "set topology.stmgrs to" in message or any(f"{spec.name!r}" in message for spec in definition.components)


def fewest_bins(weights: list[int], capacity: int, most: int) -> int:
    """Return the minimum, by trying every assignment."""
    for count in range(1, len(weights) + 1):
        for places in itertools.product(range(count), repeat=len(weights)):
            loads = [[w for w, place in zip(weights, places, strict=True) if place == bin_] for bin_ in range(count)]
            if all(sum(load) <= capacity and len(load) <= most for load in loads):
                return count
    return len(weights)


@given(st.lists(st.integers(1, 10), min_size=1, max_size=6), st.integers(10, 20))
def test_first_fit_decreasing_is_near_the_optimum(weights: list[int], capacity: int) -> None:
    names = {f"c{index}": 1 for index in range(len(weights))}
    plan = pack(
        topology(
            names,
            packing="first_fit_decreasing",
            component__rammap={name: w * 100 * MiB for name, w in zip(names, weights, strict=True)},
            container__max__ram__hint=capacity * 100 * MiB,
            container__padding__percentage=0,
        )
    )
    best = fewest_bins(weights, capacity, len(weights))
    assert best <= len(plan.containers) <= 11 / 9 * best + 6 / 9


@given(st.lists(st.integers(1, 10), min_size=1, max_size=8), st.integers(10, 30))
def test_round_robin_uses_the_fewest_containers(weights: list[int], capacity: int) -> None:
    names = {f"c{index}": 1 for index in range(len(weights))}
    plan = pack(
        topology(
            names,
            component__rammap={name: w * 100 * MiB for name, w in zip(names, weights, strict=True)},
            container__max__ram__hint=capacity * 100 * MiB,
            container__padding__percentage=0,
        )
    )
    fits = [
        count
        for count in range(1, len(weights) + 1)
        if all(sum(weights[first::count]) <= capacity for first in range(count))
    ]
    assert len(plan.containers) == fits[0]


def test_default_resources_are_applied() -> None:
    plan = pack(topology({"words": 2, "count": 2}))
    (container,) = plan.containers
    assert [i.resources for i in container.instances] == [Resources(0.5, 256 * MiB, 0)] * 4
    assert container.resources == Resources(2.2, 4 * 256 * MiB * 110 // 100, 0)


def test_round_robin_deals_tasks_in_turn() -> None:
    plan = pack(topology({"words": 2, "count": 3}, stmgrs=2))
    assert [[i.task for i in c.instances] for c in plan.containers] == [[1, 3, 5], [2, 4]]


def test_first_fit_decreasing_without_limits_packs_ten_per_container() -> None:
    plan = pack(topology({"words": 21}, packing="first_fit_decreasing", stmgrs=9))
    assert [len(c.instances) for c in plan.containers] == [10, 10, 1]


def test_configured_container_size_is_used() -> None:
    for algorithm in BOTH:
        plan = pack(topology({"w": 3}, packing=algorithm, container__ram=2 * GiB, container__cpu=4.0))
        assert {c.resources for c in plan.containers} == {Resources(4.0, 2 * GiB, 0)}


def test_oversized_task_names_component_and_remedy() -> None:
    definition = topology({"w": 1, "big": 1}, component__rammap={"big": 3 * GiB}, container__max__ram__hint=2 * GiB)
    with pytest.raises(PackingError) as caught:
        pack(definition)
    assert str(caught.value) == (
        "topology 'T': one task of 'big' needs 3 GiB of memory, 3.3 GiB of memory with the container's padding, but a "
        "container has at most 2 GiB of memory (topology.container.max.ram.hint); raise that, or lower 'big' in "
        "topology.component.rammap"
    )


def test_too_few_containers_error_names_a_sufficient_number() -> None:
    with pytest.raises(PackingError, match=r"puts 5 into one.*at most 2.*set topology.stmgrs to 5"):
        pack(topology({"w": 10}, stmgrs=2, container__max__instances=2))
    with pytest.raises(PackingError, match=r"tasks of 'big'.*topology.container.ram.*set topology.stmgrs to 4"):
        pack(topology({"w": 1, "big": 4}, stmgrs=1, component__rammap={"big": GiB}, container__ram=2 * GiB))


def test_missing_tasks_and_unknown_algorithm_are_rejected() -> None:
    with pytest.raises(PackingError, match="no tasks"):
        pack(topology({}))
    with pytest.raises(PackingError, match="'first_fit_decreasing', 'round_robin'"):
        pack(topology({"w": 1}, packing="best"))


OWN = """
from dataclasses import replace
from heron_control.packing.algorithms import pack_round_robin

def lossless(definition):
    return pack_round_robin(definition)

def forgets(definition):
    plan = pack_round_robin(definition)
    return replace(plan, containers=plan.containers[:-1])

def skips(definition):
    plan = pack_round_robin(definition)
    return replace(plan, containers=tuple(replace(c, container=c.container + 1) for c in plan.containers))
"""


def test_plugin_algorithm_is_used_and_validated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("lossless", "forgets", "skips")
    offers = {"heronry.packing": {name: f"packing_of_mine:{name}" for name in names}}
    monkeypatch.syspath_prepend(write_distribution(tmp_path, "mine", offers, {"packing_of_mine": OWN}))
    sizes = {"w": 2, "c": 3}
    assert pack(topology(sizes, packing="lossless", stmgrs=2)) == pack(topology(sizes, stmgrs=2))
    with pytest.raises(PackingError, match="'forgets' must pack each task once"):
        pack(topology(sizes, packing="forgets", stmgrs=2))
    with pytest.raises(PackingError, match="'skips' must number the containers from 1"):
        pack(topology(sizes, packing="skips", stmgrs=2))


def test_thousands_of_tasks_are_packed() -> None:
    sizes = {"a": 3000, "b": 5000}
    for algorithm in BOTH:
        plan = pack(topology(sizes, packing=algorithm, container__max__instances=7))
        assert len(plan.containers) == math.ceil(8000 / 7)


def test_description_is_plain_data() -> None:
    plan = pack(topology({"words": 1, "count": 2}, stmgrs=2))
    rows = json.loads(json.dumps(describe(plan, {})))
    assert (rows["tasks"], rows["components"]) == (3, {"words": 1, "count": 2})
    assert rows["total"]["ram_bytes"] == sum(c["ram_bytes"] for c in rows["containers"])
    assert [i["task"] for c in rows["containers"] for i in c["instances"]] == [1, 3, 2]
    assert "standbys" not in rows
    standbys = describe(plan, {"topology.master.replicas": 3})["standbys"]
    needs = {"cpu": 0.5, "ram_bytes": 256 * MiB, "disk_bytes": 0}
    assert standbys == [{"container": number, **needs} for number in (100_001, 100_002)]


def test_thousands_of_tasks_need_few_full_deals(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no number of containers suffices, only few of the 4096 are dealt task by task."""
    dealt: list[int] = []
    deal = algorithms._deal

    def counted(demand: Demand, containers: int) -> list[tuple[InstancePlan, ...]]:
        dealt.append(containers)
        return deal(demand, containers)

    monkeypatch.setattr(algorithms, "_deal", counted)
    config = {"packing": "round_robin", "container__ram": GiB, "container__ram__padding": 0}
    config |= {"container__padding__percentage": 0, "component__rammap": {"a": 60 * MiB, "b": 1000 * MiB}}
    with pytest.raises(PackingError, match="GiB of memory"):
        pack(topology({"a": 9_999, "b": 1}, **config))
    assert len(dealt) < 10
    dealt.clear()
    assert len(pack(topology({"a": 9_999, "b": 1}, **{**config, "container__ram": 2 * GiB})).containers) > 290
    assert len(dealt) < 10


@given(topologies("round_robin"))
def test_quick_estimate_equals_the_full_deal(definition: TopologyDefinition) -> None:
    try:
        demand = demand_of(definition)
    except PackingError:
        assume(False)
    runs = [list(same) for _, same in itertools.groupby(demand.instances, key=lambda each: each.component)]
    alike = [(len(run), run[0].resources) for run in runs]
    for containers in range(1, len(demand.instances) + 1):
        dealt = algorithms._deal(demand, containers)
        for resource in ("cpu", "ram", "disk"):
            most = max(sum(part(each.resources, resource) for each in group) for group in dealt)
            assert algorithms._largest_need(alike, containers, resource) == pytest.approx(most)
