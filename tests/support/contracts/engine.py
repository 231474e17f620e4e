"""Contract test of ``ContainerEngine`` for the fake engine, Docker, Swarm and Kubernetes.

A subclass provides the engine of a project as the fixture ``engines``. Its class attributes name what its engine does
not support.
"""

from __future__ import annotations

import io
import tarfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from heron_control.schedulers import container_spec
from heron_control.schedulers.container_spec import ContainerSpec, ProcessUser
from heron_control.schedulers.engine import ContainerEngine, EngineContainer, EngineError, TopologyOwner
from heron_runtime.launch import Launch
from heron_runtime.model.plan import Resources

IMAGE = "debian:bookworm-slim"
PATIENCE_SECONDS = 60.0
SLEEP = ("sleep", "600")
LAUNCH = Launch("docker", "ads", "prod", "words", "words-0a1b2c", "memory://", "/x", "/y")
SERVICE_LABELS = {
    container_spec.CLUSTER_LABEL: "contract",
    container_spec.JOINS_LABEL: "contract",
    container_spec.ALIAS_LABEL: "api",
}
Engines = Callable[[str], ContainerEngine]


def spec(project: str, number: int, command: Sequence[str], network: str = "") -> ContainerSpec:
    """Return a container of the topology with another image, user and command, and without limits."""
    built = container_spec.build_container_spec(project, LAUNCH, number, IMAGE, Resources(1.0, 0))
    return replace(
        built, name=f"{project}-{number}", command=tuple(command), user=ProcessUser.IMAGE, network=network, limits=None,
        security=replace(built.security, added_capabilities=(), read_only_root=False),
    )  # fmt: skip


