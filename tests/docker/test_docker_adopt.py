"""State that a new topology or a new version continues from, behind an API server: each number counts once."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from pathlib import Path

from tests.support.clusters.compose import ComposeCluster, docker, inside, wait_for_cluster

TOPOLOGY = Path(__file__).with_name("docker_exact_topology.py")
SPLITS, KEYS, NUMBERS = 4, 50, 5000  # in each split
TOTAL = SPLITS * NUMBERS
TRUTH = Counter({(key, count): 1 for key in range(KEYS) for count in range(1, TOTAL // KEYS + 1)})
SLOW, QUICK = 10, 4000  # numbers per second in each of two tasks: takes minutes, takes seconds


def written(cluster: ComposeCluster, name: str) -> Counter[tuple[int, int]]:
    """Return key and count in the files of its volume whose checkpoints are complete."""
    container = next(iter(cluster.containers(name).values()), "")
    said = inside(container, "sh", "-c", "cat /var/lib/heronry/exact/*.jsonl; echo end", check=False).splitlines()
    rows = [json.loads(line) for line in said[:-1]] if said and said[-1] == "end" else []
    return Counter((row["key"], row["count"]) for row in rows)


def drain(cluster: ComposeCluster, name: str) -> None:
    """Deactivate the topology, and wait until all that it has read is written."""
    url = f"http://127.0.0.1:{cluster.api_port}/api/v1/topologies/docker/tests/default/{name}/drain"
    request = urllib.request.Request(url, b"", {"Authorization": f"Bearer {cluster.token()}"}, method="POST")
    with urllib.request.urlopen(request, timeout=120) as answer:
        assert json.loads(answer.read())["checkpoint"] > 0


def submit(cluster: ComposeCluster, name: str, per_second: int, *options: str) -> None:
    # A checkpoint read through containers while the master continues must be kept for as long as the read takes.
    given = {"numbers": NUMBERS, "per_second": per_second, "config": {"topology.stateful.checkpoint.keep": 100}}
    cluster.submit(TOPOLOGY, "Exact", name, given, *options)


def flows(cluster: ComposeCluster, name: str) -> Counter[tuple[int, int]]:
    """Return what it has written, once that is a small part of the whole."""
    found = wait_for_cluster(lambda: written(cluster, name), f"{name} writes")
    assert sum(found.values()) < TOTAL
    return found


def test_another_topology_and_a_new_version_continue_from_the_state(cluster: ComposeCluster) -> None:
    first, second = "Adopted", "Adopter"
    submit(cluster, first, SLOW)
    flows(cluster, first)
    drain(cluster, first)
    cluster.heron("checkpoint", "create", "docker/tests", first, "--name", "here")
    before = written(cluster, first)

    # A topology that cannot start from the checkpoint is rejected and leaves nothing.
    reference = f"docker/tests/default/{first}@here"
    given = ("--from-checkpoint", reference)
    elsewhere = "--config-property=topology.stateful.checkpoint.storage=file:///mnt/elsewhere"
    names = ("submit", "docker/tests", str(TOPOLOGY), "Exact", "--name", second)
    said = cluster.heron(*names, *given, elsewhere, code=7)
    assert "nothing can be put there from outside" in said
    said = cluster.heron(*names, "--from-checkpoint", f"docker/tests/default/{first}@gone", code=3)
    assert "gone" in said
    ours = ("--filter", f"label=org.heronry.topology={second}")
    assert docker("volume", "ls", "--quiet", *ours) == docker("ps", "--all", "--quiet", *ours) == ""

    # Its files are in the first one's volume, so the second one has the rest, and each number counts once.
    submit(cluster, second, QUICK, *given)
    wait_for_cluster(
        lambda: sum(written(cluster, second).values()) >= TOTAL - sum(before.values()), "it has all the rest"
    )
    assert before + written(cluster, second) == TRUTH
    cluster.heron("kill", "docker/tests", second)
    cluster.lap(f"{second}: {TOTAL - sum(before.values())} of {TOTAL} numbers counted behind the checkpoint, once each")

    # The first one resumes, and a new version replaces it; the old output is removed with its volume.
    cluster.heron("activate", "docker/tests", first)
    wait_for_cluster(lambda: written(cluster, first) > before, "it goes on")
    replace = ("--replace", "--wait-timeout", "60")
    said = cluster.heron(*names[:-1], first, *replace, elsewhere, "--", "{}", code=7)
    assert "nothing can be put there from outside" in said
    old = docker("volume", "ls", "--quiet", "--filter", f"label=org.heronry.topology={first}")
    seldom = "topology.stateful.checkpoint.interval.secs:60"  # longer than the copying, as the error says otherwise
    cluster.heron("update", "docker/tests", first, "--runtime-config", seldom)
    drain(cluster, first)
    there = written(cluster, first)
    assert before < there, "it went on"
    assert sum(there.values()) < TOTAL, "there is something left for the new version"
    submit(cluster, first, QUICK, *replace)
    assert docker("volume", "ls", "--quiet", "--filter", f"label=org.heronry.topology={first}") != old
    wait_for_cluster(
        lambda: sum(written(cluster, first).values()) >= TOTAL - sum(there.values()), "it has all the rest"
    )
    assert there + written(cluster, first) == TRUTH
    rows = json.loads(cluster.say("checkpoint", "list", "docker/tests", first, "-o", "json"))
    names_kept = sorted({row["name"] for row in rows if row["name"]})
    assert names_kept == ["here", f"upgrade-{max(row['checkpoint'] for row in rows if row['name'])}"]
    cluster.lap(
        f"{first}: {sum(there.values())} of {TOTAL} numbers counted by the old version, the rest by the new one"
    )
    cluster.heron("kill", "docker/tests", first)
    for name in names_kept:
        cluster.heron("checkpoint", "delete", "docker/tests", first, name)
