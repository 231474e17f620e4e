"""Placement of a topology's masters on separate nodes: requests to Docker, a swarm, Kubernetes and Slurm.

The placement rules of Kubernetes and a swarm are modelled here: a Pod fits a node unless its own required terms, or
those of a Pod on that node, name one of the other's labels; a task fits unless a constraint excludes the node.
"""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heron_control.schedulers import container_spec, kubernetes_objects, slurm_plan, swarm_objects
from heron_control.schedulers.container_spec import ContainerSpec
from heron_control.schedulers.swarm_objects import SwarmNode, Task
from heron_runtime.model.ids import FIRST_STANDBY, MASTER_CONTAINER
from heron_runtime.model.plan import Resources
from heron_runtime.model.settings import MiB
from tests.unit.schedulers.test_container_spec import spec
from tests.unit.schedulers.test_docker_scheduler import World
from tests.unit.schedulers.test_kubernetes_objects import FILES, PLACING, VERSIONS

MASTERS = (MASTER_CONTAINER, FIRST_STANDBY, FIRST_STANDBY + 1)
STATES = ("ready", "down", "unknown")
SWARM_NODES = st.dictionaries(
    st.sampled_from("abcd"),
    st.builds(
        SwarmNode, st.just("n"), st.sampled_from(STATES), st.just(2.0), st.booleans(),
        st.fixed_dictionaries({"node.labels.disk": st.sampled_from(("ssd", "SSD", "hdd"))}),
    ),
    min_size=1,
)  # fmt: skip
ONE = SwarmNode("n", "ready", 2.0)
CONSTRAINTS = st.sampled_from(([], ["node.labels.disk==ssd"], ["node.labels.disk != ssd"], ["node.labels.none==x"]))


def master(number: int, masters: int) -> ContainerSpec:
    return spec(number, Resources(1.0, 512 * MiB), spread=masters)


def pod(number: int, masters: int, takers: int) -> dict[str, Any]:
    return kubernetes_objects.pod_of(master(number, masters), sorted(FILES), PLACING, takers)


# Kubernetes.


