"""Two masters of a topology on two Kubernetes nodes: one per node, and one of them leads after any failure.

Data flows while the leader's node is isolated, and while it is drained; at the end each word is there.
"""

from __future__ import annotations

import functools
import time

import pytest

from heron_control.schedulers.container_spec import APART_LABEL
from tests.support import master_logs
from tests.support.cluster_flow import ClusterFlow, word_count
from tests.support.clusters.kubernetes import CLUSTER, NAMESPACE, K8sCluster
from tests.support.master_logs import MASTERS
from tests.support.waiting import wait_until

NAME = "Standby"
GIVEN = word_count({"topology.stmgrs": 2, "topology.master.replicas": 2}, 1, 50, 0.05)
VICTIM, OTHER = 2, 1  # the services are on the other one
EMPTY = ("--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=300s")


class Flow(ClusterFlow):
    """Topology, and the nodes of its masters."""

    def places(self) -> dict[int, int]:
        """Return the node of each running master, by container."""
        pods = {number: pod for number, pod in self.cluster.pods(NAME).items() if number in MASTERS}
        running = {number: pod for number, pod in pods.items() if pod["status"].get("phase") == "Running"}
        return {number: int(pod["spec"]["nodeName"].removeprefix("node")) for number, pod in running.items()}

    def apart(self) -> bool:
        """Return True if both masters run, on two nodes."""
        return len(set(self.places().values())) == 2

    def leader(self) -> tuple[int, int]:
        """Return epoch and container of the leader."""
        log = functools.partial(self.cluster.say, "logs", CLUSTER, NAME, "-n", "10000")
        found: tuple[int, int] = wait_until(lambda: master_logs.leader(log), "somebody leads")
        return found

    def lead_on_the_victim(self) -> tuple[int, int]:
        """Make the master on the victim node lead; return its epoch and container."""
        epoch, number = self.leader()
        wait_until(self.apart, "both masters run, on two nodes")
        if self.places()[number] != VICTIM:
            self.cluster.heron("restart", CLUSTER, NAME, str(number))
            wait_until(lambda: self.leader()[0] > epoch, "the standby leads")
            self.goes_on()
            epoch, number = self.leader()
        assert self.places()[number] == VICTIM
        return epoch, number

    def standby_leads_beside_its_fellow(self, epoch: int, number: int) -> None:
        """Wait until the other master leads, and both are on the only node left."""
        wait_until(lambda: (now := self.leader())[0] > epoch and now[1] != number, "the standby leads")
        wait_until(lambda: self.places() == dict.fromkeys(MASTERS, OTHER), "both masters run on the other node")
        (pod,) = (pod for n, pod in self.cluster.pods(NAME).items() if n == number)
        assert APART_LABEL not in pod["metadata"]["labels"], "it asks for no node of its own where there is none"
        self.goes_on()

    def part(self, number: int) -> None:
        """Restart a master so that it gets its own node again, with both nodes available."""
        self.cluster.heron("restart", CLUSTER, NAME, str(number))
        wait_until(self.apart, "both masters run, on two nodes")
        self.goes_on()


@pytest.fixture(scope="module")
def flow(cluster: K8sCluster) -> Flow:
    return Flow(cluster, NAME, GIVEN)


def test_each_master_has_its_own_node(cluster: K8sCluster, flow: Flow) -> None:
    assert sorted(cluster.pods(NAME)) == [0, 1, 2, 100_001]
    assert flow.apart()
    names = {process["name"] for process in cluster.status(NAME)["processes"]}
    assert {"heron_container-100001", "topology_master-100001", "metrics_manager-100001"} <= names
    ours = ("--namespace", NAMESPACE, "--selector", f"org.heronry.topology={NAME}")
    (budget,) = cluster.nodes.objects("poddisruptionbudget", *ours)
    assert budget["spec"]["minAvailable"] == 3, "the standby's Pod is one of those that are expected"


def test_standby_leads_when_the_leaders_node_is_isolated(cluster: K8sCluster, flow: Flow) -> None:
    epoch, number = flow.lead_on_the_victim()
    struck = time.monotonic()
    cluster.nodes.cut(VICTIM)
    flow.standby_leads_beside_its_fellow(epoch, number)
    cluster.nodes.lap(f"the leader's node was cut off: all acked {time.monotonic() - struck:.1f} s later")
    cluster.nodes.join(VICTIM)
    wait_until(lambda: cluster.nodes.is_ready(VICTIM), "the node is ready")
    flow.part(number)


def test_standby_leads_when_the_leaders_node_is_drained(cluster: K8sCluster, flow: Flow) -> None:
    epoch, number = flow.lead_on_the_victim()
    struck = time.monotonic()
    cluster.nodes.kubectl("drain", f"node{VICTIM}", *EMPTY)
    flow.standby_leads_beside_its_fellow(epoch, number)
    cluster.nodes.lap(f"the leader's node was drained: all acked {time.monotonic() - struck:.1f} s later")
    cluster.nodes.kubectl("uncordon", f"node{VICTIM}")
    flow.part(number)


def test_every_word_is_present_and_nothing_is_left_at_the_end(cluster: K8sCluster, flow: Flow) -> None:
    flow.ends()
