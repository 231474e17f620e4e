"""What every ``Engine`` does alike: the fake one of the fast tests, and a real one in ``tests/docker``.

A test class derives from ``EngineContract`` and says with ``engines`` how to get the engine of a project.
"""

from __future__ import annotations

import io
import tarfile
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from heron_control.schedulers import docker_plan as plan
from heron_control.schedulers.engine import Engine, EngineError, Owner, Seen
from heron_runtime.launch import Launch

IMAGE = "debian:bookworm-slim"
PATIENCE_SECONDS = 60.0
SLEEP = ["sleep", "600"]
LAUNCH = Launch("docker", "ads", "prod", "words", "words-0a1b2c", "memory://", "/x", "/y")
Engines = Callable[[str], Engine]


def body(project: str, number: int | None, command: list[str], network: str = "none") -> dict[str, Any]:
    """Of a container of the topology; ``plan.creation`` with an image that everybody has."""
    mount = {"Type": "volume", "Source": plan.shared_name(project, LAUNCH), "Target": plan.VOLUME_PATH}
    return {
        "Image": IMAGE, "Cmd": command, "Labels": plan.labels(project, LAUNCH, number),
        "HostConfig": {"NetworkMode": network, "Mounts": [mount], "Init": True},
    }  # fmt: skip


def seen(engine: Engine, number: int, *states: str) -> Seen:
    """The container, as soon as it is in one of these states."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = next(one for one in engine.containers() if one.number == number)
        if found.state in states:
            return found
        assert time.monotonic() < deadline, f"{found} is not {states}"
        time.sleep(0.05)


class EngineContract:
    """The tests. Names hold the project, so that what is left of one test is in nobody's way."""

    @pytest.fixture
    def engine(self, engines: Engines) -> Engine:
        """Of a project with a volume, where nothing else is."""
        made = engines("contract")
        made.make_volume(plan.shared_name("contract", LAUNCH), plan.labels("contract", LAUNCH))
        return made

    def test_a_life_is_shown(self, engine: Engine, engines: Engines) -> None:
        assert engine.containers() == []
        container = engine.create("contract-1", body("contract", 1, SLEEP), {}, "start/1")
        found = seen(engine, 1, "created")
        assert (found.id, found.name, found.topology, found.topology_id) == (
            container, "contract-1", "words", "words-0a1b2c",
        )  # fmt: skip
        assert engine.start(container) > 0
        seen(engine, 1, "running")
        assert engines("stranger").containers() == []
        engine.signal(container, "SIGTERM")
        seen(engine, 1, "exited")
        ending = engine.ending(container)
        assert (ending.exit_code, ending.out_of_memory) == (143, False)
        engine.signal(container, "SIGKILL")  # too late, and no error
        engine.remove(container)
        engine.remove(container)
        assert engine.containers() == []
        engine.signal(container, "SIGKILL")
        with pytest.raises(EngineError, match="No such container"):
            engine.ending(container)

    def test_what_runs_is_removed_by_its_name_too(self, engine: Engine) -> None:
        engine.start(engine.create("contract-1", body("contract", 1, SLEEP), {}, "start/1"))
        engine.remove("contract-1")
        assert engine.containers() == []

    def test_an_ending_has_code_and_last_words(self, engine: Engine) -> None:
        command = ["sh", "-c", "echo out of coffee; exit 3"]
        container = engine.create("contract-2", body("contract", 2, command), {}, "start/2")
        engine.start(container)
        seen(engine, 2, "exited")
        ending = engine.ending(container)
        assert (ending.exit_code, ending.last_line) == (3, "out of coffee")

    def test_what_cannot_be_made_says_why_and_leaves_nothing(self, engine: Engine) -> None:
        with pytest.raises(EngineError, match="nowhere:none is not on the Docker engine"):
            engine.require_image("nowhere:none")
        engine.require_image(IMAGE)
        with pytest.raises(EngineError, match="nowhere:none is not on the Docker engine"):
            engine.create("contract-1", {**body("contract", 1, SLEEP), "Image": "nowhere:none"}, {}, "start/1")
        engine.create("contract-1", body("contract", 1, SLEEP), {}, "start/1")
        with pytest.raises(EngineError, match="Conflict"):
            engine.create("contract-1", body("contract", 2, SLEEP), {}, "start/1")
        with pytest.raises(EngineError, match="not found"):  # at creation or at the start, as the engine likes
            engine.start(engine.create("contract-3", body("contract", 3, SLEEP, "contract-nowhere"), {}, "start/3"))
        assert {found.number for found in engine.containers()} <= {1, 3}

    def test_networks_and_volumes_have_owners_and_go(self, engine: Engine, engines: Engines) -> None:
        name, labels = plan.shared_name("contract", LAUNCH), plan.labels("contract", LAUNCH)
        for _ in range(2):
            engine.make_network(name, labels)
            engine.make_volume(name, labels)
        assert engine.networks() == engine.volumes() == {name: Owner("words", "words-0a1b2c")}
        assert engines("stranger").networks() == engines("stranger").volumes() == {}
        container = engine.create("contract-1", body("contract", 1, SLEEP, name), {}, "start/1")
        engine.start(container)
        assert seen(engine, 1, "running").networks == (name,)
        engine.remove_network(name)  # with a container on it
        assert engine.networks() == {}
        engine.remove(container)
        for _ in range(2):
            engine.remove_network(name)
            engine.remove_volume(name)
        assert engine.volumes() == {}

    def test_services_join(self, engine: Engine) -> None:
        name = plan.shared_name("contract", LAUNCH)
        engine.make_network(name, plan.labels("contract", LAUNCH))
        labels = {plan.CLUSTER_LABEL: "contract", plan.JOINS_LABEL: "contract", plan.ALIAS_LABEL: "api"}
        service = {**body("contract", None, SLEEP, "bridge"), "Labels": labels}
        container = engine.create("contract-service", service, {}, "start/service")
        assert engine.joiners() == [], "it does not run"
        engine.start(container)
        try:
            joiner = engine.joiners()[0]
            assert (joiner.id, joiner.alias, name in joiner.networks) == (container, "api", False)
            engine.connect(joiner, name)
            engine.connect(joiner, name)
            assert name in engine.joiners()[0].networks
            assert engine.containers() == [], "it is no container of a topology"
        finally:
            engine.remove(container)

    def test_files_are_put_into_the_volume_and_read_from_there(self, engine: Engine) -> None:
        files = {"launch.json": b"{}", "secret": b"0123"}
        engine.create("contract-1", body("contract", 1, SLEEP), files, "start/1")
        reader = body("contract", None, SLEEP)
        tar = b"".join(engine.read_folder("contract-reader", reader, f"{plan.VOLUME_PATH}/start/1"))
        with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
            read = {e.name: f.read() for e in archive if e.isfile() and (f := archive.extractfile(e)) is not None}
        assert read == {"1/launch.json": b"{}", "1/secret": b"0123"}
        assert list(engine.read_folder("contract-reader", reader, f"{plan.VOLUME_PATH}/log-files")) == []
        assert [found.name for found in engine.containers()] == ["contract-1"]

    def test_events_come_as_they_happen(self, engine: Engine) -> None:
        container = engine.create("contract-1", body("contract", 1, SLEEP), {}, "start/1")
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

    def test_it_has_cores(self, engine: Engine) -> None:
        assert engine.cores() >= 1
