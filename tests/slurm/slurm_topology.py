"""Topology in a Slurm allocation: the word count of ``fault_cluster`` with the same checks as on the local cluster."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heron_control.schedulers.runtime import runtime_dir
from heron_control.schedulers.slurm_plan import job_name
from tests.support.fault_cluster import FaultCluster, MiB
from tests.support.servers.slurm import SlurmServers
from tests.support.waiting import wait_until

MOST_CONTAINERS = 8


class SlurmTopology(FaultCluster):
    """Topology of two containers and container 0: three slots, which use both nodes."""

    cluster = "slurm"

    def __init__(self, servers: SlurmServers, containers: int = 2, **settings: Any) -> None:
        tasks = ("lines", "words", "sink")
        config = {
            "topology.reliability.mode": "ATLEAST_ONCE",
            "topology.max.spout.pending": 200,  # two cores carry two nodes
            "topology.component.cpumap": dict.fromkeys(tasks, 0.3),  # a slot has room for another task
            "topology.component.rammap": dict.fromkeys(tasks, 128 * MiB),
        }
        super().__init__(containers, config, settings)
        self.servers = servers
        self.environment["SLURM_CONF"] = str(servers.file)
        self._id = ""

    def submit(self, deactivated: bool = False) -> None:
        """Submit; every task runs when this returns."""
        super().submit(deactivated)
        self._id = self.launch.topology_id

    def submit_at_once(self, *more: str) -> None:
        """Submit without waiting until it runs."""
        self.heron(*self.submit_arguments(*more, "--no-wait"))
        self._id = self.launch.topology_id

    def hosts(self) -> dict[int, str]:
        """Return the published address by container."""
        return {row["id"]: row["host"] for row in self.status()["containers"]}

    def pids(self, *names: str) -> dict[str, int]:
        """Return the process ids of these processes, or of all."""
        return {name: row["pid"] for name, row in self.processes().items() if not names or name in names}

    def jobs(self) -> list[str]:
        """Return the ids of its queued jobs."""
        return self.servers.run("squeue", "-h", "-o", "%A", f"--name={job_name(self.launch)}").split()

    def step(self, number: int) -> str:
        """Return the id of the step that runs this container."""
        mine = set(self.jobs())
        steps = self.servers.steps(f"heron_container-{number}")
        (found,) = [step for step in steps if step.split(".")[0] in mine]
        return found

    def runtime_folders(self) -> list[Path]:
        """Return the folders of its processes on the nodes, which are all this machine."""
        folders = (runtime_dir(f"{self._id}/{number}") for number in range(MOST_CONTAINERS))
        return [path for path in folders if path.exists()]

    def nothing_runs(self) -> bool:
        """Return True if none of its processes runs and its folders are removed."""
        return not self.titled() and not self.runtime_folders()

    def kill(self) -> None:
        """Run ``heron kill``, and check that nothing is left."""
        self.heron("kill", self.cluster, self.name)
        assert self.titled() == []
        assert self.runtime_folders() == []
        assert list(self.home.glob("topologies/**/*")) == []
        assert self.nodes() == []
        assert json.loads(self.heron("list", self.cluster, "-o", "json")) == []
        self.heron("status", self.cluster, self.name, code=3)


@contextlib.contextmanager
def slurm_topology(servers: SlurmServers, **arguments: Any) -> Iterator[SlurmTopology]:
    """Yield a topology that a test submits; kill it at the end."""
    topology = SlurmTopology(servers, **arguments)
    try:
        yield topology
    except BaseException:
        print(topology.explain())
        raise
    finally:
        topology.clean_up()
        topology.flow.close()
        shutil.rmtree(topology.folder, ignore_errors=True)


__all__ = ["SlurmTopology", "slurm_topology", "wait_until"]
