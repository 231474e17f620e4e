"""A reliable word count on the tests' Kubernetes, and the truth about it: its spouts number their lines, its sinks
write every word down before they ack it, on the storage that all nodes share."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import fault_ledger
from fault_ledger import Text
from k8s_cluster import NAMESPACE, ROOT, K8sCluster
from k8s_nodes import eventually

TEXT = ROOT / "examples" / "data" / "northanger_abbey.txt"


class K8sFlow:
    """The topology, and what it has written."""

    def __init__(self, cluster: K8sCluster, name: str, given: dict[str, Any]) -> None:
        """Submits it; data flows when this returns."""
        self.cluster, self.name = cluster, name
        package = Path(tempfile.mkdtemp(prefix="heronry-package-"))
        tests = ROOT / "tests"
        for file in (tests / "docker" / "docker_fault_topology.py", tests / "faults" / "fault_topology.py", TEXT):
            shutil.copy(file, package)
        began = time.monotonic()
        cluster.submit(package, "docker_fault_topology:DockerFaults", name, given)
        shutil.rmtree(package)
        cluster.nodes.lap(f"{name} runs, {time.monotonic() - began:.1f} s after its submit")
        (folder,) = cluster.storage.glob(f"{NAMESPACE}_topology-{name.lower()}-*")
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
