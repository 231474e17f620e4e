"""A topology in a Slurm allocation, as ``fault_cluster`` has it on the local cluster: the same word count, the same
account at the end, and nothing of it left after a kill."""

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
    """Two containers, and container 0: three slots, which take both nodes."""

    cluster = "slurm"

    def __init__(self, servers: SlurmServers, containers: int = 2, **settings: Any) -> None:
        tasks = ("lines", "words", "sink")
        config = {
            "topology.reliability.mode": "ATLEAST_ONCE",
            "topology.max.spout.pending": 200,  # two cores carry two nodes
            "topology.component.cpumap": dict.fromkeys(tasks, 0.3),  # a slot has room for a task more
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
        """Submit, and do not wait until it runs."""
        self.heron(*self.submit_arguments(*more, "--no-wait"))
        self._id = self.launch.topology_id

    def hosts(self) -> dict[int, str]:
        """Container to the address that it publishes."""
        return {row["id"]: row["host"] for row in self.status()["containers"]}

    def pids(self, *names: str) -> dict[str, int]:
        """Process ids of these, or of all."""
        return {name: row["pid"] for name, row in self.processes().items() if not names or name in names}

    def jobs(self) -> list[str]:
        """Ids of its jobs that are in the queue."""
        return self.servers.run("squeue", "-h", "-o", "%A", f"--name={job_name(self.launch)}").split()

    def step(self, number: int) -> str:
        """The id of the step that runs this container."""
        mine = set(self.jobs())
        steps = self.servers.steps(f"heron_container-{number}")
        (found,) = [step for step in steps if step.split(".")[0] in mine]
        return found

    def runtime_folders(self) -> list[Path]:
        """What its processes have on the nodes, which are all this machine."""
        folders = (runtime_dir(f"{self._id}/{number}") for number in range(MOST_CONTAINERS))
        return [path for path in folders if path.exists()]

    def nothing_runs(self) -> bool:
        """No process of it, and nothing of it on the nodes."""
        return not self.titled() and not self.runtime_folders()

    def kill(self) -> None:
        """``heron kill``, and nothing is left."""
        self.heron("kill", self.cluster, self.name)
        assert self.titled() == []
        assert self.runtime_folders() == []
        assert list(self.home.glob("topologies/**/*")) == []
        assert self.nodes() == []
        assert json.loads(self.heron("list", self.cluster, "-o", "json")) == []
        self.heron("status", self.cluster, self.name, code=3)


@contextlib.contextmanager
def slurm_topology(servers: SlurmServers, **arguments: Any) -> Iterator[SlurmTopology]:
    """One that a test submits, and kills in the end."""
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
