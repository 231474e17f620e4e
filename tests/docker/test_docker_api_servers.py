"""Two API servers behind the balancer: the leader and a container die in the middle of a submit."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from tests.support.clusters.compose import COMMAND_SECONDS, ROOT, ComposeCluster, docker, wait_for_cluster

SMALL = Path(__file__).with_name("docker_small_topology.py")
PLACE, RUNS, COMES = "docker/tests", "Runs", "Comes"
STAGED = "/srv/heronry/topologies/docker/tests/default"
# Runs inside the container of the API server, since another process would be too late: once the submission is staged,
# it kills all processes of the container. Docker restarts the container.
STRIKE = f'until set -- {STAGED}/.{COMES}.*; [ -e "$1" ]; do :; done; kill -9 -1'


def whole(cluster: ComposeCluster, name: str) -> bool:
    return bool(cluster.status(name)["state"] == "running")


def test_submit_completes_when_the_leader_and_a_container_are_killed(cluster: ComposeCluster) -> None:
    cluster.submit(SMALL, "Small", RUNS, {})
    victim = cluster.containers(RUNS)[1]
    before = cluster.identity(victim), cluster.identity(cluster.containers(RUNS)[0])
    first = cluster.leading_api()
    given = json.dumps({"ballast": 100_000})
    command = ["submit", PLACE, str(SMALL), "Small", "--name", COMES, "--wait-timeout", "180", "--", given]
    submit = subprocess.Popen(
        [sys.executable, "-m", "heron_cli", *command], cwd=ROOT, env=cluster.environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        docker("exec", "--user", "heronry", first, "timeout", "120", "sh", "-c", STRIKE, check=False)
        began = time.monotonic()
        docker("kill", victim)
        said, _ = submit.communicate(timeout=COMMAND_SECONDS)
    finally:
        submit.kill()
    print(f"{time.monotonic() - began:.1f} s from the kill to the end of the submit\n{said}")
    assert docker("inspect", "--format", "{{.RestartCount}}", first) == "1", "it was to die meanwhile"
    assert submit.returncode == 0, said
    leads = cluster.leading_api()  # the other one, or the restarted first one
    # Both topologies are complete: dead containers were restarted, living ones left alone.
    assert whole(cluster, COMES)
    wait_for_cluster(lambda: whole(cluster, RUNS), f"{RUNS} is whole")
    print(f"{time.monotonic() - began:.1f} s until the container that died with it runs")
    after = cluster.identity(cluster.containers(RUNS)[1]), cluster.identity(cluster.containers(RUNS)[0])
    assert (after[0] != before[0], after[1] == before[1]) == (True, True)
    assert docker("exec", "--user", "heronry", leads, "sh", "-c", "ls -A /srv/heronry/uploads") == ""

    for name in (RUNS, COMES):
        cluster.heron("kill", PLACE, name)
        assert cluster.containers(name) == {}
    assert cluster.leading_api() == leads