def keeps_away(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether a required term of ``one`` names ``other``."""
    rules = one["spec"]["affinity"]["podAntiAffinity"]
    for term in rules.get("requiredDuringSchedulingIgnoredDuringExecution", ()):
        assert term["topologyKey"] == "kubernetes.io/hostname"
        assert term["labelSelector"].keys() == {"matchLabels"}
        if term["labelSelector"]["matchLabels"].items() <= other["metadata"]["labels"].items():
            return True
    return False


def may_be_together(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return not (keeps_away(one, other) or keeps_away(other, one))


def test_masters_are_on_separate_kubernetes_nodes_if_there_are_enough() -> None:
    for masters, nodes in product((2, 3), range(5)):
        made = [pod(number, masters, nodes) for number in MASTERS[:masters]]
        for one, other in combinations(made, 2):
            assert may_be_together(one, other) == (nodes < masters)


def test_master_that_lost_its_node_may_join_the_remaining_one() -> None:
    """Kubernetes also respects the terms of the standby, which was created when there were two nodes."""
    standby, again = pod(FIRST_STANDBY, 2, 2), pod(MASTER_CONTAINER, 2, 1)
    assert may_be_together(standby, again)
    preferred = again["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    wanted = [term["podAffinityTerm"]["labelSelector"].get("matchExpressions") for term in preferred]
    masters = {"key": container_spec.CONTAINER_LABEL, "operator": "In", "values": [str(n) for n in MASTERS]}
    assert [masters] in wanted, "but would rather not"


def test_tasks_and_single_masters_may_use_every_node() -> None:
    for nodes in range(4):
        alone, tasks = pod(MASTER_CONTAINER, 0, nodes), pod(3, 0, nodes)
        assert may_be_together(alone, alone)
        for master in (pod(MASTER_CONTAINER, 2, nodes), alone):
            assert may_be_together(tasks, master)


@pytest.mark.parametrize("version", VERSIONS)
def test_pods_and_records_of_masters_are_valid(version: str) -> None:
    for number, takers in product(MASTERS, (1, 3)):
        record = kubernetes_objects.record_of(master(number, 3), FILES, PLACING, takers)
        for made in (record, kubernetes_objects.pod_in(record)):
            assert kubernetes_validate.validate(made, version, strict=True) == version


def _k8s_node(*taints: str, ready: str = "True", cordoned: bool = False, disk: str = "ssd") -> dict[str, Any]:
    spec = {"unschedulable": True} if cordoned else {}
    return {
        "metadata": {"labels": {"disk": disk}},
        "spec": {**spec, "taints": [{"key": "x", "effect": effect} for effect in taints]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def test_node_counts_if_a_pod_may_be_scheduled_there() -> None:
    taken = [_k8s_node(), _k8s_node("PreferNoSchedule")]
    others = [_k8s_node("NoSchedule"), _k8s_node("NoExecute"), _k8s_node(cordoned=True), _k8s_node(ready="Unknown")]
    nodes = {
        str(n): kubernetes_objects.node_of(found) for n, found in enumerate([*taken, *others, _k8s_node(disk="hdd")])
    }
    assert kubernetes_objects.takers(nodes, {"disk": "ssd"}) == 2
    assert kubernetes_objects.takers(nodes, {}) == 3
    assert kubernetes_objects.takers(None, {}) == 0, "who may not look at nodes asks for nothing strict"


# A swarm.


def goes_to(node: str, found: SwarmNode, constraints: list[str]) -> bool:
    """Return whether a swarm would place a task there."""
    for constraint in constraints:
        key, _, value = (part.strip() for part in constraint.replace("!=", "==").partition("=="))
        has = node if key == "node.id" else found.known_by.get(key, "")
        if (has.lower() == value.lower()) == ("!=" in constraint):
            return False
    return found.state == "ready" and found.active


@given(SWARM_NODES, st.frozensets(st.sampled_from("abcdx")), CONSTRAINTS)
@example({"a": ONE, "b": ONE._replace(active=False)}, frozenset("a"), [])
@example({"a": ONE, "b": ONE}, frozenset("a"), [])
def test_masters_share_a_swarm_node_only_if_no_other_fits(
    nodes: dict[str, SwarmNode], taken: frozenset[str], given_: list[str]
) -> None:
    before = {key for key, node in nodes.items() if goes_to(key, node, given_)}
    more = swarm_objects.apart_from(taken, nodes, given_)
    after = {key for key, node in nodes.items() if goes_to(key, node, [*given_, *more])}
    assert after == (before - taken or before)


def test_place_of_a_master_counts_while_it_may_run_there() -> None:
    nodes = {"n1": SwarmNode("one", "ready", 2.0), "n2": SwarmNode("two", "down", 2.0)}
    for tasks, place in (
        ([], ("", True)),
        ([Task("running", "n1")], ("n1", False)),
        ([Task("preparing", "n1")], ("n1", False)),
        ([Task("running", "n2")], ("", False)),
        ([Task("failed", "n1")], ("", False)),
        ([Task("new")], ("", True)),
        ([Task("pending", "", "no suitable node")], ("", False)),
    ):
        assert swarm_objects.place_of(tasks, nodes) == place, tasks


# Slurm.


@given(st.integers(1, 3), st.sets(st.sampled_from("abcde"), min_size=1))
def test_masters_share_a_slurm_node_only_if_there_are_fewer_nodes(masters: int, nodes: set[str]) -> None:
    places = [nodes - set(slurm_plan.elsewhere(number, masters, nodes)) for number in MASTERS[:masters]]
    assert all(places), "each has a node"
    shared = [one & other for one, other in combinations(places, 2)]
    assert any(shared) == (len(nodes) < masters)
    assert slurm_plan.elsewhere(3, masters, nodes) == [], "tasks go anywhere"


def test_slurm_excludes_exactly_the_given_nodes() -> None:
    need = slurm_plan.SlurmResources(1, 256)
    assert "--exclude=n1,n2" in slurm_plan.step_arguments(0, need, ["x"], ["n1", "n2"])
    assert not [word for word in slurm_plan.step_arguments(0, need, ["x"]) if "exclude" in word]


# A single Docker engine.


def test_docker_runs_restarts_and_removes_a_standby(tmp_path: Path) -> None:
    world = World(tmp_path)
    launch = world.submit(config={"topology.master.replicas": 2})
    world.scheduler.start(launch, world.place("words") / "launch.json")
    world.observe_until(lambda: set(world.states(launch).values()) == {"running"} and len(world.states(launch)) == 3)
    assert set(world.states(launch)) == {0, 1, FIRST_STANDBY}
    hosts = {n: container_spec.container_host("heronry", launch, n) for n in world.states(launch)}
    labels = {n: world.machine.find(host).labels.get(container_spec.APART_LABEL) for n, host in hosts.items()}
    assert labels == {0: "2", 1: None, FIRST_STANDBY: "2"}
    assert world.scheduler.restart(launch, FIRST_STANDBY, 30.0) == (FIRST_STANDBY,)
    world.scheduler.kill(launch)
    world.scheduler.remove(launch)
    assert world.states(launch) == {}
    world.scheduler.close()
    world.store.close()
