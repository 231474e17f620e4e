"""A reliable word count loses nothing while containers, links, ZooKeeper, API servers and trackers fail.

One topology takes a third of the faults in turn, or all with ``HERONRY_FAULTS=all``. ``HERONRY_FAULTS_SEED`` (default
1) draws them, their order and the victims. A second topology, with a standby master, takes the fault that needs one.
After each fault: every line emitted until then is acked and its words are in the append-only files, one master leads,
no task causes backpressure, the containers are those of the packing plan, and the flow reaches 90 % of the earlier
rate.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heron_runtime.model.ids import holds_master
from tests.docker import docker_fault_table
from tests.docker.docker_faults import FAULTS, LOGS, STANDBY_FAULT, Fault, last
from tests.docker.docker_flow import DockerFlow
from tests.support.clusters.compose import ROOT, ComposeCluster, docker, inside, wait_for_cluster
from tests.support.fault_ledger import Text

ALL = os.environ.get("HERONRY_FAULTS") == "all"
SEED = os.environ.get("HERONRY_FAULTS_SEED", "1")
TEXT = ROOT / "examples" / "data" / "northanger_abbey.txt"
LINES_PER_SECOND = 150
RATE_SECONDS, WINDOW_SECONDS = 4.0, 1.5
FLOWS = 0.5  # minimum share of the rate if the data plane is not affected
TASKS = {"lines": 1, "words": 1, "sink": 2}


@pytest.fixture(scope="module")
def package() -> Iterator[Path]:
    """Yield the folder to submit: the topology, its components and the text."""
    folder = Path(tempfile.mkdtemp(prefix="heronry-package-"))
    here = Path(__file__).parent
    for file in (here / "docker_fault_topology.py", here.parent / "faults" / "fault_topology.py", TEXT):
        shutil.copy(file, folder)
    yield folder
    shutil.rmtree(folder)


class Run:
    """Topology under faults."""

    def __init__(self, cluster: ComposeCluster, package: Path, name: str, config: dict[str, Any]) -> None:
        self.cluster = cluster
        self.name = name
        given = {
            "config": {"topology.stmgrs": 2, **config},
            "tasks": TASKS,
            "lines_per_second": LINES_PER_SECOND,
        }
        cluster.submit(package, "docker_fault_topology:DockerFaults", name, given)
        self.flow = DockerFlow(cluster.project, name)
        wait_for_cluster(lambda: self.flow.bytes > 0, f"{name} writes")
        self.numbers = set(cluster.containers(name))
        self.text = Text(TEXT)
        self.again = 0  # words repeated so far
        self.epoch = 0  # of the last master

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Kill the topology; nothing of it may be left."""
        self.flow.close()
        self.cluster.heron("kill", "docker/tests", self.name)
        assert self.cluster.containers(self.name) == {}
        assert self.flow.volume not in docker("volume", "ls", "--quiet")

    def all_run(self) -> dict[str, Any] | None:
        """Return the status if all processes run and the containers are those of the plan."""
        if set(self.cluster.containers(self.name)) != self.numbers:
            return None
        status = self.cluster.status(self.name)
        return status if status["state"] == "running" else None

    def take(self, fault: Fault, draw: random.Random) -> None:
        """Inject one fault and check everything that must hold afterwards."""
        cluster, flow = self.cluster, self.flow
        wait_for_cluster(self.all_run, f"{self.name} runs before: {fault.name}")
        began = time.monotonic()
        wait_for_cluster(lambda: time.monotonic() - began > RATE_SECONDS, "some data flows")
        failed, rate = flow.failed(), flow.rate(time.monotonic(), RATE_SECONDS)
        epoch = self.epoch
        struck = time.monotonic()
        with fault.strike(cluster, self.name, draw):
            last(fault.lasts)
            if fault.flows and fault.lasts:
                during = flow.rate(time.monotonic(), fault.lasts / 2)
                assert during >= FLOWS * rate, f"{during:.0f} of {rate:.0f} bytes/s while {fault.name}"
        lasted = time.monotonic() - struck
        wait_for_cluster(self.all_run, f"all processes run again after: {fault.name}")
        whole = time.monotonic() - struck
        emitted = {share: spout["next"] for share, spout in flow.spouts().items()}
        wait_for_cluster(lambda: flow.all_below_are_acked(emitted), "every line emitted so far is acked")
        healed = time.monotonic()
        wait_for_cluster(
            lambda: flow.seconds_to(0.9, rate, struck, healed, WINDOW_SECONDS) is not None, "90 % of the earlier rate"
        )
        again = self.account(emitted)
        self.one_master_rules(epoch)
        assert "backpressure:" not in cluster.say("status", "docker/tests", self.name), "there is backpressure"
        assert set(cluster.containers(self.name)) == self.numbers, "orphans"
        docker_fault_table.ROWS.append(
            docker_fault_table.Row(
                fault.name, lasted, flow.failed() - failed, again - self.again, whole,
                flow.seconds_to(0.9, rate, struck, healed, WINDOW_SECONDS),
            )
        )  # fmt: skip
        self.again = again
        cluster.lap(f"{fault.name}: {docker_fault_table.table()[-1]}")

    def account(self, emitted: dict[int, int]) -> int:
        """Check that every word of every line below ``emitted`` is written; return how many are repeated."""
        with tempfile.TemporaryDirectory() as folder:
            copied = self.flow.copy(Path(folder))
            for file in copied.glob("progress-*.json"):
                progress = json.loads(file.read_text())
                file.write_text(json.dumps({**progress, "end": emitted[progress["share"]]}))
            account = self.text.account(copied)
        assert (account.missing, account.wrong) == (0, 0), account
        return account.again

    def master(self) -> dict[str, Any]:
        """Return the leader according to the state store."""
        code = (
            f"m = message_codecs.MASTER_LOCATION.decode(store.get(paths.master({self.name!r})).data)\n"
            f"e = message_codecs.MASTER_EPOCH.decode(store.get(paths.epoch({self.name!r})).data)\n"
            "print(json.dumps({'host': m.host, 'pid': m.pid, 'epoch': m.epoch, 'highest': e.epoch}))\n"
        )
        found: dict[str, Any] = self.cluster.in_api(code)
        return found

    def one_master_rules(self, epoch_before: int) -> None:
        """Check that node, epoch and logs name one leader, which is one of the processes."""
        leader = self.master()
        self.epoch = leader["epoch"]
        assert leader["epoch"] == leader["highest"] >= epoch_before
        hosts = {number: name for number, name in self.cluster.containers(self.name).items() if holds_master(number)}
        assert leader["host"] in hosts.values()
        masters = [p for p in self.cluster.status(self.name)["processes"] if p["kind"] == "topology_master"]
        assert leader["pid"] in [p["pid"] for p in masters if hosts[p["container"]] == leader["host"]]
        logs = inside(leader["host"], "sh", "-c", f"cat {LOGS}/topology_master-*")
        led = re.findall(rf"leading with epoch {leader['epoch']}\b", logs)
        assert len(led) == 1, f"one epoch, one master: {led}"


def test_no_line_is_lost_under_any_fault(cluster: ComposeCluster, package: Path) -> None:
    draw = random.Random(SEED)
    control, *others = FAULTS
    with Run(cluster, package, "Survivor", {}) as run:
        cluster.lap("Survivor runs")
        run.take(control, draw)
        for fault in draw.sample(others, len(others) if ALL else math.ceil(len(others) / 3)):
            run.take(fault, draw)


def test_no_line_is_lost_with_a_standby_master(cluster: ComposeCluster, package: Path) -> None:
    with Run(cluster, package, "Standby", {"topology.master.replicas": 2}) as run:
        run.take(STANDBY_FAULT, random.Random(SEED))
