"""Engine contract for a real swarm, shared with Docker and the fake of the unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from heron_control.schedulers import container_spec
from heron_control.schedulers.docker_engine import DockerEngine
from heron_control.schedulers.engine import ContainerEngine
from heron_control.schedulers.swarm import SwarmEngine
from tests.support.clusters.compose import run
from tests.support.clusters.swarm_nodes import SwarmNodes
from tests.support.contracts.engine import IMAGE, LAUNCH, SERVICE_LABELS, SLEEP, EngineContract, Engines
from tests.support.waiting import wait_until

PROJECTS = ("contract", "stranger")


def clear_up(nodes: SwarmNodes) -> None:
    """Remove what the contract tests have left on all nodes; tasks being removed by the swarm may be gone."""
    kinds = (("service ls -q", "service rm"), ("network ls -q", "network rm"), ("secret ls -q", "secret rm"))
    for project in PROJECTS:
        label = f"label={container_spec.CLUSTER_LABEL}={project}"
        for listed, remove in kinds:
            found = nodes.engine(1, *listed.split(), "--filter", label).split()
            if found:
                nodes.engine(1, *remove.split(), *found)
        for number in range(1, nodes.count + 1):
            wait_until(partial(_no_container_is_left, nodes, number, label), f"containers of node {number} are gone")
            nodes.engine(number, "volume", "rm", "--force", container_spec.shared_name(project, LAUNCH), check=False)


def _no_container_is_left(nodes: SwarmNodes, number: int, label: str) -> bool:
    found = nodes.engine(number, "ps", "-aq", "--filter", label).split()
    if found:
        nodes.engine(number, "rm", "--force", "--volumes", *found, check=False)
    return not found


@pytest.fixture(scope="module")
def image_everywhere(nodes: SwarmNodes) -> SwarmNodes:
    nodes.load(IMAGE)
    return nodes


class TestSwarmEngine(EngineContract):
    tells_process_ids = False
    endings_asked_for = frozenset({(None, None), (143, None)})  # a swarm soon forgets such a task
    services_network = "contract_cluster"
    empties_networks = False
    keeps_files = False

    @pytest.fixture
    def engines(self, image_everywhere: SwarmNodes, tmp_path: Path) -> Iterator[Engines]:
        nodes = image_everywhere
        clear_up(nodes)
        made: dict[str, SwarmEngine] = {}
        storage = nodes.storage(tmp_path.name)

        def engine_of(project: str) -> ContainerEngine:
            return made.setdefault(project, SwarmEngine(project, nodes.address(1), storage=storage))

        yield engine_of
        for engine in made.values():
            engine.close()
        clear_up(nodes)

    def create_service(self, services: ContainerEngine) -> str:
        assert isinstance(services, DockerEngine)
        labels = [f"--label={name}={value}" for name, value in SERVICE_LABELS.items()]
        network = f"--network={self.services_network}"
        return run("docker", "--host", services.address, "create", *labels, network, IMAGE, *SLEEP).stdout.strip()

    @pytest.fixture
    def services(self, nodes: SwarmNodes) -> Iterator[DockerEngine]:
        nodes.engine(1, "network", "create", self.services_network)
        made = DockerEngine("contract", nodes.address(1))
        yield made
        made.close()
        nodes.engine(1, "network", "rm", self.services_network)
