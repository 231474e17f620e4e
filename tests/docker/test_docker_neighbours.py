"""Five topologies on one cluster, one in a crash loop: the others are not affected.

The fifty processes need two cores for some minutes, so this runs with the whole table (``HERONRY_FAULTS=all``) only.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.clusters.compose import ComposeCluster, inside, wait_for_cluster

SMALL = Path(__file__).with_name("docker_small_topology.py")
GOOD = ("Even1", "Even2", "Even3", "Even4")
BAD = "Crashing"
PER_SECOND = 200
WATCH_SECONDS = 15.0


def counted(cluster: ComposeCluster, name: str) -> tuple[float, int]:
    """Return the last (time, tuples) that the topology's bolt has written."""
    at, count = json.loads(inside(cluster.containers(name)[1], "cat", "/var/lib/heronry/out/count"))
    return float(at), int(count)


@pytest.mark.skipif(os.environ.get("HERONRY_FAULTS") != "all", reason="part of make test-docker")
def test_crash_loop_does_not_slow_other_topologies(cluster: ComposeCluster) -> None:
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda name: cluster.submit(SMALL, "Small", name, {"per_second": PER_SECOND}), GOOD))
        given = json.dumps({"per_second": PER_SECOND, "crash": 100})
        cluster.heron("submit", "docker/tests", str(SMALL), "Small", "--name", BAD, "--no-wait", "--", given)
        cluster.lap("five topologies")
        wait_for_cluster(lambda: restarts(cluster) >= 3, f"{BAD} dies again and again")
        for name in GOOD:
            wait_for_cluster(lambda name=name: cluster.status(name)["state"] == "running", f"{name} runs")
        before = {name: counted(cluster, name) for name in GOOD}
        wait_for_cluster(
            lambda: all(counted(cluster, name)[0] - before[name][0] >= WATCH_SECONDS for name in GOOD), "some time"
        )
        for name in GOOD:
            (t0, n0), (t1, n1) = before[name], counted(cluster, name)
            rate = (n1 - n0) / (t1 - t0)
            print(f"{name}: {rate:.0f} tuples/s")
            assert rate >= 0.9 * PER_SECOND, f"{name} keeps {rate:.0f} of {PER_SECOND} tuples/s"
        status = cluster.status(BAD)
        assert status["state"] in ("failing", "degraded")
    finally:
        for name in (*GOOD, BAD):
            cluster.heron("kill", "docker/tests", name)


def restarts(cluster: ComposeCluster) -> int:
    """Return how often the crashing bolt was restarted."""
    return max(p["restarts"] for p in cluster.status(BAD)["processes"] if p["component"] == "count")
