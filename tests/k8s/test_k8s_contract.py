"""Scheduler contract (``tests/support/contracts/scheduler.py``) for Kubernetes with two nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.clusters.commands import SETTINGS
from tests.support.clusters.kubernetes import CLUSTER, K8sCluster
from tests.support.contracts.scheduler import SchedulerContract, SchedulerUnderTest


class K8sGround:
    """Pods, identified by their uids."""

    address = CLUSTER
    options = tuple(f"--config-property={key}={value}" for key, value in SETTINGS.items())

    def __init__(self, cluster: K8sCluster) -> None:
        self._cluster = cluster
        self.environment = cluster.environment

    def life(self, name: str, number: int) -> str:
        pod = self._cluster.pods(name).get(number)
        if pod is None or "deletionTimestamp" in pod["metadata"] or pod["status"]["phase"] in ("Succeeded", "Failed"):
            return ""
        return str(pod["metadata"]["uid"])

    def end(self, name: str, number: int) -> None:
        self._cluster.strike(name, number)

    def restart_scheduler(self, name: str) -> None:
        self._cluster.restart_api_server()

    def left(self, name: str) -> list[str]:
        return self._cluster.left(name)


class TestKubernetes(SchedulerContract):
    too_much = "waits"

    @pytest.fixture(scope="class")
    @classmethod
    def ground(cls, cluster: K8sCluster) -> Iterator[SchedulerUnderTest]:
        with cluster.nodes.on_its_network():  # from there the API server is reachable
            yield K8sGround(cluster)
