"""The job in the queue: rejected, lost, cancelled, and killed while the controller is down."""

from __future__ import annotations

import threading

import pytest

from tests.slurm.slurm_topology import SlurmTopology, slurm_topology
from tests.support.servers.slurm import SlurmServers
from tests.support.waiting import wait_until


def refused(topology: SlurmTopology, *more: str) -> str:
    """Return the error of a submit that fails; nothing of it may be left."""
    with pytest.raises(AssertionError) as error:
        topology.heron(*topology.submit_arguments(*more))
    assert [path for path in topology.home.glob("topologies/**/*") if path.is_file()] == []
    assert topology.nodes() == []
    return str(error.value)


def test_rejection_by_slurm_shows_its_own_message(servers: SlurmServers) -> None:
    with slurm_topology(servers, containers=1) as topology:
        said = refused(topology, "--config-property", "heron.slurm.account=a", "--config-property",
                       "heron.slurm.constraint=gpu")  # fmt: skip
        assert "sbatch: error" in said
        assert "Invalid feature specification" in said
        said = refused(topology, "--config-property", "heron.user.code.user=nobody")
        assert "run as who has submitted it" in said
        assert servers.jobs() == []


def test_submit_survives_a_controller_that_dies_within_a_second(servers: SlurmServers) -> None:
    with slurm_topology(servers, containers=1) as topology:
        submitting = threading.Thread(target=topology.submit)
        submitting.start()
        wait_until(servers.jobs, "the job is in the queue", poll=0.02)
        servers.kill_controller()
        servers.start_controller()
        submitting.join()
        assert topology.status()["state"] == "running"
        assert len(topology.jobs()) == 1
        topology.wait_for_more()
        topology.kill()
        assert servers.jobs() == []


def test_cancelled_job_leaves_only_logs(servers: SlurmServers) -> None:
    with slurm_topology(servers, containers=1) as topology:
        topology.submit()
        topology.wait_for_more()
        servers.run("scancel", *topology.jobs())
        wait_until(topology.nothing_runs, "no process and nothing on the nodes is left")
        wait_until(lambda: not servers.jobs(), "the job is over")
        assert (topology.place / "log-files" / "heron_scheduler.log").exists()
        shown = topology.heron("status", "slurm", topology.name)
        assert "is CANCELLED" in shown
        assert "heron restart" in shown
        topology.heron("restart", "slurm", topology.name)
        wait_until(topology.running, "it runs again, as another job")
        topology.wait_for_more()
        topology.kill()


def test_kill_without_a_controller_is_completed_by_the_next_kill(servers: SlurmServers) -> None:
    with slurm_topology(servers, containers=1) as topology:
        topology.submit()
        servers.kill_controller()
        with pytest.raises(AssertionError, match="Slurm's controller does not answer") as error:
            topology.heron("kill", "slurm", topology.name)
        assert "exit 6" in str(error.value)
        assert "again when `sinfo` answers" in str(error.value)
        wait_until(lambda: not topology.titled("container"), "its processes have stopped by themselves")
        servers.start_controller()
        topology.kill()
        assert servers.jobs() == []
