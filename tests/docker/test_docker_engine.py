"""Engine contract for the real engine; the unit tests check it with a fake one."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator

import pytest

from heron_control.schedulers import container_spec
from heron_control.schedulers.docker_engine import DockerEngine
from heron_control.schedulers.engine import ContainerEngine
from tests.support.clusters.compose import run
from tests.support.contracts.engine import IMAGE, SERVICE_LABELS, SLEEP, EngineContract, Engines

PROJECTS = ("contract", "stranger")


def clear_up() -> None:
    """Remove what the contract tests have left."""
    for project in PROJECTS:
        label = f"label={container_spec.CLUSTER_LABEL}={project}"
        for kind, remove in (("ps -aq", "rm -f"), ("network ls -q", "network rm"), ("volume ls -q", "volume rm")):
            found = run("docker", *kind.split(), "--filter", label).stdout.split()
            if found:
                run("docker", *remove.split(), *found)


class TestDockerEngine(EngineContract):
    def check_owners(self, entries: list[tarfile.TarInfo]) -> None:
        assert {(entry.uid, entry.gid, entry.mode & 0o777) for entry in entries} == {(10001, 10001, 0o644)}

    def create_service(self, services: ContainerEngine) -> str:
        labels = [f"--label={name}={value}" for name, value in SERVICE_LABELS.items()]
        return run("docker", "create", *labels, f"--network={self.services_network}", IMAGE, *SLEEP).stdout.strip()

    @pytest.fixture
    def engines(self) -> Iterator[Engines]:
        clear_up()
        made: dict[str, DockerEngine] = {}

        def engine_of(project: str) -> ContainerEngine:
            return made.setdefault(project, DockerEngine(project))

        yield engine_of
        for engine in made.values():
            engine.close()
        clear_up()
