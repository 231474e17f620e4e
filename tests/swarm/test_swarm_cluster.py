"""A reliable word count on a swarm of three nodes, through the command: placement, failures, and completeness.

The tests share one topology and run in order. Its spouts number their lines, and its sinks write every word to a file
before they ack it. At the end each word of each emitted line must be there. The output is on storage shared by all
nodes.
"""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest

from heron_control.schedulers.container_spec import SHARED_PATH
from tests.support.cluster_flow import ClusterFlow, word_count
from tests.support.clusters.commands import ROOT
from tests.support.clusters.swarm import CLUSTER, SwarmCluster
from tests.support.waiting import wait_until

NAME = "Flow"
NUMBERS, SPLITS, KEYS = 1000, 4, 50
TOTAL = SPLITS * NUMBERS
TRUTH = Counter({(key, count): 1 for key in range(KEYS) for count in range(1, TOTAL // KEYS + 1)})


@pytest.fixture(scope="module")
def flow(cluster: SwarmCluster) -> ClusterFlow:
    return ClusterFlow(cluster, NAME, word_count({"topology.stmgrs": 3}))


def test_topology_runs_on_several_nodes_and_data_flows_between_them(cluster: SwarmCluster, flow: ClusterFlow) -> None:
    places = cluster.places(NAME)
    assert set(places) == {0, 1, 2, 3}
    assert len(set(places.values())) >= 2, "a swarm spreads what it has to place"
    flow.goes_on()  # tuples of the only spout go to words and sinks of every container
    processes = cluster.status(NAME)["processes"]
    spout = next(p["container"] for p in processes if p["component"] == "lines")
    bolts = {p["container"] for p in processes if p["component"] in ("words", "sink")}
    assert any(places[bolt] != places[spout] for bolt in bolts), "data crosses nodes"


def test_container_has_the_same_restrictions_as_on_one_engine(cluster: SwarmCluster, flow: ClusterFlow) -> None:
    node, container = cluster.task(cluster.services(NAME)[1])

    def inside(*command: str, user: str = "heronry") -> str:
        return cluster.nodes.engine(node, "exec", "--user", user, container, *command, check=False)

    folder = "/var/lib/heronry/start/1"
    shown = inside(
        "stat", "--format", "%n %a %U", *(f"{folder}/{name}" for name in ("secret", "key.pem", "launch.json"))
    )
    assert {tuple(line.split()[1:]) for line in shown.splitlines()} == {("400", "heronry")}
    assert inside("cat", f"{folder}/secret", user="heronry-code") == ""
    host = json.loads(cluster.nodes.engine(node, "inspect", container))[0]["HostConfig"]
    assert host["ReadonlyRootfs"]
    assert host["Init"]
    assert host["CapDrop"] == ["ALL"]
    assert {cap.removeprefix("CAP_") for cap in host["CapAdd"]} == {"KILL", "SETGID", "SETUID"}
    assert host["PidsLimit"] > 0
    assert host["Memory"] > 0


def test_dead_container_is_replaced(cluster: SwarmCluster, flow: ClusterFlow) -> None:
    service = cluster.services(NAME)[2]
    node, container = cluster.task(service)
    struck = time.monotonic()
    cluster.nodes.engine(node, "kill", container)
    wait_until(lambda: _restarts(cluster, 2) >= 1, "container 2 is started again")
    flow.goes_on()
    cluster.nodes.lap(f"a container died: all acked {time.monotonic() - struck:.1f} s later")
    error = next(c for c in cluster.status(NAME)["containers"] if c["id"] == 2)
    assert "SIGKILL" in json.dumps(error) or "SIGKILL" in cluster.compose("logs", "api")


def _restarts(cluster: SwarmCluster, number: int) -> int:
    status = cluster.status(NAME)
    processes = status.get("processes", ())
    return max(
        (p["restarts"] for p in processes if p["kind"] == "heron_container" and p["container"] == number), default=0
    )


def test_restart_replaces_one_container(cluster: SwarmCluster, flow: ClusterFlow) -> None:
    before = cluster.task(cluster.services(NAME)[1])[1]
    struck = time.monotonic()
    cluster.heron("restart", CLUSTER, NAME, "1")
    assert cluster.task(cluster.services(NAME)[1])[1] != before
    cluster.nodes.lap(f"heron restart took {time.monotonic() - struck:.1f} s")
    flow.goes_on()


def test_restarted_api_server_adopts_containers(cluster: SwarmCluster, flow: ClusterFlow) -> None:
    before = {number: cluster.task(service) for number, service in cluster.services(NAME).items()}
    cluster.compose("kill", "api")
    cluster.compose("up", "--no-build", "--detach", "--wait", "api")
    flow.goes_on()
    assert {number: cluster.task(service) for number, service in cluster.services(NAME).items()} == before


def test_containers_of_a_dead_node_move_to_other_nodes(cluster: SwarmCluster, flow: ClusterFlow) -> None:
    dead = _a_worker_with_containers(cluster)
    moved = [number for number, place in cluster.places(NAME).items() if place == cluster.nodes.node(dead)]
    struck = time.monotonic()
    cluster.nodes.kill(dead)
    cluster.nodes.is_now(dead, "down")
    down = time.monotonic() - struck

    def elsewhere() -> bool:
        places = cluster.places(NAME)
        return all(number in places and places[number] != cluster.nodes.node(dead) for number in moved)

    wait_until(elsewhere, "its containers run elsewhere")
    placed = time.monotonic() - struck
    flow.goes_on()
    cluster.nodes.lap(
        f"node {dead} killed with containers {moved}: down after {down:.1f} s, elsewhere after {placed:.1f} s, "
        f"all acked after {time.monotonic() - struck:.1f} s"
    )
    cluster.nodes.start(dead)
    cluster.nodes.is_now(dead, "ready")
    flow.goes_on()


def _a_worker_with_containers(cluster: SwarmCluster) -> int:
    """Return a node, other than the manager with the API server and ZooKeeper, that has a container with tasks."""
    found = Counter(int(place.rsplit("-", 1)[1]) for number, place in cluster.places(NAME).items() if number)
    del found[1]
    return max(found, key=found.__getitem__)


@pytest.mark.parametrize(("how", "away", "back"), [("paused", "pause", "resume"), ("cut off", "cut_off", "reach")])
def test_two_concurrent_incarnations_lose_nothing(
    cluster: SwarmCluster, flow: ClusterFlow, how: str, away: str, back: str
) -> None:
    """A resumed node believes that it runs containers that have moved; an isolated node runs them all the time."""
    # The node that was dead is empty: new containers go to the node with the fewest.
    cluster.heron("restart", CLUSTER, NAME)
    flow.goes_on()
    lost = _a_worker_with_containers(cluster)
    moved = [number for number, place in cluster.places(NAME).items() if place == cluster.nodes.node(lost)]
    struck = time.monotonic()
    getattr(cluster.nodes, away)(lost)
    cluster.nodes.is_now(lost, "down")

    def elsewhere() -> bool:
        places = cluster.places(NAME)
        return all(number in places and places[number] != cluster.nodes.node(lost) for number in moved)

    wait_until(elsewhere, "its containers run elsewhere")
    flow.goes_on()
    placed = time.monotonic() - struck
    getattr(cluster.nodes, back)(lost)
    resumed = time.monotonic()
    ours = ("ps", "--quiet", "--filter", "label=org.heronry.topology-id")
    twice = bool(cluster.nodes.engine(lost, *ours))
    wait_until(lambda: not cluster.nodes.engine(lost, *ours).split() or _all_known(cluster, lost), "the old end")
    lived = time.monotonic() - resumed
    flow.goes_on()
    cluster.nodes.lap(
        f"node {lost} {how} with containers {moved}: elsewhere and acked after {placed:.1f} s; back, two of one "
        f"number at once: {twice}, the old ones ended {lived:.1f} s later"
    )
    assert twice, "no two incarnations were alive at once"


def _all_known(cluster: SwarmCluster, node: int) -> bool:
    """Return True when the containers on a node are those that the swarm wants there."""
    wanted = {cluster.task(service)[1] for service in cluster.services(NAME).values()}
    ours = ("ps", "--quiet", "--no-trunc", "--filter", "label=org.heronry.topology-id")
    return set(cluster.nodes.engine(node, *ours).split()) <= wanted


def test_update_adds_tasks_and_containers(cluster: SwarmCluster, flow: ClusterFlow) -> None:
    cluster.heron("update", CLUSTER, NAME, "--component-parallelism", "words:4", "--container-number", "4")
    assert set(cluster.services(NAME)) == {0, 1, 2, 3, 4}
    flow.goes_on()


def test_every_word_is_present_and_nothing_is_left_at_the_end(cluster: SwarmCluster, flow: ClusterFlow) -> None:
    flow.ends()


class Exact:
    """Topology that counts numbers exactly once, and its committed files on the shared storage."""

    def __init__(self, cluster: SwarmCluster, name: str, per_second: int, *options: str) -> None:
        self.cluster, self.name = cluster, name
        given = {"numbers": NUMBERS, "per_second": per_second, "folder": f"{SHARED_PATH}/exact",
                 "config": {"topology.component.cpumap": {"numbers": 0.1, "counts": 0.1, "files": 0.1}}}  # fmt: skip
        cluster.submit(ROOT / "tests" / "docker" / "docker_exact_topology.py", "Exact", name, given, *options)
        (folder,) = cluster.folders(name)
        self._output = folder / "files" / "exact"

    def counts(self) -> Counter[tuple[int, int]]:
        """Return key and count of every row."""
        files = self._output.glob("[!.]*.jsonl")
        rows = (json.loads(line) for file in files for line in file.read_text().splitlines())
        return Counter((row["key"], row["count"]) for row in rows)

    def total(self) -> int:
        """Return the number of rows."""
        return sum(self.counts().values())


def test_state_on_shared_storage_is_exact_when_a_container_dies(cluster: SwarmCluster) -> None:
    exact = Exact(cluster, "Exact", 200)
    wait_until(lambda: exact.total() > 0, "something is committed")
    node, container = cluster.task(cluster.services("Exact")[2])
    cluster.nodes.engine(node, "kill", container)
    wait_until(lambda: exact.total() >= TOTAL, "every number is counted")
    assert exact.counts() == TRUTH
    cluster.kill("Exact")


def test_topology_continues_from_a_checkpoint_of_another_one(cluster: SwarmCluster) -> None:
    first = Exact(cluster, "Adopted", 10)
    wait_until(lambda: first.total() > 0, "something is committed")
    cluster.heron("deactivate", CLUSTER, "Adopted")
    cluster.heron("checkpoint", "create", CLUSTER, "Adopted", "--name", "here")
    second = Exact(cluster, "Adopter", 2000, "--from-checkpoint", f"{CLUSTER}/default/Adopted@here")
    before = first.counts()
    assert 0 < sum(before.values()) < TOTAL
    wait_until(lambda: second.total() >= TOTAL - sum(before.values()), "it has all the rest")
    assert before + second.counts() == TRUTH
    assert first.counts() == before
    cluster.nodes.lap(f"{second.total()} of {TOTAL} numbers counted behind another topology's checkpoint, once each")
    for name in ("Adopter", "Adopted"):
        cluster.heron("kill", CLUSTER, name)
    cluster.heron("checkpoint", "delete", CLUSTER, "Adopted", "here")
    wait_until(lambda: not cluster.left(), f"nothing is left of them: {cluster.left()}")
