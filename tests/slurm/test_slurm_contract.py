"""Slurm keeps the contract of schedulers (``tests/scheduler_contract.py``): steps of a job on two nodes, which are both
this machine."""

from __future__ import annotations

import pytest
from process_ground import ProcessGround
from scheduler_contract import Ground, SchedulerContract
from slurm_servers import SlurmServers

SPARE = ("--config-property", "heron.slurm.spare.containers=1")  # an allocation does not grow


class TestSlurm(SchedulerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def ground(cls, servers: SlurmServers, tmp_path_factory: pytest.TempPathFactory) -> Ground:
        home = tmp_path_factory.mktemp("contract") / "home"
        made = ProcessGround("slurm", home, SLURM_CONF=str(servers.file))
        made.options += SPARE
        return made
