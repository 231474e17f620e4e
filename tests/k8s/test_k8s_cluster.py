"""A reliable word count on two Kubernetes nodes, through the command: placement, failures, and completeness.

The tests share one topology and run in order. Its spouts number their lines, and its sinks write every word to a file
before they ack it. At the end each word of each emitted line must be there. The output is on storage shared by all
nodes.
"""

from __future__ import annotations

import json
import time

import pytest

from tests.support.cluster_flow import ClusterFlow, word_count
from tests.support.clusters.commands import ROOT
from tests.support.clusters.kubernetes import CLUSTER, NAMESPACE, K8sCluster
from tests.support.clusters.kubernetes_nodes import K8sNodes
from tests.support.waiting import wait_until

NAME = "Flow"
LINES_PER_SECOND = 50
GIVEN_TIME = "is not heard of since Kubernetes' API server was away"  # message of the scheduler's log
VICTIM = 2  # the node that fails; the services are on the other one


class Flow(ClusterFlow):
    """Topology, its output, and the nodes of its Pods."""

    def __init__(self, cluster: K8sCluster) -> None:
        """Submit the topology and wait until data flows."""
        self.before = cluster.names()
        super().__init__(cluster, NAME, word_count({"topology.stmgrs": 3}, lines_per_second=LINES_PER_SECOND))

    def uids(self) -> dict[int, str]:
        """Return the uid of the Pod by container number."""
        return {number: pod["metadata"]["uid"] for number, pod in self.cluster.pods(NAME).items()}

    def on(self, node: int) -> list[int]:
        """Return the containers on a node."""
        return [n for n, pod in self.cluster.pods(NAME).items() if pod["spec"].get("nodeName") == f"node{node}"]

    def has_moved(self, numbers: list[int], node: int) -> bool:
        """Return True when these have Pods on other nodes."""
        pods = self.cluster.pods(NAME)
        return all(n in pods and pods[n]["spec"].get("nodeName") not in (None, f"node{node}") for n in numbers)


@pytest.fixture(scope="module")
def flow(cluster: K8sCluster) -> Flow:
    return Flow(cluster)


def test_topology_runs_on_both_nodes_and_data_flows_between_them(cluster: K8sCluster, flow: Flow) -> None:
    assert sorted(flow.uids()) == [0, 1, 2, 3]
    assert flow.on(1), "Pods of a topology avoid each other"
    assert flow.on(2)
    flow.goes_on()


def test_pod_has_no_privileges(cluster: K8sCluster, flow: Flow) -> None:
    name = cluster.pods(NAME)[1]["metadata"]["name"]

    def inside(command: str) -> str:
        return cluster.kubectl("exec", name, "--", "sh", "-c", command, check=False)

    assert inside("id -u; grep -h -E '^(CapPrm|CapBnd|NoNewPrivs)' /proc/self/status") == (
        "10001\nCapPrm:\t0000000000000000\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1"
    )
    assert inside("touch /usr/x || echo no") == "no"
    assert inside("ls /var/run/secrets/kubernetes.io || echo none") == "none", "no token of the cluster"
    assert inside("ls /var/lib/heronry/start/1").split() == ["key.pem", "launch.json", "secret", "store-credential"]


def test_objects_of_the_topology_exist_once(cluster: K8sCluster, flow: Flow) -> None:
    ours = ("--namespace", NAMESPACE, "--selector", f"org.heronry.topology={NAME}")
    kinds = [found["kind"] for found in cluster.nodes.objects("service,networkpolicy,poddisruptionbudget", *ours)]
    assert sorted(kinds) == ["NetworkPolicy", "PodDisruptionBudget", "Service"]
    (budget,) = cluster.nodes.objects("poddisruptionbudget", *ours)
    assert budget["spec"]["minAvailable"] == 3


def _comes_back(cluster: K8sCluster, flow: Flow, number: int, before: str, what: str, struck: float) -> None:
    wait_until(lambda: flow.uids().get(number, before) != before, f"container {number} has another Pod")
    flow.goes_on()
    cluster.nodes.lap(f"{what}: all acked {time.monotonic() - struck:.1f} s later")


def test_deleted_pod_is_replaced(cluster: K8sCluster, flow: Flow) -> None:
    before, struck = flow.uids()[2], time.monotonic()
    cluster.kubectl("delete", "pod", cluster.pods(NAME)[2]["metadata"]["name"], "--wait=false")
    _comes_back(cluster, flow, 2, before, "a Pod deleted", struck)


def test_killed_container_is_replaced(cluster: K8sCluster, flow: Flow) -> None:
    pod = cluster.pods(NAME)[3]
    struck = time.monotonic()
    cluster.strike(NAME, 3)
    _comes_back(cluster, flow, 3, pod["metadata"]["uid"], "a container killed", struck)
    log = cluster.kubectl("logs", "api-0", "--container", "api")
    assert f"{pod['metadata']['name']} has ended: killed by SIGKILL" in log


def test_restart_replaces_one_container(cluster: K8sCluster, flow: Flow) -> None:
    before, struck = flow.uids(), time.monotonic()
    cluster.heron("restart", CLUSTER, NAME, "1")
    after = flow.uids()
    assert {n for n in before if before[n] != after[n]} == {1}
    flow.goes_on()
    cluster.nodes.lap(f"heron restart of one container: all acked {time.monotonic() - struck:.1f} s later")


