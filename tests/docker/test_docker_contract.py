"""Scheduler contract (``tests/support/contracts/scheduler.py``) for a Docker Compose cluster."""

from __future__ import annotations

import pytest

from tests.support.clusters.compose import ComposeCluster, docker
from tests.support.contracts.scheduler import SchedulerContract, SchedulerUnderTest


class DockerGround:
    """Containers of one engine, identified by id and start time."""

    address = "docker/tests"
    options = ("--config-property", "heron.stop.grace.secs=3", "--config-property", "heron.metrics.interval.secs=1")

    def __init__(self, cluster: ComposeCluster) -> None:
        self._cluster = cluster
        self.environment = cluster.environment

    def life(self, name: str, number: int) -> str:
        container = self._cluster.containers(name).get(number, "")
        running = container and docker("inspect", "--format", "{{.State.Running}}", container, check=False) == "true"
        return self._cluster.identity(container, check=False) if running else ""

    def end(self, name: str, number: int) -> None:
        docker("kill", self._cluster.containers(name)[number])

    def restart_scheduler(self, name: str) -> None:
        apis = self._cluster.service("api")
        docker("kill", *apis)
        docker("start", *apis)
        self._cluster.leading_api()

    def left(self, name: str) -> list[str]:
        ours = ("--quiet", "--filter", f"label=org.heronry.topology={name}")
        shown = [("ps", "--all"), ("network", "ls"), ("volume", "ls")]
        return [found for what in shown for found in docker(*what, *ours).split()]


class TestDocker(SchedulerContract):
    too_much = "runs"  # unless the API server has a quota

    @pytest.fixture(scope="class")
    @classmethod
    def ground(cls, cluster: ComposeCluster) -> SchedulerUnderTest:
        return DockerGround(cluster)
