"""A reliable word count on the swarm: what it has written to the storage that all nodes share, and what is acked."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import fault_ledger
from fault_ledger import Text
from swarm_cluster import PROJECT, ROOT, SwarmCluster
from swarm_nodes import eventually

from heron_control.schedulers.docker_plan import SHARED_PATH

TEXT = ROOT / "examples" / "data" / "northanger_abbey.txt"
SPOUTS = 1
TASKS = {"lines": SPOUTS, "words": 2, "sink": 2}


class Flow:
    """The topology, and what it has written."""

    def __init__(self, cluster: SwarmCluster, name: str, config: dict[str, Any]) -> None:
        """Submits it; data flows when this returns."""
        self.cluster, self.name = cluster, name
        given = {
            "config": {"topology.component.cpumap": {"lines": 0.1, "words": 0.1, "sink": 0.1}, **config},
            "tasks": TASKS, "lines_per_second": 100, "output": f"{SHARED_PATH}/out",
        }  # fmt: skip
        package = Path(tempfile.mkdtemp(prefix="heronry-package-"))
        tests = ROOT / "tests"
        for file in (tests / "docker" / "docker_fault_topology.py", tests / "faults" / "fault_topology.py", TEXT):
            shutil.copy(file, package)
        began = time.monotonic()
        cluster.submit(package, "docker_fault_topology:DockerFaults", name, given)
        shutil.rmtree(package)
        cluster.nodes.lap(f"{name} runs, {time.monotonic() - began:.1f} s after its submit")
        (folder,) = cluster.storage.glob(f"{PROJECT}_topology-{name.lower()}-*")
        self.output = folder / "files" / "out"
        self.text = Text(TEXT)
        eventually(lambda: self.written() > 0, f"{name} writes")

    def written(self) -> int:
        """Bytes, by all sinks that ever were."""
        return fault_ledger.written_bytes(self.output)

    def goes_on(self) -> None:
        """Wait until it runs as a whole, and all that was emitted until then is acked."""
        self.cluster.wait_until_it_runs(self.name)
        emitted = {task: spout["next"] for task, spout in fault_ledger.progress(self.output).items()}

        def acked() -> bool:
            now = fault_ledger.progress(self.output)
            return all(now[task]["done"] >= number for task, number in emitted.items())

        eventually(acked, "every line emitted so far is acked")

    def ends(self) -> None:
        """Its source does; every word of every line is there, and ``heron kill`` leaves nothing of it."""
        (self.output / "end").touch()
        eventually(lambda: fault_ledger.all_acked(self.output, SPOUTS), "all is acked")
        account = self.text.account(self.output)
        assert account.complete(), account
        self.cluster.nodes.lap(f"{account}")
        began = time.monotonic()
        self.cluster.kill(self.name)
        self.cluster.nodes.lap(f"heron kill took {time.monotonic() - began:.1f} s")
