"""Engine contract for a real Kubernetes cluster, shared with Docker, Swarm and the fake of the unit tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from heron_control.schedulers import container_spec
from heron_control.schedulers.engine import ContainerEngine
from heron_control.schedulers.kubernetes_engine import KubernetesEngine
from heron_control.schedulers.kubernetes_objects import PodPlacement
from heron_control.schedulers.shared_storage import SharedStorage
from tests.support.clusters.kubernetes_nodes import K8sNodes
from tests.support.contracts.engine import IMAGE, EngineContract, Engines
from tests.support.waiting import wait_until

PROJECTS = ("contract", "stranger")
NAMESPACE = "contract"
KINDS = "pods,secrets,configmaps,services,networkpolicies,poddisruptionbudgets"


def clear_up(nodes: K8sNodes) -> None:
    """Remove what the contract tests have left."""
    for project in PROJECTS:
        ours = ("--selector", f"{container_spec.CLUSTER_LABEL}={project}", "--namespace", NAMESPACE)
        nodes.kubectl("delete", KINDS, *ours, "--grace-period=1", "--wait=true")


@pytest.fixture(scope="module")
def placing(nodes: K8sNodes, ways_in: None) -> PodPlacement:
    nodes.load(IMAGE)
    nodes.kubectl("create", "namespace", NAMESPACE)
    shown = ("get", "serviceaccount", "default", "--namespace", NAMESPACE)
    wait_until(lambda: nodes.kubectl(*shown, check=False), "the namespace is ready")
    return PodPlacement(NAMESPACE)


@pytest.fixture(scope="module")
def ways_in(nodes: K8sNodes) -> Iterator[None]:
    """Put this process on the cluster's network, with the administrator's kubeconfig."""
    with nodes.on_its_network():
        os.environ["KUBECONFIG"] = str(nodes.kubeconfig)
        yield
        del os.environ["KUBECONFIG"]


class TestKubernetesEngine(EngineContract):
    tells_process_ids = False
    endings_asked_for = frozenset({(None, None), (143, False)})  # a deleted Pod is soon forgotten
    empties_networks = False
    services_join = False
    knows_images = False
    keeps_files = False

    @pytest.fixture
    def engines(self, nodes: K8sNodes, placing: PodPlacement, tmp_path: Path) -> Iterator[Engines]:
        made: dict[str, KubernetesEngine] = {}

        def engine_of(project: str) -> ContainerEngine:
            return made.setdefault(project, KubernetesEngine(project, placing, SharedStorage(tmp_path, project)))

        yield engine_of
        for engine in made.values():
            engine.close()
        clear_up(nodes)
