"""Faults of containers and services: the harm, its target, and its duration.

A fault is a context manager whose first half does the harm and whose second half undoes it; the block is its duration.
A container that the scheduler restarts automatically needs no second half.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from heron_control.schedulers.container_spec import HOME
from heron_control.schedulers.topology_folder import LOG_FILES
from heron_runtime.model.ids import holds_master
from tests.support import master_logs
from tests.support.clusters.compose import ComposeCluster, docker, inside, wait_for_cluster

LOGS = f"{HOME}/{LOG_FILES}"  # on the volume that all containers share

PAUSE_SECONDS = 20.0
NO_STORE_SECONDS = 30.0
API_AWAY_SECONDS = 5.0
Strike = Callable[[ComposeCluster, str, random.Random], AbstractContextManager[None]]


@dataclass(frozen=True)
class Fault:
    """Fault of the table. ``flows``: the data plane must continue during the fault."""

    name: str
    strike: Strike
    lasts: float = 0.0
    flows: bool = False


def worker(cluster: ComposeCluster, topology: str, draw: random.Random) -> str:
    """Return the name of a container with tasks."""
    return draw.choice(
        [name for number, name in sorted(cluster.containers(topology).items()) if not holds_master(number)]
    )


@contextmanager
def nothing(cluster: ComposeCluster, topology: str, draw: random.Random) -> Iterator[None]:
    """Do nothing: the control run."""
    yield


@contextmanager
def kill_worker(cluster: ComposeCluster, topology: str, draw: random.Random) -> Iterator[None]:
    """Run docker kill on a container with tasks."""
    docker("kill", worker(cluster, topology, draw))
    yield


@contextmanager
def remove_worker(cluster: ComposeCluster, topology: str, draw: random.Random) -> Iterator[None]:
    """Run docker rm -f on a container with tasks."""
    docker("rm", "--force", worker(cluster, topology, draw))
    yield


@contextmanager
def kill_master(cluster: ComposeCluster, topology: str, draw: random.Random) -> Iterator[None]:
    """Run docker kill on the container of the topology master, or of the leading master if there are two."""
    found = cluster.containers(topology)
    leads = master_logs.leader(lambda name: inside(found[1], "cat", f"{LOGS}/{name}.log", check=False))
    assert leads is not None
    docker("kill", found[leads[1]])
    yield


@contextmanager
def pause_worker(cluster: ComposeCluster, topology: str, draw: random.Random) -> Iterator[None]:
    """Run docker pause on a container with tasks."""
    name = worker(cluster, topology, draw)
    docker("pause", name)
    try:
        yield
    finally:
        docker("unpause", name)


@contextmanager
def cut_off_worker(cluster: ComposeCluster, topology: str, draw: random.Random) -> Iterator[None]:
    """Run docker network disconnect on a container with tasks."""
    name = worker(cluster, topology, draw)
    network = docker("inspect", "--format", "{{.HostConfig.NetworkMode}}", name)
    docker("network", "disconnect", network, name)
    try:
        yield
    finally:
        docker("network", "connect", network, name)


def zookeepers(cluster: ComposeCluster) -> list[str]:
    """Return the names of the servers' containers."""
    return [name for service in ("zookeeper", "zookeeper-2", "zookeeper-3") for name in cluster.service(service)]


def leader(cluster: ComposeCluster) -> str | None:
    """Return the container of the server that leads the ensemble."""
    ask = "exec 3<>/dev/tcp/127.0.0.1/2181 && printf srvr >&3 && timeout 2 cat <&3"
    for name in zookeepers(cluster):
        if "Mode: leader" in docker("exec", name, "bash", "-c", ask, check=False):
            return name
    return None


@contextmanager
def kill_leader(cluster: ComposeCluster, topology: str, draw: random.Random) -> Iterator[None]:
    """Run docker kill on ZooKeeper's leader; the other two elect a new one."""
    old = wait_for_cluster(lambda: leader(cluster), "ZooKeeper has a leader")
    docker("kill", old)
    try:
        wait_for_cluster(lambda: leader(cluster) not in (None, old), "ZooKeeper has another leader")
        yield
    finally:
        docker("start", old)


@contextmanager
def no_store(cluster: ComposeCluster, topology: str, draw: random.Random) -> Iterator[None]:
    """Run docker kill on all ZooKeeper servers."""
    servers = zookeepers(cluster)
    docker("kill", *servers)
    try:
        yield
    finally:
        docker("start", *servers)


@contextmanager
def kill_api_and_trackers(cluster: ComposeCluster, topology: str, draw: random.Random) -> Iterator[None]:
    """Run docker kill on both API servers and both trackers; a container dies meanwhile, and stays down."""
    names = [*cluster.service("api"), *cluster.service("tracker")]
    docker("kill", *names)
    victim = worker(cluster, topology, draw)
    try:
        docker("kill", victim)
        yield
        assert docker("inspect", "--format", "{{.State.Status}}", victim) == "exited", "who has started it?"
    finally:
        docker("start", *names)


@contextmanager
def kill_leading_api(cluster: ComposeCluster, topology: str, draw: random.Random) -> Iterator[None]:
    """Run docker kill on the leading API server, and of a container, which the other API server restarts."""
    name = cluster.leading_api()
    docker("kill", name, worker(cluster, topology, draw))
    try:
        yield
        wait_for_cluster(lambda: cluster.leading_api() != name, "the other api server leads")
    finally:
        docker("start", name)


FAULTS = [
    Fault("nothing (control run)", nothing, flows=True),
    Fault("docker kill, container with tasks", kill_worker),
    Fault("docker rm -f, container with tasks", remove_worker),
    Fault("docker kill, master's container", kill_master, flows=True),
    Fault("docker pause 20 s", pause_worker, PAUSE_SECONDS),
    Fault("network disconnect 20 s", cut_off_worker, PAUSE_SECONDS),
    Fault("ZooKeeper's leader killed", kill_leader, flows=True),
    Fault("all of ZooKeeper down 30 s", no_store, NO_STORE_SECONDS, flows=True),
    Fault("the api server that leads killed, a container dies", kill_leading_api, API_AWAY_SECONDS),
    Fault("api servers and trackers killed, a container dies", kill_api_and_trackers, API_AWAY_SECONDS),
]
STANDBY_FAULT = Fault("docker kill, master's container with standby", kill_master, flows=True)


def last(seconds: float) -> None:
    """Let the fault last as long as the table says."""
    time.sleep(seconds)