def test_restarted_api_server_adopts_containers(cluster: K8sCluster, flow: Flow) -> None:
    before = flow.uids()
    cluster.restart_api_server()
    flow.goes_on()
    assert flow.uids() == before


def test_data_flows_while_the_api_server_of_kubernetes_is_down(cluster: K8sCluster, flow: Flow) -> None:
    before, goal = flow.uids(), flow.acked() + 60 * LINES_PER_SECOND
    cluster.nodes.stop_api_server()
    wait_until(lambda: flow.acked() >= goal, "data flows without it for a minute", 600)
    cluster.nodes.start_api_server()
    wait_until(lambda: all(cluster.nodes.is_ready(n) for n in (1, 2)), "the nodes are ready")
    cluster.login()
    flow.goes_on()
    cluster.nodes.lap("Kubernetes' API server was away for a minute of data, and its nodes are ready again")
    goal = flow.acked() + 20 * LINES_PER_SECOND  # time enough for the scheduler to poll again
    wait_until(lambda: flow.acked() >= goal, "data flows on", 300)
    assert flow.uids() == before, "a kubelet that is late when Kubernetes is back has its grace"
    log = cluster.kubectl("logs", "api-0", "--container", "api")
    late = sorted(
        {line.partition(" is not heard of since")[0].split()[-1] for line in log.splitlines() if GIVEN_TIME in line}
    )
    cluster.nodes.lap(f"nodes that were unknown when it was back: {late}")


def test_restarted_kubelet_keeps_containers(cluster: K8sCluster, flow: Flow) -> None:
    before = flow.uids()
    cluster.nodes.kill_kubelet(VICTIM)
    cluster.nodes.start_kubelet(VICTIM)
    wait_until(lambda: cluster.nodes.is_ready(VICTIM), "the node is ready")
    flow.goes_on()
    assert flow.uids() == before


def test_container_without_a_suitable_node_waits_and_is_reported(cluster: K8sCluster, flow: Flow) -> None:
    file = ROOT / "examples" / "word_count.py"
    settings = ("--config-property", "topology.container.ram=1TiB", "--no-wait")
    cluster.heron("submit", CLUSTER, str(file), "WordCount", "--name", "Huge", *settings)

    def said() -> bool:
        return "Insufficient memory" in json.dumps(cluster.status("Huge"))

    wait_until(said, "heron status says what it waits for")
    cluster.heron("kill", CLUSTER, "Huge")
    assert sorted(flow.uids()) == [0, 1, 2, 3]


def test_two_concurrent_incarnations_lose_nothing(cluster: K8sCluster, flow: Flow) -> None:
    """Containers of an isolated node run elsewhere; when the node returns, the older ones end."""
    moved = flow.on(VICTIM)
    assert moved
    struck = time.monotonic()
    cluster.nodes.cut(VICTIM)
    wait_until(lambda: flow.has_moved(moved, VICTIM), "its containers have Pods elsewhere")
    flow.goes_on()
    placed = time.monotonic() - struck
    twice = len(_running(cluster.nodes, VICTIM))
    assert twice, "no two incarnations were alive at once"
    cluster.nodes.join(VICTIM)
    joined = time.monotonic()
    wait_until(lambda: cluster.nodes.is_ready(VICTIM), "the node is ready")
    wait_until(lambda: len(_running(cluster.nodes, VICTIM)) <= len(flow.on(VICTIM)), "the old ones end")
    cluster.nodes.lap(
        f"node {VICTIM} cut off with containers {moved}: elsewhere and acked after {placed:.1f} s, {twice} containers "
        f"twice; they ended {time.monotonic() - joined:.1f} s after it was back"
    )
    flow.goes_on()


def _running(nodes: K8sNodes, node: int) -> list[str]:
    """Return the topology containers that run on a node, independently of Kubernetes' state."""
    found = nodes.ctr(node, "containers", "list", "labels.io.kubernetes.container.name==heron", "--quiet").split()
    tasks = dict(line.split()[::2] for line in nodes.ctr(node, "task", "list").splitlines()[1:])
    return [container for container in found if tasks.get(container) == "RUNNING"]


def test_update_adds_a_container(cluster: K8sCluster, flow: Flow) -> None:
    struck = time.monotonic()
    cluster.heron("update", CLUSTER, NAME, "--component-parallelism", "words:4", "--container-number", "4")
    assert sorted(flow.uids()) == [0, 1, 2, 3, 4]
    flow.goes_on()
    cluster.nodes.lap(f"heron update to four containers: all acked {time.monotonic() - struck:.1f} s later")
    ours = ("--namespace", NAMESPACE, "--selector", f"org.heronry.topology={NAME}")
    assert cluster.nodes.objects("poddisruptionbudget", *ours)[0]["spec"]["minAvailable"] == 4


def test_every_word_is_present_and_nothing_is_left_at_the_end(cluster: K8sCluster, flow: Flow) -> None:
    flow.ends()
    assert cluster.names() == flow.before, "nothing is left in the namespace, labelled or not"
