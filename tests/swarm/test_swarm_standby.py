"""Two masters of a topology on a swarm of three nodes: never on one node, and one of them leads after any failure.

Data flows while the leader's node dies, and while it is stopped and resumed; at the end each word is there.
"""

from __future__ import annotations

import functools
import time

import pytest

from tests.support import master_logs
from tests.support.cluster_flow import ClusterFlow, word_count
from tests.support.clusters.swarm import CLUSTER, SwarmCluster
from tests.support.master_logs import MASTERS
from tests.support.waiting import wait_until

NAME = "Standby"
MANAGER = 1


@pytest.fixture(scope="module")
def flow(cluster: SwarmCluster) -> ClusterFlow:
    return ClusterFlow(cluster, NAME, word_count({"topology.stmgrs": 2, "topology.master.replicas": 2}))


def _leader(cluster: SwarmCluster) -> tuple[int, int]:
    """Return epoch and container of the leader."""
    log = functools.partial(cluster.say, "logs", CLUSTER, NAME, "-n", "10000")
    found: tuple[int, int] = wait_until(lambda: master_logs.leader(log), "somebody leads")
    return found


def _apart(cluster: SwarmCluster, but: int = 0) -> dict[int, int] | None:
    """Return the node of each master by container, if both run, on two nodes, and none on node ``but``."""
    shown = cluster.places(NAME)
    places = {number: int(shown[number].rsplit("-", 1)[1]) for number in MASTERS if number in shown}
    return places if len(set(places.values())) == 2 and but not in places.values() else None


def _leader_on_a_worker(cluster: SwarmCluster, flow: ClusterFlow) -> tuple[int, int, int]:
    """Return epoch, container and node of a leader off the manager, which runs the API server and ZooKeeper."""
    for _ in range(3):
        epoch, number = _leader(cluster)
        node = wait_until(lambda: _apart(cluster), "both masters run")[number]
        if node != MANAGER:
            return epoch, number, node
        cluster.heron("restart", CLUSTER, NAME, str(number))
        wait_until(lambda before=epoch: _leader(cluster)[0] > before, "the standby leads")
        flow.goes_on()
    raise AssertionError("the one that stands by is elsewhere, so it leads there")


def _strike(cluster: SwarmCluster, flow: ClusterFlow, node: int, number: int, epoch: int) -> str:
    """Check the outcome after a node has failed; return a summary with times."""
    struck = time.monotonic()
    cluster.nodes.is_now(node, "down")
    down = time.monotonic() - struck
    (standby,) = set(MASTERS) - {number}
    wait_until(lambda: (found := _leader(cluster))[0] > epoch and found[1] == standby, "the standby leads")
    leads = time.monotonic() - struck
    wait_until(lambda: _apart(cluster, but=node), "both masters run on the other two nodes")
    elsewhere = time.monotonic() - struck
    flow.goes_on()
    return (
        f"with the leader, {number}: down after {down:.1f} s, the standby leads (seen) after {leads:.1f}, two masters "
        f"on two nodes after {elsewhere:.1f}, all acked after {time.monotonic() - struck:.1f}"
    )


def test_masters_are_on_two_nodes_and_shown(cluster: SwarmCluster, flow: ClusterFlow) -> None:
    assert set(cluster.places(NAME)) == {0, 1, 2, 100_001}
    assert _apart(cluster)
    names = {process["name"] for process in cluster.status(NAME)["processes"]}
    assert {"heron_container-100001", "topology_master-100001", "metrics_manager-100001"} <= names
    flow.goes_on()


def test_standby_leads_when_the_leaders_node_dies(cluster: SwarmCluster, flow: ClusterFlow) -> None:
    epoch, number, node = _leader_on_a_worker(cluster, flow)
    cluster.nodes.kill(node)
    cluster.nodes.lap(f"node {node} killed {_strike(cluster, flow, node, number, epoch)}")
    cluster.nodes.start(node)
    cluster.nodes.is_now(node, "ready")
    flow.goes_on()


def test_standby_leads_when_the_leaders_node_is_stopped_and_resumed(cluster: SwarmCluster, flow: ClusterFlow) -> None:
    """The resumed master believes that it leads, beside its replacement and the new leader."""
    epoch, number, node = _leader_on_a_worker(cluster, flow)
    cluster.nodes.pause(node)
    cluster.nodes.lap(f"node {node} paused {_strike(cluster, flow, node, number, epoch)}")
    cluster.nodes.resume(node)
    ours = ("ps", "--quiet", "--filter", f"label=org.heronry.topology={NAME}")
    old = ("--filter", f"label=org.heronry.container={number}")
    assert cluster.nodes.engine(node, *ours, *old), "no two incarnations were alive at once"
    wait_until(lambda: not cluster.nodes.engine(node, *ours, *old), "the old one ends")
    epoch = _leader(cluster)[0]
    flow.goes_on()
    assert _leader(cluster)[0] == epoch, "nobody else leads when it has gone on"
    assert _apart(cluster)


def test_masters_share_a_node_only_if_no_other_is_available(cluster: SwarmCluster, flow: ClusterFlow) -> None:
    """With the workers drained both masters are on the manager; once they return, a restart separates the masters."""
    workers = [cluster.nodes.node(number) for number in (2, 3)]
    for worker in workers:
        cluster.nodes.engine(MANAGER, "node", "update", "--availability", "drain", worker)
    manager = cluster.nodes.node(MANAGER)
    wait_until(lambda: [cluster.places(NAME).get(n) for n in MASTERS] == [manager] * 2, "both are on the manager")
    flow.goes_on()
    for worker in workers:
        cluster.nodes.engine(MANAGER, "node", "update", "--availability", "active", worker)
    cluster.heron("restart", CLUSTER, NAME, "100001")
    wait_until(lambda: _apart(cluster), "they are on two nodes again")
    flow.goes_on()


def test_every_word_is_present_and_nothing_is_left_at_the_end(cluster: SwarmCluster, flow: ClusterFlow) -> None:
    flow.ends()
