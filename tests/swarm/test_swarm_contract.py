"""Scheduler contract (``tests/support/contracts/scheduler.py``) for a swarm of three engines."""

from __future__ import annotations

import pytest

from tests.support.clusters.commands import SETTINGS
from tests.support.clusters.swarm import CLUSTER, SwarmCluster
from tests.support.contracts.scheduler import SchedulerContract, SchedulerUnderTest


class SwarmGround:
    """Tasks of services, identified by the ids of their containers."""

    address = CLUSTER
    options = tuple(f"--config-property={key}={value}" for key, value in SETTINGS.items())

    def __init__(self, cluster: SwarmCluster) -> None:
        self._cluster = cluster
        self.environment = cluster.environment

    def life(self, name: str, number: int) -> str:
        return self._cluster.container(name, number)

    def end(self, name: str, number: int) -> None:
        node, container = self._cluster.task(self._cluster.services(name)[number])
        self._cluster.nodes.engine(node, "kill", container)

    def restart_scheduler(self, name: str) -> None:
        self._cluster.compose("kill", "api")
        self._cluster.compose("up", "--no-build", "--detach", "--wait", "api")

    def left(self, name: str) -> list[str]:
        return [f"{kind}: {names}" for kind, names in self._cluster.left(name).items()]


class TestSwarm(SchedulerContract):
    too_much = "waits"

    @pytest.fixture(scope="class")
    @classmethod
    def ground(cls, cluster: SwarmCluster) -> SchedulerUnderTest:
        return SwarmGround(cluster)
