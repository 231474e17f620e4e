"""Faults of processes: the harm, the processes that must be replaced, and the permitted effect on data.

A strike is a generator: it does its harm, and yields the names and ids of the processes that must be replaced before
the topology is complete again. A SIGSTOP that others must survive is undone in its second half.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.fault_cluster import FaultCluster, Process
from tests.support.waiting import wait_until

Victims = dict[str, int]
Strike = Callable[[FaultCluster, dict[str, Process], random.Random], Victims]


@dataclass(frozen=True)
class Fault:
    """Fault of the table. ``exactly_once``: it may neither lose nor repeat a tuple."""

    name: str
    strike: Strike
    exactly_once: bool = False
    config: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


def kill_one(kind: str, component: str = "") -> Strike:
    """Run kill -9 on one process of a kind, drawn by the seed."""

    def strike(cluster: FaultCluster, processes: dict[str, Process], draw: random.Random) -> Victims:
        found = sorted(
            name
            for name, process in processes.items()
            if process["kind"] == kind and (not component or process["component"] == component)
        )
        if kind == "heron_container":
            found.remove("heron_container-0")
        if kind == "topology_master":
            leader, _ = cluster.master()
            assert leader is not None
            found = [name for name in found if processes[name]["pid"] == leader.pid]
        victim = draw.choice(found)
        pid = processes[victim]["pid"]
        cluster.kill_9(pid)
        if kind == "heron_container":  # all its processes end with it
            return members(processes, processes[victim]["container"])
        return {victim: pid}

    return strike


def kill_container_0(cluster: FaultCluster, processes: dict[str, Process], draw: random.Random) -> Victims:
    """Run kill -9 on the heron_container of the master."""
    cluster.kill_9(processes["heron_container-0"]["pid"])
    return members(processes, 0)


def kill_container_of_the_leader(cluster: FaultCluster, processes: dict[str, Process], draw: random.Random) -> Victims:
    """Run kill -9 on the heron_container of the leading master; the standby master in another container then leads."""
    old, _ = cluster.master()
    assert old is not None
    masters = {p["pid"]: p["container"] for p in processes.values() if p["kind"] == "topology_master"}
    (standby,) = (pid for pid in masters if pid != old.pid)
    assert masters[standby] != masters[old.pid] == old.container, "each has a container of its own"
    cluster.kill_9(processes[f"heron_container-{old.container}"]["pid"])

    def standby_leads() -> bool:
        now, _ = cluster.master()
        return now is not None and now.pid == standby and now.epoch > old.epoch

    wait_until(standby_leads, "the standby leads")
    cluster.wait_for_more()
    return members(processes, old.container)


def kill_scheduler_and_container_0(
    cluster: FaultCluster, processes: dict[str, Process], draw: random.Random
) -> Victims:
    """Run kill -9 on the scheduler and container 0, which restart each other."""
    cluster.kill_9(processes["heron_scheduler"]["pid"])
    return {"heron_scheduler": processes["heron_scheduler"]["pid"], **kill_container_0(cluster, processes, draw)}


def kill_zygote(cluster: FaultCluster, processes: dict[str, Process], draw: random.Random) -> Victims:
    """Run kill -9 on the process that forks the instances of a container; they end with it."""
    container = draw.choice(sorted({p["container"] for p in processes.values() if p["kind"] == "heron_instance"}))
    (zygote,) = cluster.titled(f"zygote-{container}")
    cluster.kill_9(zygote.pid)
    return {n: pid for n, pid in members(processes, container).items() if processes[n]["kind"] == "heron_instance"}


def kill_services(cluster: FaultCluster, processes: dict[str, Process], draw: random.Random) -> Victims:
    """Run kill -9 on the process that forks the services of a container with tasks; they end with it."""
    container = draw.choice(sorted({p["container"] for p in processes.values() if p["kind"] == "stream_manager"}))
    (zygote,) = cluster.titled(f"services-{container}")
    cluster.kill_9(zygote.pid)
    services = ("stream_manager", "metrics_manager")
    return {n: pid for n, pid in members(processes, container).items() if processes[n]["kind"] in services}


def members(processes: dict[str, Process], container: int) -> Victims:
    """Return all processes of a container."""
    return {name: process["pid"] for name, process in processes.items() if process["container"] == container}


def nothing(cluster: FaultCluster, processes: dict[str, Process], draw: random.Random) -> Victims:
    """Do nothing: the control run."""
    return {}


def stop_stream_manager(cluster: FaultCluster, processes: dict[str, Process], draw: random.Random) -> Victims:
    """Stop a stream manager (SIGSTOP) until the master has given it up, and resume it."""
    victim = draw.choice(sorted(name for name in processes if name.startswith("stream_manager-")))
    said = f"stream manager {processes[victim]['container']} was silent for its lease"
    pid = processes[victim]["pid"]
    cluster.stop(pid)
    wait_until(lambda: said in cluster.log("topology_master-0"), f"the master gives up {victim}")
    cluster.cont(pid)
    return {}


def stop_master(cluster: FaultCluster, processes: dict[str, Process], draw: random.Random) -> Victims:
    """Stop the master (SIGSTOP) until a standby leads; the resumed one must not act."""
    old, _ = cluster.master()
    assert old is not None
    cluster.stop(old.pid)

    def another_leads() -> bool:
        now, _ = cluster.master()
        return now is not None and now.epoch > old.epoch and now.pid != old.pid

    wait_until(another_leads, "a standby leads")
    # It must also have begun to act: the stream managers know it.
    cluster.wait_for_more()
    cluster.cont(old.pid)
    (name,) = [name for name, process in processes.items() if process["pid"] == old.pid]
    said = f"stepping down from epoch {old.epoch}"
    wait_until(lambda: said in cluster.log(name), f"{name} steps down when it wakes up")
    return {}


def hang(kind: str) -> Strike:
    """Stop a process (SIGSTOP) without SIGCONT: heron_container kills it and starts another."""

    def strike(cluster: FaultCluster, processes: dict[str, Process], draw: random.Random) -> Victims:
        victim = draw.choice(sorted(name for name, process in processes.items() if process["kind"] == kind))
        pid = processes[victim]["pid"]
        cluster.stop(pid)
        return {victim: pid}

    return strike


def deactivate(cluster: FaultCluster, processes: dict[str, Process], draw: random.Random) -> Victims:
    """Stop the flow with heron deactivate, and resume it with heron activate."""
    cluster.heron("deactivate", "local", cluster.name)
    last = [cluster.flow.bytes, time.monotonic()]

    def still() -> bool:
        now = cluster.flow.bytes
        if now != last[0]:
            last[:] = [now, time.monotonic()]
        return time.monotonic() - last[1] > 1.0

    wait_until(still, "nothing flows after deactivate")
    assert cluster.status()["state"] == "paused"
    cluster.heron("activate", "local", cluster.name)
    return {}


# Long, so that no tuple times out on a loaded machine where none may; short, where one is lost and must be replayed.
PATIENT = {"topology.message.timeout.secs": 120}
BRISK = {"topology.message.timeout.secs": 6, "topology.max.spout.pending": 5000}
STANDBY = {"topology.master.replicas": 2}
SHORT_LEASE = {"heron.liveness.suspect.secs": 1, "heron.liveness.kill.secs": 3, "heron.liveness.kill.always.secs": 30}

FAULTS = [
    Fault("nothing (control run)", nothing, True, PATIENT),
    Fault("kill -9 spout", kill_one("heron_instance", "lines"), config=BRISK),
    Fault("kill -9 bolt", kill_one("heron_instance", "words"), config=BRISK),
    Fault("kill -9 sink", kill_one("heron_instance", "sink"), config=BRISK),
    Fault("kill -9 stream manager", kill_one("stream_manager"), config=BRISK),
    Fault("kill -9 master", kill_one("topology_master"), True, PATIENT),
    Fault("kill -9 master with standby", kill_one("topology_master"), True, {**PATIENT, **STANDBY}),
    Fault("kill -9 metrics manager", kill_one("metrics_manager"), True, PATIENT),
    Fault("kill -9 heron_container", kill_one("heron_container"), config=BRISK),
    Fault("kill -9 heron_container 0", kill_container_0, True, PATIENT),
    Fault("kill -9 leader's heron_container", kill_container_of_the_leader, True, {**PATIENT, **STANDBY}),
    Fault("kill -9 scheduler", kill_one("heron_scheduler"), True, PATIENT),
    Fault("kill -9 scheduler and heron_container 0", kill_scheduler_and_container_0, True, PATIENT),
    Fault("kill -9 zygote", kill_zygote, config=BRISK),
    Fault("kill -9 zygote of services", kill_services, config=BRISK),
    Fault("SIGSTOP stream manager, SIGCONT", stop_stream_manager, True, PATIENT, {"heron.master.lease.secs": 2}),
    Fault("SIGSTOP master, SIGCONT", stop_master, True, {**PATIENT, **STANDBY}),
    Fault("SIGSTOP stream manager for good", hang("stream_manager"), config=BRISK, settings=SHORT_LEASE),
    Fault("SIGSTOP bolt for good", hang("heron_instance"), config=BRISK, settings=SHORT_LEASE),
    Fault("deactivate, activate", deactivate, True, PATIENT),
]
