"""Topologies with state in ZooKeeper: data flows while masters, leaders or all servers fail."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from heron_runtime.model.records import MasterLocation
from tests.faults.test_faults_while_data_flows import one_master_acts
from tests.support.clusters.zookeeper import READER, ZookeeperCluster, zookeeper_cluster
from tests.support.fault_cluster import ROOT, TEXT
from tests.support.fault_ledger import Text
from tests.support.servers.zookeeper import Ensemble, Server
from tests.support.waiting import wait_until

AWAY_SECONDS = 10.0
SESSION_SECONDS = 4.0
MORE = 200_000  # amount that shows that data flows
TALK = 60  # lines that a process may log about an outage


@pytest.fixture(scope="module")
def text() -> Text:
    return Text(TEXT)


def leader(cluster: ZookeeperCluster) -> MasterLocation | None:
    """Return the leading master, if there is one."""
    return cluster.master()[0]


@contextlib.contextmanager
def leader_dies(ensemble: Ensemble, when: Callable[[], object]) -> Iterator[None]:
    """Kill the leader of the servers when ``when`` is true, within the block; restart it afterwards."""
    over = threading.Event()
    dead: list[Server] = []

    def strike() -> None:
        while not over.wait(0.01):
            if when():
                dead.append(ensemble.leader())
                dead[0].kill()
                return

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        yield
        assert dead, "the leader was to die meanwhile"
    finally:
        over.set()
        thread.join()
        ensemble.start()


def staged(cluster: ZookeeperCluster) -> bool:
    """Return True when a submission is prepared on disk, which is just before its transaction."""
    return any(cluster.home.glob(f"topologies/local/*/default/.{cluster.name}.*"))


def leaves(cluster: ZookeeperCluster) -> bool:
    """Return True when a process of the topology has ended, which is just after the transaction of ``kill``."""
    return not cluster.titled("topology_master-")


def everything_is_complete(cluster: ZookeeperCluster, text: Text) -> None:
    """End the source; check that each line is acked and each word has arrived."""
    cluster.finish()
    account = text.account(cluster.output)
    print(account)
    assert account.complete(), account


def test_standby_takes_over_from_a_dead_and_from_a_stopped_master(server: Ensemble, root: str, text: Text) -> None:
    with zookeeper_cluster(server, root, session_timeout_secs=3.0, **{"topology.master.replicas": 2}) as cluster:
        cluster.wait_for_flow(1.5)
        first = wait_until(lambda: leader(cluster), "somebody leads")
        assert len(wait_until(lambda: cluster.masters() if len(cluster.masters()) == 2 else None, "two masters")) == 2
        assert cluster.secrets_shown() == []

        # Other readers of the store see it as well; the tracker has a reader's rights.
        assert f"zookeeper://{server.hosts}{root} answers" in doctor(cluster)
        assert cluster.name in tracked(cluster, server.url(root))

        # kill -9: the standby leads when the session of the dead master expires, and data flows meanwhile.
        died, flowed = time.monotonic(), cluster.flow.bytes
        cluster.kill_9(first.pid)
        second = wait_until(lambda: (found := leader(cluster)) and found.pid != first.pid and found, "another leads")
        took = time.monotonic() - died
        print(f"master killed: {took:.1f} s to the next one, session {cluster.session_timeout_secs:g} s")
        assert second.epoch > first.epoch
        assert cluster.flow.bytes > flowed
        wait_until(cluster.running, "all processes run again")

        # SIGSTOP during a request: it resumes after another master has decided.
        deactivate = start(cluster, "deactivate")
        cluster.stop(second.pid)
        slept, flowed = time.monotonic(), cluster.flow.bytes
        third = wait_until(lambda: (found := leader(cluster)) and found.pid != second.pid and found, "another leads")
        took = time.monotonic() - slept
        print(f"master stopped: {took:.1f} s to the next one, session {cluster.session_timeout_secs:g} s")
        assert third.epoch > second.epoch
        deactivate.communicate(timeout=120)
        assert deactivate.returncode == 0
        wait_until(lambda: cluster.status()["state"] == "paused", "the new master has paused it")
        epoch = cluster.master()[1]
        cluster.cont(second.pid)
        sleeper = cluster.masters()[second.pid]
        wait_until(lambda: f"stepping down from epoch {second.epoch}" in cluster.log(sleeper), "the sleeper steps down")
        assert (leader(cluster), cluster.master()[1]) == (third, epoch)
        assert cluster.status()["state"] == "paused"
        cluster.heron("activate", "local", cluster.name)
        cluster.wait_for_more(MORE)
        processes = wait_until(cluster.running, "all processes run")
        assert leader(cluster) == third
        one_master_acts(cluster, processes, third.epoch)
        everything_is_complete(cluster, text)


def test_topology_survives_failures_of_the_ensemble(ensemble: Ensemble, root: str, text: Text) -> None:
    with zookeeper_cluster(
        ensemble, root, session_timeout_secs=SESSION_SECONDS,
        in_submit=lambda cluster: leader_dies(ensemble, lambda: staged(cluster)),
        in_kill=lambda cluster: leader_dies(ensemble, lambda: leaves(cluster)),
    ) as cluster:  # fmt: skip
        cluster.wait_for_flow(1.5)
        before = wait_until(cluster.running, "all processes run")
        acting = leader(cluster)

        # The leader of the servers dies while data flows: only the clients notice, and connect to other servers.
        with leader_dies(ensemble, lambda: True):
            cluster.wait_for_more(MORE)
            assert wait_until(lambda: leader(cluster), "the store answers") == acting

        # All servers are down for longer than a session: data flows, and afterwards everything is as before.
        logged = lines_logged(cluster)
        ensemble.kill()
        away, flowed = time.monotonic(), cluster.flow.bytes
        while time.monotonic() < away + AWAY_SECONDS:
            time.sleep(0.5)
        assert cluster.flow.bytes > flowed + MORE
        ensemble.start()
        wait_until(lambda: status_answers(cluster), "the store answers again")
        cluster.wait_for_more(MORE)
        after = wait_until(cluster.running, "all processes run")
        kept = {name: (p["pid"], p["restarts"]) for name, p in before.items()}
        assert {name: (p["pid"], p["restarts"]) for name, p in after.items()} == kept
        assert {name: n - logged[name] for name, n in lines_logged(cluster).items() if n - logged[name] > TALK} == {}
        assert leader(cluster) is not None
        cluster.heron("deactivate", "local", cluster.name)  # and a master decides
        cluster.heron("activate", "local", cluster.name)
        everything_is_complete(cluster, text)


def lines_logged(cluster: ZookeeperCluster) -> dict[str, int]:
    """Return the number of lines by log file."""
    return {file.name: file.read_text(errors="replace").count("\n") for file in cluster.place.glob("log-files/*.log")}


def doctor(cluster: ZookeeperCluster) -> str:
    """Return the findings of ``heron doctor`` about the store."""
    done = subprocess.run(
        [sys.executable, "-m", "heron_cli", "doctor", "-o", "json"],
        cwd=ROOT, env=cluster.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return str(json.loads(done.stdout))


def tracked(cluster: ZookeeperCluster, url: str) -> str:
    """Return what a tracker with the reader's credential shows, once it has read the topologies."""
    credential = cluster.home / "reader"
    credential.write_text(READER)
    credential.chmod(0o400)
    tracker = subprocess.Popen(
        [sys.executable, "-m", "heron_tracker", "--port", "0", "--cluster", f"local={url}",
         "--store-credential", f"local={credential}"],
        cwd=ROOT, env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert tracker.stdout is not None
        address = tracker.stdout.readline().strip()

        def look() -> str:
            answer = httpx.get(f"{address}topologies/states", timeout=30)
            if answer.status_code == 503:  # it has not read the store yet
                return ""
            assert answer.status_code == 200, answer.text
            return answer.text if cluster.name in answer.text else ""

        return wait_until(look, "the tracker knows the topology")
    finally:
        tracker.terminate()
        tracker.communicate(timeout=60)


def status_answers(cluster: ZookeeperCluster) -> bool:
    """Return True when ``heron status`` has a store to ask."""
    done = subprocess.run(
        [sys.executable, "-m", "heron_cli", "status", "local", cluster.name],
        cwd=ROOT, env=cluster.environment, capture_output=True, check=False,
    )  # fmt: skip
    return done.returncode == 0


def start(cluster: ZookeeperCluster, command: str) -> subprocess.Popen[str]:
    """Start a command."""
    return subprocess.Popen(
        [sys.executable, "-m", "heron_cli", command, "local", cluster.name],
        cwd=ROOT, env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
