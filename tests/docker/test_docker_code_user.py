"""User code in a container runs as another user than Heronry's own processes: isolation, and its end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.clusters.compose import ROOT, ComposeCluster, docker, inside, wait_for_cluster

FOLDER = ROOT / "tests" / "integration" / "front_door"
HERONRY, CODE = 10001, 10002
VOLUME = "/var/lib/heronry"


@pytest.fixture
def prying(cluster: ComposeCluster) -> Iterator[ComposeCluster]:
    """Yield a cluster with a topology whose bolt tries to reach Heronry's files and processes on each start."""
    cluster.submit(FOLDER / "prying_topology.py", "Prying", "Prying", {})
    yield cluster
    cluster.heron("kill", "docker/tests", "Prying")
    assert cluster.containers("Prying") == {}


def tried(cluster: ComposeCluster, times: int) -> dict[str, Any]:
    """Return the record of the most recently started instance; the previous one has ended."""
    ask = f"cd {VOLUME} && ls -tr pried-*.json"
    host = cluster.containers("Prying")[1]
    wait_for_cluster(lambda: len(inside(host, "sh", "-c", ask, check=False).split()) == times, "user code has tried")
    newest = inside(host, "sh", "-c", ask).split()[-1]
    found: dict[str, Any] = json.loads(inside(host, "cat", f"{VOLUME}/{newest}"))
    return found


def is_walled_in(told: dict[str, Any]) -> None:
    """Check that user code reached nothing of Heronry's."""
    assert (told["uids"], told["gids"], told["groups"]) == ([CODE] * 3, [CODE] * 3, [CODE])
    assert set(told["capabilities"].values()) == {0}
    assert told["no_new_privileges"] == "1"
    assert told["read"] == told["removed"] == told["became"] == []
    assert told["stdout"]
    assert 0 < len(told["beats"]) == len(set(told["beats"]) - {0, 1}), "those of the two services are closed to it"
    control = {title: got for title, got in told["processes"].items() if not title.startswith("container_")}
    assert {"heron_container-1", "zygote-1", "services-1", "stream_manager-1", "metrics_manager-1"} < set(control)
    assert "docker-init-1" in control or "tini-1" in control, "root's own"
    assert control == {title: [] for title in control}


def pid(cluster: ComposeCluster, name: str) -> str:
    """Return the pid of a process in its container's namespace."""
    return str(next(p["pid"] for p in cluster.status("Prying")["processes"] if p["name"].startswith(name)))


def test_user_code_is_isolated_and_stays_so_after_restarts(prying: ComposeCluster) -> None:
    is_walled_in(tried(prying, 1))
    assert prying.status("Prying")["code_user"] == "heronry-code"
    container = prying.containers("Prying")[1]
    docker("exec", container, "sh", "-c", f"kill -9 {pid(prying, 'container_1_pry')}")
    is_walled_in(tried(prying, 2))
    zygote = "for p in /proc/[0-9]*; do grep -aq ':[z]ygote-1' $p/cmdline 2>/dev/null && kill -9 ${p#/proc/}; done"
    inside(container, "sh", "-c", f"({zygote}) || true")
    is_walled_in(tried(prying, 3))
    identity = prying.identity(container)
    docker("exec", container, "sh", "-c", f"kill -9 {pid(prying, 'heron_container-1')}")
    wait_for_cluster(lambda: prying.identity(container, check=False) not in ("", identity), "another one is there")
    is_walled_in(tried(prying, 4))
    wait_for_cluster(lambda: prying.status("Prying")["state"] == "running", "all of it works")


def test_each_process_has_only_the_user_and_capabilities_that_it_needs(prying: ComposeCluster) -> None:
    ask = "for p in /proc/[0-9]*; do echo $(tr '\\0' ' ' <$p/cmdline) $(grep -E '^(Uid|CapEff):' $p/status); done"
    rows = [line.split() for line in inside(prying.containers("Prying")[1], "sh", "-c", ask).splitlines()]
    found = {row[0].rpartition(":")[2]: (int(row[2]), int(row[-1], 16)) for row in rows if row[0].startswith("heron:")}
    changes = 1 << 5 | 1 << 6 | 1 << 7
    for title, (uid, held) in found.items():
        assert uid == (CODE if title.startswith("container_") else HERONRY), title
        assert held == (changes if title in ("heron_container-1", "zygote-1") else 0), title
    assert {"heron_container-1", "zygote-1", "services-1", "stream_manager-1"} < set(found)


def test_daemons_of_user_code_end_with_its_instance(cluster: ComposeCluster) -> None:
    cluster.heron(
        "submit", "docker/tests", str(FOLDER / "daemon_topology.py"), "LeavesBehind", "--name", "Daemons",
        "--wait-timeout", "180", "--", VOLUME,
    )  # fmt: skip
    try:
        host = cluster.containers("Daemons")[1]

        def daemons() -> set[str]:
            """Return the pids of the daemons that run another program, in the namespace of the engine's machine."""
            rows = [row.split(None, 2) for row in docker("top", host, "-eo", "pid,user,args").splitlines()[1:]]
            return {number for number, user, text in rows if "while :; do echo" in text and user == str(CODE)}

        first = wait_for_cluster(lambda: found if len(found := daemons()) == 2 else None, "two daemons are there")
        status = cluster.status("Daemons")["processes"]
        instance = next(p["pid"] for p in status if p["component"] == "daemons")
        docker("exec", host, "sh", "-c", f"kill -9 {instance}")
        wait_for_cluster(
            lambda: len(now := daemons()) == 2 and not now & first, "they have ended, and there are new ones"
        )
    finally:
        cluster.heron("kill", "docker/tests", "Daemons")
    assert cluster.containers("Daemons") == {}
