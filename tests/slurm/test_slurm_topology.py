"""A topology in an allocation of two nodes, through the command: data flow, partial failures, updates and kill."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slurm.slurm_topology import SlurmTopology, slurm_topology
from tests.support.fault_cluster import TEXT
from tests.support.fault_ledger import Text
from tests.support.servers.slurm import NODES, SlurmServers
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def topology(servers: SlurmServers) -> Iterator[SlurmTopology]:
    """Yield a topology for the whole file; the last test kills it."""
    with slurm_topology(servers) as made:
        made.submit()
        yield made


def test_data_flows_between_the_nodes(topology: SlurmTopology) -> None:
    topology.wait_for_more(100_000)
    hosts = topology.hosts()
    assert set(hosts) == {0, 1, 2}
    assert set(hosts.values()) == set(NODES.values()), "each node publishes its own address"
    steps = {node for number in hosts for node in topology.servers.steps(f"heron_container-{number}").values()}
    assert steps == set(NODES)


def test_killed_step_alone_is_restarted(topology: SlurmTopology) -> None:
    others = topology.pids("heron_container-0", "heron_container-2")
    victim = topology.pids("heron_container-1")
    topology.servers.run("scancel", "--signal=KILL", topology.step(1))
    now = wait_until(lambda: topology.running(victim), "container 1 runs again")
    assert {name: now[name]["pid"] for name in others} == others
    assert now["heron_container-1"]["restarts"] == 1
    topology.wait_for_more()


def test_killed_scheduler_is_restarted_and_adopts_its_steps(topology: SlurmTopology) -> None:
    before = topology.pids()
    topology.kill_9(before["heron_scheduler"])
    now = wait_until(
        lambda: topology.running({"heron_scheduler": before["heron_scheduler"]}), "there is a scheduler again"
    )
    assert {name: row["pid"] for name, row in now.items() if name != "heron_scheduler"} == {
        name: pid for name, pid in before.items() if name != "heron_scheduler"
    }
    topology.wait_for_more()


def test_restart_restarts_one_container(topology: SlurmTopology) -> None:
    victim = topology.pids("heron_container-2", "stream_manager-2")
    topology.heron("restart", "slurm", topology.name, "2")
    wait_until(lambda: topology.running(victim), "container 2 is another one")
    assert "killing what is left" not in topology.log("heron_scheduler").split("restarting container 2")[1]


def test_update_stays_within_the_allocation(topology: SlurmTopology) -> None:
    topology.heron("update", "slurm", topology.name, "--component-parallelism", "words:2")
    assert sum(row["component"] == "words" for row in topology.processes().values()) == 2
    topology.wait_for_more()
    with pytest.raises(AssertionError, match="holds 2 containers, and this update takes") as refused:
        topology.heron("update", "slurm", topology.name, "--container-number", "4")
    assert "exit 5" in str(refused.value)
    assert "heron.slurm.spare.containers" in str(refused.value)
    assert topology.running(), "what was refused changes nothing"


def test_oversized_job_waits_with_the_reason_of_slurm(topology: SlurmTopology, servers: SlurmServers) -> None:
    with slurm_topology(servers, containers=1) as other:
        other.submit_at_once()
        status = wait_until(lambda: other.status() if other.status()["state"] == "waiting" else None, "it waits")
        assert "PENDING (Resources)" in status["cause"] or "PENDING (Priority)" in status["cause"]
        shown = other.heron("status", "slurm", other.name)
        assert "waiting in Slurm's queue" in shown
        other.kill()


def test_job_runs_again_after_the_loss_of_a_node(topology: SlurmTopology, servers: SlurmServers) -> None:
    before = topology.pids()
    servers.kill_node("n2")
    servers.wait_for("n2 is down", lambda: servers.states()["n2"].startswith("down"))
    wait_until(lambda: topology.status()["state"] == "waiting", "the job waits for a node")
    servers.start_node("n2")
    now = wait_until(lambda: topology.running(before), "it runs again")
    assert not {row["pid"] for row in now.values()} & set(before.values())
    wait_until(
        lambda: not {process.pid for process in topology.titled()} & set(before.values()), "the old run has ended"
    )
    topology.wait_for_more()


def test_every_word_is_present_and_nothing_is_left_at_the_end(topology: SlurmTopology, servers: SlurmServers) -> None:
    topology.finish()
    account = Text(TEXT).account(topology.output)
    print(account)
    assert account.complete(), account
    topology.kill()
    assert servers.jobs() == []
