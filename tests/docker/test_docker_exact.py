"""State that is kept, in containers: killed, paused and restarted while data flows, each number counts once."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path

from compose_cluster import ComposeCluster, docker, eventually, inside

TOPOLOGY = Path(__file__).with_name("docker_exact_topology.py")
NAME = "Exact"
NUMBERS, SPLITS, KEYS = 4000, 4, 50
STRIKES, FLOW_SECONDS = 4, 2.0


def written(cluster: ComposeCluster) -> Counter[tuple[int, int]]:
    """The rows of all files whose checkpoints are complete, by any container that answers."""
    for _, container in sorted(cluster.containers(NAME).items()):
        said = inside(container, "sh", "-c", "cat /var/lib/heronry/exact/*.jsonl; echo end", check=False)
        lines = said.splitlines()
        if lines and lines[-1] == "end":
            rows = [json.loads(line) for line in lines[:-1]]
            return Counter((row["key"], row["count"]) for row in rows)
    return Counter()


def test_each_number_counts_once_whatever_happens_to_containers(cluster: ComposeCluster) -> None:
    draw = random.Random(time.time_ns())
    cluster.submit(TOPOLOGY, NAME, NAME, {"numbers": NUMBERS, "per_second": 400})
    struck = Counter[str]()
    for _ in range(STRIKES):
        time.sleep(FLOW_SECONDS)
        number, container = draw.choice(sorted(cluster.containers(NAME).items()))
        how = draw.choice(["kill", "pause", "restart"])
        struck[f"{how} {number}"] += 1
        if how == "pause":
            docker("pause", container)
            time.sleep(3.0)
            docker("unpause", container)
        elif how == "kill":
            docker("kill", container, check=False)
        else:
            docker("restart", "-t", "1", container, check=False)
    each = SPLITS * NUMBERS // KEYS
    truth = Counter({(key, count): 1 for key in range(KEYS) for count in range(1, each + 1)})
    eventually(lambda: sum(written(cluster).values()) >= sum(truth.values()), "every number is counted")
    assert written(cluster) == truth
    cluster.lap(f"{NAME}: {sum(truth.values())} numbers counted once each, {dict(struck)}")
    cluster.heron("kill", "docker/tests", NAME)
    assert cluster.containers(NAME) == {}
