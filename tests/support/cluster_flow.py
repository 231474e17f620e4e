"""Reliable word count on a cluster of several nodes, and the check of its output.

The spout numbers its lines. The sinks write every word to the shared storage before they ack it.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Protocol

from heron_control.schedulers.container_spec import SHARED_PATH
from tests.support import fault_ledger
from tests.support.fault_ledger import Text
from tests.support.waiting import wait_until

TESTS = Path(__file__).resolve().parents[1]
TEXT = TESTS.parent / "examples" / "data" / "northanger_abbey.txt"
FILES = (TESTS / "docker" / "docker_fault_topology.py", TESTS / "faults" / "fault_topology.py", TEXT)
SPOUTS = 1


class Nodes(Protocol):
    """Machines of a cluster."""

    def lap(self, what: str) -> None:
        """Print a message with the time."""


class Cluster(Protocol):
    """Cluster under test."""

    @property
    def nodes(self) -> Nodes: ...

    def submit(self, file: Path, topology: str, name: str, given: dict[str, Any], *options: str) -> None:
        """Submit a topology; every task runs when this returns."""

    def wait_until_it_runs(self, name: str) -> None:
        """Wait until every process of a topology runs."""

    def folders(self, name: str) -> list[Path]:
        """Return the folders of a topology on the shared storage."""

    def kill(self, name: str) -> None:
        """Run ``heron kill``; nothing is left of the topology when this returns."""


def word_count(
    config: dict[str, Any], copies: int = 2, lines_per_second: int = 100, processors: float = 0.1
) -> dict[str, Any]:
    """Return the topology's arguments: ``copies`` of words and of sinks, and ``processors`` per task."""
    tasks = {"lines": SPOUTS, "words": copies, "sink": copies}
    return {
        "config": {"topology.component.cpumap": dict.fromkeys(tasks, processors), **config}, "tasks": tasks,
        "lines_per_second": lines_per_second, "output": f"{SHARED_PATH}/out",
    }  # fmt: skip


class ClusterFlow:
    """Topology and its output."""

    def __init__(self, cluster: Cluster, name: str, given: dict[str, Any]) -> None:
        """Submit the topology and wait until data flows."""
        self.cluster, self.name = cluster, name
        package = Path(tempfile.mkdtemp(prefix="heronry-package-"))
        for file in FILES:
            shutil.copy(file, package)
        began = time.monotonic()
        cluster.submit(package, "docker_fault_topology:DockerFaults", name, given)
        shutil.rmtree(package)
        cluster.nodes.lap(f"{name} runs, {time.monotonic() - began:.1f} s after its submit")
        (folder,) = cluster.folders(name)
        self.output = folder / "files" / "out"
        self.text = Text(TEXT)
        wait_until(lambda: self.written() > 0, f"{name} writes")

    def written(self) -> int:
        """Return the bytes written by all sinks so far."""
        return fault_ledger.written_bytes(self.output)

    def acked(self) -> int:
        """Return the number of acked lines."""
        return sum(int(spout["done"]) for spout in fault_ledger.progress(self.output).values())

    def goes_on(self) -> None:
        """Wait until it runs completely and all lines emitted until then are acked."""
        self.cluster.wait_until_it_runs(self.name)
        emitted = {task: spout["next"] for task, spout in fault_ledger.progress(self.output).items()}

        def acked() -> bool:
            now = fault_ledger.progress(self.output)
            return all(now[task]["done"] >= number for task, number in emitted.items())

        wait_until(acked, "every line emitted so far is acked")

    def ends(self) -> None:
        """End the source; check that every word of every line is there, and that ``heron kill`` leaves nothing."""
        (self.output / "end").touch()
        wait_until(lambda: fault_ledger.all_acked(self.output, SPOUTS), "all is acked")
        account = self.text.account(self.output)
        assert account.complete(), account
        self.cluster.nodes.lap(f"{account}")
        began = time.monotonic()
        self.cluster.kill(self.name)
        self.cluster.nodes.lap(f"heron kill took {time.monotonic() - began:.1f} s")