def seen(engine: ContainerEngine, number: int, *states: str) -> EngineContainer:
    """Return the container once it is in one of these states."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = next(one for one in engine.containers() if one.number == number)
        if found.state in states:
            return found
        assert time.monotonic() < deadline, f"{found} is not {states}"
        time.sleep(0.05)


class EngineContract:
    """Engine contract. Names contain the project, so leftovers of one test do not affect others."""

    tells_process_ids = True
    endings_asked_for = frozenset({(143, False)})  # exit code and out of memory, for a requested end
    services_network = "bridge"  # of the cluster's own services
    empties_networks = True  # removing a network disconnects its containers
    services_join = True  # the networks of topologies; otherwise they reach them anyway
    knows_images = True  # before it starts one
    keeps_files = True  # files of a removed container can be read

    @pytest.fixture
    def engine(self, engines: Engines) -> ContainerEngine:
        """Return the engine of a project with a volume and no other objects."""
        made = engines("contract")
        made.make_volume(
            container_spec.shared_name("contract", LAUNCH), container_spec.owner_labels("contract", LAUNCH)
        )
        return made

    def test_lifecycle_is_reported(self, engine: ContainerEngine, engines: Engines) -> None:
        assert engine.containers() == []
        container = engine.create(spec("contract", 1, SLEEP), {})
        found = seen(engine, 1, "created")
        assert (found.id, found.name, found.topology, found.topology_id) == (
            container, "contract-1", "words", "words-0a1b2c",
        )  # fmt: skip
        assert (engine.start(container) > 0) is self.tells_process_ids
        seen(engine, 1, "running")
        assert engines("stranger").containers() == []
        engine.signal(container, "SIGTERM")
        seen(engine, 1, "exited")
        ending = engine.ending(container)
        assert (ending.exit_code, ending.out_of_memory) in self.endings_asked_for
        engine.signal(container, "SIGKILL")  # too late, without an error
        engine.remove(container)
        engine.remove(container)
        assert engine.containers() == []
        engine.signal(container, "SIGKILL")
        with pytest.raises(EngineError, match=r"No such container|service .* not found"):
            engine.ending(container)

    def test_running_container_is_removed_by_name(self, engine: ContainerEngine) -> None:
        engine.start(engine.create(spec("contract", 1, SLEEP), {}))
        engine.remove("contract-1")
        assert engine.containers() == []

    def test_ending_has_exit_code_and_last_output(self, engine: ContainerEngine) -> None:
        command = ["sh", "-c", "echo out of coffee; exit 3"]
        container = engine.create(spec("contract", 2, command), {})
        engine.start(container)
        seen(engine, 2, "exited")
        ending = engine.ending(container)
        assert (ending.exit_code, ending.last_line) == (3, "out of coffee")

    def test_failed_creation_is_explained_and_leaves_nothing(self, engine: ContainerEngine) -> None:
        engine.require_image(IMAGE)
        nowhere = replace(spec("contract", 1, SLEEP), image="nowhere:none")
        if self.knows_images:
            with pytest.raises(EngineError, match="nowhere:none is not on the Docker engine"):
                engine.require_image("nowhere:none")
            with pytest.raises(EngineError, match="nowhere:none is not on the Docker engine"):
                engine.create(nowhere, {})
        else:
            container = engine.create(nowhere, {})
            engine.start(container)
            deadline = time.monotonic() + PATIENCE_SECONDS
            while "the image is not on" not in (found := seen(engine, 1, "starting")).trouble:
                assert time.monotonic() < deadline, found
                time.sleep(0.1)
            engine.remove(container)
        engine.create(spec("contract", 1, SLEEP), {})
        with pytest.raises(EngineError, match="Conflict"):
            engine.create(replace(spec("contract", 2, SLEEP), name="contract-1"), {})
        with pytest.raises(EngineError, match="not found"):  # at creation or at the start, depending on the engine
            engine.start(engine.create(spec("contract", 3, SLEEP, "contract-nowhere"), {}))
        assert {found.number for found in engine.containers()} <= {1, 3}

    def test_networks_and_volumes_have_owners_and_are_removed(self, engine: ContainerEngine, engines: Engines) -> None:
        name, labels = container_spec.shared_name("contract", LAUNCH), container_spec.owner_labels("contract", LAUNCH)
        for _ in range(2):
            engine.make_network(name, labels)
            engine.make_volume(name, labels)
        assert engine.networks() == engine.volumes() == {name: TopologyOwner("words", "words-0a1b2c")}
        assert engines("stranger").networks() == engines("stranger").volumes() == {}
        container = engine.create(spec("contract", 1, SLEEP, name), {})
        engine.start(container)
        assert seen(engine, 1, "running").networks == (name,)
        if not self.empties_networks:
            engine.remove(container)
        engine.remove_network(name)  # with a container on it
        assert engine.networks() == {}
        engine.remove(container)
        for _ in range(2):
            engine.remove_network(name)
            engine.remove_volume(name)
        assert engine.volumes() == {}

    @pytest.fixture
    def services(self, engine: ContainerEngine) -> ContainerEngine:
        """Return the engine of the cluster's own services: the same, or that of a swarm's manager."""
        return engine

    def create_service(self, services: ContainerEngine) -> str:
        """Create a container with SERVICE_LABELS on ``services_network``, and return its id."""
        raise NotImplementedError

    def test_services_join_networks(self, engine: ContainerEngine, services: ContainerEngine) -> None:
        if not self.services_join:
            assert engine.joiners() == []
            return
        name = container_spec.shared_name("contract", LAUNCH)
        engine.make_network(name, container_spec.owner_labels("contract", LAUNCH))
        container = self.create_service(services)
        assert engine.joiners() == [], "it does not run"
        services.start(container)
        try:
            joiner = engine.joiners()[0]
            assert (joiner.id, joiner.alias, name in joiner.networks) == (container, "api", False)
            engine.connect(joiner, name)
            engine.connect(joiner, name)
            assert name in engine.joiners()[0].networks
            assert engine.containers() == [], "it is no container of a topology"
        finally:
            services.remove(container)

    def test_files_are_written_to_and_read_from_the_volume(self, engine: ContainerEngine) -> None:
        files = {"launch.json": b"{}", "secret": b"0123"}
        engine.create(spec("contract", 1, SLEEP), files)
        assert engine.volumes()
        reader = container_spec.volume_access_spec("contract", LAUNCH, IMAGE)
        if not self.keeps_files:
            with pytest.raises(EngineError):
                list(engine.read_folder(reader, f"{container_spec.VOLUME_PATH}/start/1"))
            return
        tar = b"".join(engine.read_folder(reader, f"{container_spec.VOLUME_PATH}/start/1"))
        with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
            read = {e.name: f.read() for e in archive if e.isfile() and (f := archive.extractfile(e)) is not None}
        assert read == {"1/launch.json": b"{}", "1/secret": b"0123"}
        assert list(engine.read_folder(reader, f"{container_spec.VOLUME_PATH}/log-files")) == []
        assert [found.name for found in engine.containers()] == ["contract-1"]

    def test_folder_in_the_volume_belongs_to_the_containers_user(self, engine: ContainerEngine, tmp_path: Path) -> None:
        files = {"parts/a.part": bytes(3_000_000), f"parts/{'long' * 30}": b"1", "empty": b""}
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(content)
            (tmp_path / name).chmod(0o600)
        path = f"{container_spec.HOME}/checkpoints"
        reader, writer = (container_spec.volume_access_spec("contract", LAUNCH, IMAGE, writes=w) for w in (False, True))
        if not self.keeps_files:
            pytest.skip("it writes into shared storage, as tests/unit/schedulers/test_shared_storage.py has it")
        engine.write_folder(writer, tmp_path, path)
        engine.write_folder(writer, tmp_path, path)
        tar = b"".join(engine.read_folder(reader, path))
        with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
            entries = [entry for entry in archive if not entry.isdir()]
            read = {e.name: f.read() for e in entries if (f := archive.extractfile(e)) is not None}
        assert read == {f"checkpoints/{name}": content for name, content in files.items()}
        self.check_owners(entries)
        assert engine.containers() == []

    def check_owners(self, entries: list[tarfile.TarInfo]) -> None:
        """Check the owners, if the engine has owners."""

    def test_events_are_reported_as_they_occur(self, engine: ContainerEngine) -> None:
        container = engine.create(spec("contract", 1, SLEEP), {})
        heard = threading.Event()
        now = int(time.time())

        def listen() -> None:
            for _ in engine.events(now, now + int(PATIENCE_SECONDS)):
                heard.set()
                return

        listener = threading.Thread(target=listen)
        listener.start()
        engine.start(container)
        assert heard.wait(PATIENCE_SECONDS)
        listener.join()

    def test_engine_reports_its_cores(self, engine: ContainerEngine) -> None:
        assert engine.cores() >= 1
