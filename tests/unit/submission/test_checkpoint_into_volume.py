"""Submissions from a checkpoint where containers have their own storage.

The scheduler may observe at any step: the checkpoint is complete before a start, or nothing of it remains.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from heron_control.packing import pack
from heron_control.schedulers import container_spec
from heron_control.schedulers.container_spec import ContainerSpec
from heron_control.schedulers.docker import DockerOptions, DockerScheduler
from heron_control.schedulers.engine import TopologyOwner
from heron_control.schedulers.topology_folder import load_launch, place_of
from heron_control.submission.named_checkpoints import NamedCheckpoints
from heron_control.submission.service import SubmissionService
from heron_control.submission.submission import ClusterConfig, StartFrom, Submission
from heron_runtime.checkpoint_files import CheckpointFolder
from heron_runtime.failures import Failure, InvalidTopology
from heron_runtime.launch import Launch
from heron_runtime.model.topology import ComponentKind, ComponentSpec, TopologyDefinition
from heron_runtime.state import StoreAddress, open_store, topologies
from heron_runtime.state.store import Operation
from heron_runtime.wire.checkpoint_formats import decode_manifest
from tests.support.fake_engine import FakeEngine, Machine
from tests.unit.submission.test_from_checkpoint import KEEPS, WHOSE, checkpoint

PATIENCE_SECONDS = 30.0
SERIAL = count()
CHECKPOINTS = "topology/checkpoints"


class Watched(FakeEngine):
    """Engine that calls ``looks`` between any two steps."""

    looks: Callable[[], object] = staticmethod(lambda: None)

    def make_volume(self, name: str, labels: Any) -> None:
        super().make_volume(name, labels)
        self.looks()

    def write_folder(self, spec: ContainerSpec, folder: Path, path: str) -> None:
        super().write_folder(spec, folder, path)
        self.looks()


class World:
    """Cluster with a named checkpoint; ``commits`` is called before each transaction."""

    def __init__(self, home: Path) -> None:
        self.machine = Machine()
        self.machine.images.add("heronry:latest")
        source = CheckpointFolder(home / "source")
        self.named = CheckpointFolder(NamedCheckpoints(home, "docker").save(source, checkpoint(source), *WHOSE, "good"))
        self.store = open_store(f"memory://into-volume-{next(SERIAL)}")
        self.store.open()
        self.config = ClusterConfig(home, "docker", StoreAddress("memory://"))
        self.engine = Watched(self.machine, "heronry")
        self.scheduler = DockerScheduler(self.store, self.config.homes, DockerOptions(), self.engine)
        self.service = SubmissionService(self.config, self.store, self.scheduler)
        self.place = place_of(home, "docker", "me", "default", "words")
        self.package = home / "package"
        self.package.mkdir()

    def watch_each_step(self) -> None:
        self.engine.looks = self.scheduler.observe
        self.before_each_commit(self.scheduler.observe)

    def before_each_commit(self, call: Callable[[], object]) -> None:
        commit = self.store.commit

        def commits(operations: Sequence[Operation]) -> list[int]:
            call()
            return commit(operations)

        self.store.commit = commits  # type: ignore[method-assign]

    def submit(self, **config: Any) -> None:
        spout = ComponentSpec("words", ComponentKind.SPOUT, "m:Word", 2)
        definition = TopologyDefinition("words", "words-2", (spout,), {**KEEPS, **config})
        wanted = Submission(definition, pack(definition), self.package, "me", "default", "me")
        self.service.submit(replace(wanted, start=StartFrom("docker/me/default/before@good")))

    def check_it_begins_there(self) -> None:
        self.scheduler.observe()
        launch = load_launch(self.place)
        assert launch is not None
        assert (launch.start_checkpoint, launch.start_generation) == (9, 4)
        (files,) = self.machine.volumes.values()
        manifest = decode_manifest(files[f"{CHECKPOINTS}/manifests/9.json"])
        assert manifest.topology_id == "words-2"
        assert {f"{CHECKPOINTS}/parts/{name}" for name in manifest.files} <= set(files)
        assert {seen.state for seen in self.engine.containers()} == {"running"}
        assert not (self.place / "checkpoints").exists(), "it is not kept twice"

    def check_nothing_is_left(self) -> None:
        assert self.machine.volumes == {}
        assert self.machine.volume_labels == {}
        assert self.engine.containers() == []
        assert not self.place.exists()
        assert not list(self.place.parent.glob(".*"))
        assert not topologies.list_topologies(self.store)


def in_world(scenario: Callable[[World], None]) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", name)
        world = World(Path(name))
        try:
            scenario(world)
        finally:
            world.scheduler.close()
            world.store.close()


def test_checkpoint_is_in_the_volume_before_a_start() -> None:
    def scenario(world: World) -> None:
        world.watch_each_step()
        world.submit()
        world.check_it_begins_there()

    in_world(scenario)


def test_new_submission_is_not_removed_by_a_concurrent_observation() -> None:
    """The scheduler reads the store before the transaction and acts on the result after it."""

    def scenario(world: World) -> None:
        ready, go = threading.Event(), threading.Event()

        def waits() -> None:
            ready.set()
            assert go.wait(PATIENCE_SECONDS)

        world.before_each_commit(waits)
        submitting = threading.Thread(target=world.submit)
        submitting.start()
        assert ready.wait(PATIENCE_SECONDS)
        real = DockerScheduler._read_store

        def meanwhile(self: DockerScheduler, shown: set[TopologyOwner]) -> set[str]:
            over = real(self, shown)
            go.set()
            submitting.join(PATIENCE_SECONDS)
            return over

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DockerScheduler, "_read_store", meanwhile)
            world.scheduler.observe()
        assert not submitting.is_alive()
        world.check_it_begins_there()

    in_world(scenario)


def test_failed_submission_leaves_nothing() -> None:
    def fails(world: World, kind: type[Exception], words: str, **config: Any) -> None:
        with pytest.raises(kind, match=words):
            world.submit(**config)
        world.scheduler.observe()
        world.check_nothing_is_left()

    def full(world: World) -> None:
        for method in ("make_volume", "write_folder"):
            world.machine.fails = {method: "the Docker engine says: no space left on device"}
            fails(world, Failure, "no space left")

    def granted_less(world: World) -> None:
        fails(world, InvalidTopology, "is granted 0.0 MiB", **{"topology.volume.disk": 1})

    def elsewhere(world: World) -> None:
        storage = {"topology.stateful.checkpoint.storage": "file:///mnt/checkpoints"}
        fails(world, InvalidTopology, "nothing can be put there from outside", **storage)

    def damaged(world: World) -> None:
        part = max((world.named.folder / "parts").iterdir())
        part.write_bytes(part.read_bytes()[:-1] + b"?")
        fails(world, Failure, "checkpoint 9 cannot be read")

    for scenario in (full, granted_less, elsewhere, damaged):
        in_world(scenario)


def test_leftovers_of_a_dead_process_are_removed_by_the_next_scheduler() -> None:
    def scenario(world: World) -> None:
        world.before_each_commit(sys.exit)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DockerScheduler, "remove", lambda *_: None)
            with pytest.raises(SystemExit):
                world.submit()
        assert container_spec.shared_name(
            "heronry", Launch("docker", "me", "default", "words", "words-2", "", "", "")
        ) in (world.machine.volumes)
        world.scheduler.observe()
        assert world.machine.volumes, "this one may still come"
        DockerScheduler(world.store, world.config.homes, DockerOptions(), world.engine).observe()
        world.check_nothing_is_left()

    in_world(scenario)
