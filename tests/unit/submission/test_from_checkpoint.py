"""Submissions from a checkpoint, and named checkpoints and their quota, on real files: all or nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from heron_control.inspection.checkpoint_copies import DamagedCheckpoint, damaged_parts, needed, size_of
from heron_control.packing import pack
from heron_control.schedulers.topology_folder import load_launch, place_of
from heron_control.submission.named_checkpoints import CheckpointQuotaSpent, NamedCheckpoints
from heron_control.submission.service import SubmissionService
from heron_control.submission.submission import ClusterConfig, StartFrom, Submission
from heron_instance.core.state.snapshot import TaskSnapshot
from heron_instance.core.values_codec import ValuesCodec
from heron_runtime.checkpoint_files import CheckpointFolder
from heron_runtime.failures import ExistsAlready, Failure, InvalidTopology, NotFound, UsageError
from heron_runtime.launch import Launch
from heron_runtime.model.checkpoints import Manifest, StatePart, initial_manifest, next_manifest
from heron_runtime.model.plan import NO_PLAN
from heron_runtime.model.topology import ComponentKind, ComponentSpec, TopologyDefinition
from heron_runtime.state import StoreAddress, open_store
from tests.unit.submission.test_submission_service import ScriptedScheduler

WHOSE = ("me", "default", "before")
KEEPS = {"topology.reliability.mode": "EFFECTIVELY_ONCE"}


def checkpoint(folder: CheckpointFolder) -> Manifest:
    """Write checkpoint 9 of a spout with two tasks, taken in generation 4."""
    parts = []
    for task in (1, 2):
        draft = StatePart("words", task, 7, 4, 9, 0, 0, "")
        part, pieces = TaskSnapshot(draft, [(("state", "at"), task)], [], ValuesCodec("auto")).encode()
        folder.write_part(part.name, pieces)
        parts.append(part)
    made = next_manifest(initial_manifest("before-1"), parts, NO_PLAN, {}, "", {"words": "a spout"})
    folder.write_manifest(made)
    return made


class World:
    """Home with a named checkpoint and a service. ``words`` is submitted with two tasks."""

    def __init__(self, home: Path, shared: bool = True) -> None:
        self.home = home
        self.source = CheckpointFolder(home / "source")
        self.manifest = checkpoint(self.source)
        self.named = NamedCheckpoints(home, "local")
        self.kept = CheckpointFolder(self.named.save(self.source, self.manifest, *WHOSE, "good"))
        address = StoreAddress((home / "state").as_uri().replace("file:", "files:", 1))
        store = open_store(address.url)
        store.open()
        self.scheduler = ScriptedScheduler()
        self.service = SubmissionService(ClusterConfig(home, "local", address, shared), store, self.scheduler)

    @property
    def place(self) -> Path:
        return place_of(self.home, "local", "me", "default", "words")

    def submit(self, reference: str, name: str = "words", **config: str) -> None:
        spout = ComponentSpec(name, ComponentKind.SPOUT, "m:Word", 2)
        definition = TopologyDefinition("words", "words-2", (spout,), {**KEEPS, **config})
        package = self.home / "package"
        package.mkdir(exist_ok=True)
        submission = Submission(definition, pack(definition), package, "me", "default", "me")
        self.service.submit(replace(submission, start=StartFrom(reference)))

    def nothing_is_left(self) -> bool:
        return not self.place.exists() and not list(self.place.parent.glob(".*"))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_checkpoint_files_are_copied_and_the_launch_names_the_start(world: World) -> None:
    world.submit("local/me/default/before@good")
    launch = load_launch(world.place)
    assert launch is not None
    assert (launch.start_checkpoint, launch.start_generation) == (9, 4)
    folder = CheckpointFolder(world.place / "checkpoints")
    manifest = folder.read_manifest(9)
    assert manifest.topology_id == "words-2"
    assert damaged_parts(folder, manifest) == []
    assert set(folder.parts()) == manifest.files
    world.named.delete(*WHOSE, "good")
    assert damaged_parts(folder, manifest) == [], "they are copies"
    assert not (world.home / "checkpoints").exists(), "folders that are empty go, too"


@pytest.mark.parametrize("fails", ["start", "damage", "others"])
def test_failed_submission_leaves_nothing_in_the_storage(world: World, fails: str, tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    config = {"topology.stateful.checkpoint.storage": storage.as_uri()}
    expected: type[BaseException] = DamagedCheckpoint
    if fails == "start":
        world.scheduler.interrupts, expected = "start words-2", KeyboardInterrupt
    elif fails == "others":
        checkpoint(CheckpointFolder(storage))
        expected = InvalidTopology
    else:
        part = max((world.kept.folder / "parts").iterdir())
        part.write_bytes(part.read_bytes()[:-1] + b"?")
    with pytest.raises(expected):
        world.submit(f"{world.kept.folder.as_uri()}", **config)
    there = CheckpointFolder(storage)
    assert len(there.manifests()) == (1 if fails == "others" else 0)
    assert len(there.parts()) == (2 if fails == "others" else 0)
    assert world.nothing_is_left()


@pytest.mark.parametrize(
    ("reference", "error"),
    [
        ("local/me/default/before", NotFound),
        ("local/me/default/before@", UsageError),
        ("local/me/default/before@..", UsageError),
        ("local/me/default/../x@good", UsageError),
        ("local/me/default/before@9", NotFound),
        ("file:relative", UsageError),
        ("file:///nowhere", NotFound),
        ("prod/me/default/before@good", UsageError),
        ("s3://bucket", UsageError),
        ("", UsageError),
    ],
)
def test_invalid_checkpoint_reference_is_rejected(world: World, reference: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        world.submit(reference)
    assert world.nothing_is_left()


def test_state_without_a_place_in_the_topology_is_rejected(world: World) -> None:
    with pytest.raises(InvalidTopology, match="words: unknown component"):
        world.submit("local/me/default/before@good", name="others")
    with pytest.raises(InvalidTopology, match="words keeps no state, so it cannot start from a checkpoint"):
        world.submit("local/me/default/before@good", **{"topology.reliability.mode": "ATLEAST_ONCE"})


def test_ambiguous_checkpoint_folder_requires_a_number(world: World) -> None:
    world.kept.write_manifest(replace(world.manifest, checkpoint=8))
    with pytest.raises(UsageError, match=r"Write|'8', '9'"):
        world.submit(world.kept.folder.as_uri())
    world.submit(f"{world.kept.folder.as_uri()}@9")


def test_api_server_rejects_folders_and_foreign_container_storage(tmp_path: Path) -> None:
    world = World(tmp_path, shared=False)
    with pytest.raises(UsageError, match="the api server takes checkpoints of its own cluster only"):
        world.submit(world.kept.folder.as_uri())

    def inside(launch: Launch, folder: Path, package: Path) -> Launch:
        return replace(launch, home="/var/lib/inside")

    world.scheduler.prepare = inside  # type: ignore[method-assign]
    with pytest.raises(InvalidTopology, match="nothing can be put there from outside"):
        world.submit("local/me/default/before@good", **{"topology.stateful.checkpoint.storage": "file:///mnt"})
    assert world.nothing_is_left()


def test_checkpoint_name_is_unique_and_requires_whole_files(world: World) -> None:
    with pytest.raises(ExistsAlready):
        world.named.save(world.source, world.manifest, *WHOSE, "good")
    with pytest.raises(UsageError):
        world.named.save(world.source, world.manifest, *WHOSE, "../bad")
    next((world.source.folder / "parts").iterdir()).unlink()
    with pytest.raises(DamagedCheckpoint, match=r"4-9-\d-7.part of checkpoint 9 .* cannot be read"):
        world.named.save(world.source, world.manifest, *WHOSE, "half")
    assert [row["name"] for row in world.named.rows(*WHOSE)] == ["good"]
    assert [path.name for path in world.kept.folder.parent.iterdir()] == ["good"]


def test_checkpoint_that_would_fill_the_disk_is_not_saved(world: World) -> None:
    part = replace(world.manifest.parts[0], size=2**62)
    with pytest.raises(Failure, match="more than half"):
        world.named.save(world.source, replace(world.manifest, parts=(part,)), *WHOSE, "large")
    assert [path.name for path in world.kept.folder.parent.iterdir()] == ["good"]


def test_named_checkpoints_are_listed_after_a_resubmission_without_state(world: World) -> None:
    spout = ComponentSpec("words", ComponentKind.SPOUT, "m:Word", 2)
    definition = TopologyDefinition("before", "before-2", (spout,))
    (world.home / "package").mkdir()
    submission = Submission(definition, pack(definition), world.home / "package", "me", "default", "me")
    world.service.submit(submission)
    assert [row["name"] for row in world.service.checkpoints.rows("before", "me", "default")] == ["good"]
    world.named.delete(*WHOSE, "good")
    with pytest.raises(UsageError, match="has no checkpoints"):
        world.service.checkpoints.rows("before", "me", "default")


def test_the_named_checkpoints_of_a_role_have_a_quota(tmp_path: Path) -> None:
    source = CheckpointFolder(tmp_path / "source")
    manifest = checkpoint(source)
    size = size_of(needed(manifest))
    assert size > 0
    NamedCheckpoints(tmp_path, "local").save(source, manifest, "ads", "default", "words", "first")
    (first,) = tmp_path.glob("checkpoints/local/ads/default/words/first")
    used = sum(path.stat().st_size for path in first.rglob("*") if path.is_file())
    named = NamedCheckpoints(tmp_path, "local", used + size)
    named.save(source, manifest, "ads", "prod", "words", "second")
    with pytest.raises(CheckpointQuotaSpent, match="role ads may have") as refused:
        named.save(source, manifest, "ads", "default", "other", "third")
    assert "heron checkpoint delete" in refused.value.cure
    assert not list(tmp_path.glob("checkpoints/local/ads/default/other/*"))
    named.save(source, manifest, "search", "default", "words", "third")  # another role
    named.delete("ads", "default", "words", "first")
    named.save(source, manifest, "ads", "default", "other", "third")
