"""A topology at full speed loses nothing and continues while processes are killed and stopped.

Each fault runs once, with the number of containers that the seed draws. ``HERONRY_FAULTS=all`` runs each fault with one
and with three containers. ``HERONRY_FAULTS_SEED`` (default 1) draws the containers, victims and moments.
"""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.faults import fault_table
from tests.faults.fault_strikes import FAULTS, Fault
from tests.support.fault_cluster import POLL_SECONDS, TEXT, FaultCluster, Process, fault_cluster
from tests.support.fault_ledger import Text
from tests.support.waiting import wait_until

ALL = os.environ.get("HERONRY_FAULTS") == "all"
SEED = os.environ.get("HERONRY_FAULTS_SEED", "1")
CONTAINERS = (1, 3)
MIN_SECONDS, MAX_SECONDS = 2.5, 4.0  # of flow, before the fault
RATE_SECONDS = 1.5
RATE_PATIENCE_SECONDS = 5.0
AFTERWARDS_BYTES = 1_000_000  # amount that flows after the recovery, before the source ends


def cases() -> list[tuple[Fault, int]]:
    """Return the faults to run and their numbers of containers."""
    if ALL:
        return [(fault, containers) for fault in FAULTS for containers in CONTAINERS]
    draw = random.Random(SEED)
    return [(fault, draw.choice(CONTAINERS)) for fault in FAULTS]


@pytest.fixture(scope="module")
def text() -> Text:
    return Text(TEXT)


@pytest.mark.parametrize(("fault", "containers"), cases(), ids=lambda value: getattr(value, "name", str(value)))
def test_no_line_is_lost_and_all_are_acked(fault: Fault, containers: int, text: Text) -> None:
    draw = random.Random(f"{SEED} {fault.name} {containers}")
    with fault_cluster(containers, config=fault.config, settings=fault.settings) as cluster:
        cluster.lap("submitted")
        cluster.wait_for_flow(draw.uniform(MIN_SECONDS, MAX_SECONDS))
        before = wait_until(cluster.running, "all processes run")
        epoch_before = cluster.master()[1]
        cluster.lap("fault")
        struck = time.monotonic()
        rate = cluster.flow.rate(struck, RATE_SECONDS)
        victims = fault.strike(cluster, before, draw)
        wait_until(lambda: cluster.replaced(victims), f"{', '.join(victims)} are there again")
        cluster.lap("replaced")
        wait_until(lambda: cluster.running(victims), "all processes run again")
        cluster.wait_for_more()
        recovered = time.monotonic()
        cluster.lap("recovered")
        settled = wait_until(lambda: settled_processes(cluster), "the processes stay the same")
        cluster.lap("settled")
        cluster.wait_for_more(AFTERWARDS_BYTES)
        watch_the_rate(cluster, rate, struck)
        cluster.finish()
        finished = time.monotonic()
        cluster.lap("all acked")
        afterwards = wait_until(cluster.running, "all processes run at the end")
        assert identities(afterwards) == identities(settled), "somebody has restarted again"
        one_master_acts(cluster, afterwards, epoch_before.epoch if epoch_before else 0)
        cluster.lap("looked at")
        account = text.account(cluster.output)
        cluster.lap("counted")
        print(f"{fault.name}, {containers} containers: {account}")
        assert account.complete(), account
        if fault.exactly_once:
            assert (account.again, account.failed) == (0, {}), account
        failed = ", ".join(f"{n:,} {kind}" for kind, n in account.failed.items())
        full = cluster.flow.seconds_to(0.9, rate, struck, finished)
    fault_table.ROWS.append(
        fault_table.Row(fault.name, containers, account.lines, failed, account.again, recovered - struck, full)
    )


def watch_the_rate(cluster: FaultCluster, rate: float, struck: float) -> None:
    """Let data flow until it has its earlier rate again, for a limited time: on a busy machine it may never have."""
    deadline = time.monotonic() + RATE_PATIENCE_SECONDS
    while time.monotonic() < deadline and cluster.flow.seconds_to(0.9, rate, struck, time.monotonic()) is None:
        time.sleep(POLL_SECONDS)


def identities(processes: dict[str, Process]) -> dict[str, tuple[int, int]]:
    """Return pid and number of restarts of each process."""
    return {name: (process["pid"], process["restarts"]) for name, process in processes.items()}


def settled_processes(cluster: FaultCluster) -> dict[str, Process] | None:
    """Return all processes once two consecutive reads show the same ones running."""
    first, second = cluster.running(), cluster.running()
    return second if first and second and identities(first) == identities(second) else None


def one_master_acts(cluster: FaultCluster, processes: dict[str, Process], epoch_before: int) -> None:
    """Check that node, epoch and logs name one leader, which is one of the processes."""
    leader, highest = cluster.master()
    assert leader is not None
    assert highest is not None
    assert leader.epoch == highest.epoch >= epoch_before
    masters = {name: p["pid"] for name, p in processes.items() if p["kind"] == "topology_master"}
    assert leader.pid in masters.values()
    for name, pid in masters.items():
        said = [
            line for line in cluster.log(name).splitlines() if "leading with epoch" in line or "stepping down" in line
        ]
        leads = bool(said) and f"leading with epoch {leader.epoch}" in said[-1]
        assert leads == (pid == leader.pid), f"{name}: {said[-1:]}"
    led = [
        line
        for name in masters
        for line in cluster.log(name).splitlines()
        if f"leading with epoch {leader.epoch}" in line
    ]
    assert len(led) == 1, f"one epoch, one master: {led}"
