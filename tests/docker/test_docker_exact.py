"""Exactly-once state in containers that are killed, paused, restarted, cut off and updated while data flows.

``HERONRY_EXACT_FAULTS`` sets the number of faults (fewer numbers per second from 12 faults on), ``HERONRY_EXACT_SEED``
repeats the random choices of a run.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support.clusters.compose import ROOT, ComposeCluster, docker, inside, run, wait_for_cluster
from tests.support.waiting import DEFAULT_LIMIT_SECONDS

TOPOLOGY = Path(__file__).with_name("docker_exact_topology.py")
NAME = "Exact"
FAULTS = int(os.environ.get("HERONRY_EXACT_FAULTS", "4"))
SEED = int(os.environ.get("HERONRY_EXACT_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)
SPLITS, KEYS = 4, 50
FLOW_SECONDS, AWAY_SECONDS = 2.0, 3.0
SECONDS = max(20.0, FAULTS * (FLOW_SECONDS + AWAY_SECONDS))  # duration of the numbers
PER_SECOND = 400 if FAULTS < 12 else 40  # in each of two tasks
NUMBERS = round(SECONDS * PER_SECOND * 2 / SPLITS / KEYS) * KEYS  # in each split


def written(cluster: ComposeCluster) -> Counter[tuple[int, int]]:
    """Return the rows of all files whose checkpoints are complete, read through any container that responds."""
    for _, container in sorted(cluster.containers(NAME).items()):
        said = inside(container, "sh", "-c", "cat /var/lib/heronry/exact/*.jsonl; echo end", check=False)
        lines = said.splitlines()
        if lines and lines[-1] == "end":
            rows = [json.loads(line) for line in lines[:-1]]
            return Counter((row["key"], row["count"]) for row in rows)
    return Counter()


def strike(cluster: ComposeCluster, draw: random.Random) -> str:
    """Inject a fault into a container; return its name. A container that was just killed may be in restart."""
    number, container = draw.choice(sorted(cluster.containers(NAME).items()))
    how = draw.choice(["kill", "pause", "restart", "cut off"])
    network = docker("inspect", "--format", "{{.HostConfig.NetworkMode}}", container, check=False)
    command = {
        "restart": ["restart", "-t", "1", container],
        "cut off": ["network", "disconnect", network, container],
    }.get(how, [how, container])
    if run("docker", *command, check=False).returncode:
        return f"too late to {how}"
    if how in ("pause", "cut off"):
        time.sleep(AWAY_SECONDS)
        # It may have ended meanwhile.
        docker(*(["unpause", container] if how == "pause" else ["network", "connect", network, container]), check=False)
    return f"{how} {'the master' if number == 0 else 'tasks'}"


class Updates:
    """Repeated runs of ``heron update``."""

    def __init__(self, cluster: ComposeCluster, draw: random.Random) -> None:
        self._cluster, self._draw = cluster, draw
        self._running: subprocess.Popen[str] | None = None
        self.ended: Counter[str] = Counter()

    def idle(self) -> bool:
        """Return True if no update is running; count the result of the last one."""
        if self._running is None:
            return True
        if self._running.poll() is None:
            return False
        out, err = self._running.communicate()
        code, self._running = self._running.returncode, None
        assert code in (0, 1, 2, 4, 6), f"{code}\n{out}\n{err}"
        self.ended["done" if code == 0 else "taken back" if "old plan again" in err else "refused"] += 1
        return True

    def begin(self) -> None:
        """Start the next update, unless one is running."""
        if not self.idle():
            return
        counts, files = self._draw.randint(1, 3), self._draw.randint(1, 2)
        tasks = [f"--component-parallelism=counts:{counts}", f"--component-parallelism=files:{files}"]
        self._running = subprocess.Popen(
            [sys.executable, "-m", "heron_cli", "update", "docker/tests", NAME, *tasks, "--timeout", "30"],
            cwd=ROOT, env=self._cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip


@pytest.mark.timeout(900 + 3 * SECONDS)
def test_each_number_counts_once_across_container_faults(cluster: ComposeCluster) -> None:
    print(f"HERONRY_EXACT_SEED={SEED}")
    draw = random.Random(SEED)
    cluster.submit(TOPOLOGY, NAME, NAME, {"numbers": NUMBERS, "per_second": PER_SECOND})
    struck, updates = Counter[str](), Updates(cluster, random.Random(SEED + 1))
    for _ in range(FAULTS):
        updates.begin()
        time.sleep(FLOW_SECONDS)
        struck[strike(cluster, draw)] += 1
    wait_for_cluster(updates.idle, "the last update has ended")
    each = SPLITS * NUMBERS // KEYS
    truth = Counter({(key, count): 1 for key in range(KEYS) for count in range(1, each + 1)})
    # Numbers are emitted at a fixed rate: those delayed by faults need the same time again.
    patience = DEFAULT_LIMIT_SECONDS + SECONDS
    wait_for_cluster(lambda: sum(written(cluster).values()) >= sum(truth.values()), "every number is counted", patience)
    assert written(cluster) == truth
    said = f"{dict(sorted(struck.items()))}; updates: {dict(updates.ended)}"
    cluster.lap(f"{NAME}: {sum(truth.values())} numbers counted once each, {said}")
    cluster.heron("kill", "docker/tests", NAME)
    assert cluster.containers(NAME) == {}
