"""Scheduler contract on Slurm: steps of a job on two nodes, both of which are this machine."""

from __future__ import annotations

import pytest

from tests.support.contracts.scheduler import SchedulerContract, SchedulerUnderTest
from tests.support.process_scheduler import ProcessScheduler
from tests.support.servers.slurm import SlurmServers

SPARE = ("--config-property", "heron.slurm.spare.containers=1")  # an allocation does not grow


class TestSlurm(SchedulerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def ground(cls, servers: SlurmServers, tmp_path_factory: pytest.TempPathFactory) -> SchedulerUnderTest:
        home = tmp_path_factory.mktemp("contract") / "home"
        made = ProcessScheduler("slurm", home, SLURM_CONF=str(servers.file))
        made.options += SPARE
        return made
