"""A topology in an allocation starts from another one's checkpoint: each number counts once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.slurm import SlurmServers
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
TOPOLOGY = ROOT / "tests" / "docker" / "docker_exact_topology.py"
NUMBERS, SPLITS, KEYS = 1000, 4, 50
TOTAL = SPLITS * NUMBERS
TRUTH = Counter({(key, count): 1 for key in range(KEYS) for count in range(1, TOTAL // KEYS + 1)})
MiB = 1024 * 1024
COMMAND_SECONDS = 300.0


class Ground:
    """Separate home, and the folders to which topologies write."""

    def __init__(self, servers: SlurmServers) -> None:
        self.servers = servers
        self.folder = Path(tempfile.mkdtemp(prefix="heronry-slurm-"))
        self._environment = {
            **os.environ, "HERONRY_HOME": str(self.folder / "home"), "SLURM_CONF": str(servers.file),
        }  # fmt: skip
        self.submitted: list[str] = []

    def heron(self, *arguments: str, code: int = 0) -> str:
        """Run a command."""
        done = subprocess.run(
            [sys.executable, "-m", "heron_cli", *arguments],
            cwd=ROOT, env=self._environment, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS,
        )  # fmt: skip
        assert done.returncode == code, f"heron {' '.join(arguments)}: exit {done.returncode}\n{done.stderr}"
        return done.stdout

    def submit(self, name: str, per_second: int, *options: str) -> None:
        """Submit a topology that counts numbers exactly once, into a folder of its own name."""
        tasks = ("numbers", "counts", "files")
        config = {
            "topology.component.cpumap": dict.fromkeys(tasks, 0.2),
            "topology.component.rammap": dict.fromkeys(tasks, 128 * MiB),
        }
        given = {"numbers": NUMBERS, "per_second": per_second, "folder": str(self.folder / name), "config": config}
        self.submitted.append(name)
        self.heron("submit", "slurm", str(TOPOLOGY), "Exact", "--name", name, "--wait-timeout", "200", *options,
                   "--", json.dumps(given))  # fmt: skip

    def counts(self, name: str) -> Counter[tuple[int, int]]:
        """Return the committed counts."""
        files = (self.folder / name).glob("[!.]*.jsonl")
        rows = (json.loads(line) for file in files for line in file.read_text().splitlines())
        return Counter((row["key"], row["count"]) for row in rows)

    def kill(self, name: str) -> None:
        """Kill the topology, and check that nothing is left."""
        self.heron("kill", "slurm", name)
        self.submitted.remove(name)
        wait_until(lambda: not self.servers.jobs(), "its allocation has ended")


@pytest.fixture
def ground(servers: SlurmServers) -> Iterator[Ground]:
    made = Ground(servers)
    try:
        yield made
    finally:
        for name in made.submitted:
            subprocess.run(
                [sys.executable, "-m", "heron_cli", "kill", "slurm", name],
                cwd=ROOT, env=made._environment, check=False, timeout=COMMAND_SECONDS,
            )  # fmt: skip
        shutil.rmtree(made.folder, ignore_errors=True)


def test_topology_continues_from_a_checkpoint_of_another_one(ground: Ground) -> None:
    ground.submit("Adopted", 10)
    wait_until(lambda: ground.counts("Adopted"), "something is committed")
    ground.heron("deactivate", "slurm", "Adopted")
    ground.heron("checkpoint", "create", "slurm", "Adopted", "--name", "here")
    role = next((ground.folder / "home" / "topologies" / "slurm").iterdir()).name
    before = ground.counts("Adopted")
    assert 0 < sum(before.values()) < TOTAL
    ground.kill("Adopted")
    (said,) = json.loads(ground.heron("checkpoint", "list", "slurm", "Adopted", "-o", "json"))
    assert said["name"] == "here"
    ground.submit("Adopter", 2000, "--from-checkpoint", f"slurm/{role}/default/Adopted@here")
    wait_until(lambda: sum(ground.counts("Adopter").values()) >= TOTAL - sum(before.values()), "it has all the rest")
    after = ground.counts("Adopter")
    assert before + after == TRUTH
    print(f"{sum(after.values())} of {TOTAL} numbers counted behind another topology's checkpoint, once each")
    ground.kill("Adopter")
    ground.heron("checkpoint", "delete", "slurm", "Adopted", "here")
