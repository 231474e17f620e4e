"""Size limit of a topology's volume: a topology that exceeds it is ended and named, and restarts when there is room.

This takes 15 s once the cluster is up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.docker.docker_filling_topology import BOUND_MIB, VOLUME
from tests.support.clusters.compose import ROOT, ComposeCluster, docker, wait_for_cluster

NAME = "Filling"
WHERE = f"cluster=docker&role=tests&environ=default&topology={NAME}&component=__container__"
MOST_MIB = 1024  # amount that may be written before it is noticed, on a busy machine


@pytest.fixture
def filling(cluster: ComposeCluster) -> Iterator[ComposeCluster]:
    """Yield a cluster with a topology that fills its volume on request."""
    cluster.submit(ROOT / "tests" / "docker" / "docker_filling_topology.py", "Filling", NAME, {})
    yield cluster
    cluster.heron("kill", "docker/tests", NAME)


def as_user_code(cluster: ComposeCluster, command: str) -> str:
    return docker(
        "exec", "--user", "heronry-code", cluster.containers(NAME)[1], "sh", "-c", f"cd {VOLUME} && {command}"
    )


def order(cluster: ComposeCluster, what: str) -> None:
    as_user_code(cluster, f"echo {what} > new && mv new order")


def trouble(cluster: ComposeCluster) -> str:
    """Return the problem of container 1 in ``heron status``."""
    return next((c.get("trouble", "") for c in cluster.status(NAME)["containers"] if c["id"] == 1), "")


def told(cluster: ComposeCluster, text: str) -> dict[str, Any]:
    """Return the spout's process, once the status reports this text for it and its container."""

    def there() -> dict[str, Any] | None:
        status = cluster.status(NAME)
        spout = next(p for p in status["processes"] if p["component"] == "obeying")
        return spout if text in trouble(cluster) and text in (spout["last_error"] or "") else None

    return wait_for_cluster(there, f"the volume is said to be in trouble: {text}", 60)


def runs(cluster: ComposeCluster) -> None:
    wait_for_cluster(
        lambda: cluster.status(NAME)["state"] == "running" and not trouble(cluster), "all tasks run again", 60
    )


def test_topology_over_its_volume_limit_is_ended_named_and_restarted_with_room(filling: ComposeCluster) -> None:
    order(filling, "hidden")
    spout = told(filling, f"of {BOUND_MIB} MiB (topology.volume.disk)")
    assert f"most of it in {VOLUME}/hidden" in spout["last_error"]
    assert (spout["state"], spout["pid"]) == ("restarting", None)
    status = filling.status(NAME)
    assert status["state"] in ("degraded", "failing")
    others = {p["kind"]: p["state"] for p in status["processes"] if p["kind"] != "heron_instance"}
    assert set(others.values()) == {"running"}, "nothing but user code has ended"
    size = as_user_code(filling, "du -sm hidden | cut -f1")
    assert BOUND_MIB < int(size) < MOST_MIB
    seen = wait_for_cluster(
        lambda: filling.tracker(f"/topologies/exceptions?{WHERE}")["result"], "it is an exception", 60
    )
    assert "VolumeFull" in str(seen)
    assert as_user_code(filling, "du -sm hidden | cut -f1") == size, "nobody writes any more"
    as_user_code(filling, "rm -r hidden")
    runs(filling)

    order(filling, "removed")
    wait_for_cluster(
        lambda: "in removed files" in str(filling.status(NAME)["processes"]), "removed files count, too", 60
    )
    runs(filling)

    order(filling, "closed")
    told(filling, f"{VOLUME}/closed cannot be read")
    as_user_code(filling, "chmod u+rx closed")
    runs(filling)
