"""Checkpoints in a volume that only containers see, read through a container's real server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from heron_container.shell.service import serve
from heron_control.inspection.checkpoint_copies import DamagedCheckpoint, damaged_parts
from heron_control.inspection.checkpoints import details, read_manifest, rows
from heron_control.inspection.inspector import Asker
from heron_control.inspection.remote_checkpoints import CHUNK_BYTES, RemoteCheckpoints
from heron_control.schedulers.topology_folder import write_secrets
from heron_control.submission.named_checkpoints import NamedCheckpoints
from heron_instance.core.state.snapshot import TaskSnapshot
from heron_instance.core.values_codec import ValuesCodec
from heron_runtime.checkpoint_files import CheckpointFolder
from heron_runtime.failures import Failure, Unavailable
from heron_runtime.launch import Launch
from heron_runtime.model.checkpoints import Manifest, StatePart, initial_manifest, next_manifest
from heron_runtime.model.plan import NO_PLAN
from heron_runtime.model.records import ContainerLocation
from heron_runtime.net.identity import identity_of
from heron_runtime.net.rpc import CONTAINER_SERVICE
from heron_runtime.wire.container import ContainerStatus, ReadFile

WHOSE = ("me", "default", "words")


def take(folder: CheckpointFolder, base: Manifest, number: int) -> Manifest:
    """Take a checkpoint of two tasks, one of which has more data than one read returns."""
    parts = []
    for task, size in ((1, 1), (2, CHUNK_BYTES + 5)):
        draft = StatePart("words", task, 7, 4, number, base.turn + 1, 0, "")
        part, pieces = TaskSnapshot(draft, [(("state", "at"), "x" * size)], [], ValuesCodec("auto")).encode()
        folder.write_part(part.name, pieces)
        parts.append(part)
    made = next_manifest(base, parts, NO_PLAN, {}, "", {"words": "a spout"})
    folder.write_manifest(made)
    return made


class Served:
    """Container server on its own thread, and a client of it."""

    def __init__(self, home: Path) -> None:
        self.local = CheckpointFolder(home / "checkpoints")
        self.launch = Launch("c", "me", "default", "words", "words-1", "memory://", str(home), str(home))
        write_secrets(home)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        starting = serve(self.launch, lambda: ContainerStatus(1, "127.0.0.1", 1, ()))
        self.server, port = asyncio.run_coroutine_threadsafe(starting, self.loop).result(20)
        self.location = ContainerLocation("words-1", 1, "127.0.0.1", port, 42, 1)
        self.dead = ContainerLocation("words-1", 2, "127.0.0.1", 1, 43, 1)
        self.asker = Asker(identity_of(self.launch), 5.0)

    def remote(self, *locations: ContainerLocation) -> RemoteCheckpoints:
        return RemoteCheckpoints(self.local.folder, self.asker, locations or (self.location,))

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.stop(None), self.loop).result(20)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(20)
        self.loop.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    home = tmp_path / "home"
    home.mkdir()
    made = Served(home)
    yield made
    made.stop()


def test_remote_checkpoints_equal_those_on_disk(served: Served, tmp_path: Path) -> None:
    remote = served.remote(served.dead, served.location)  # locations that do not answer are skipped
    assert (remote.manifests(), remote.parts()) == ([], []), "before the first one there is no folder"
    base = initial_manifest("words-1")
    for number in (3, 4):
        base = take(served.local, base, number)
    assert (remote.manifests(), remote.parts()) == ([3, 4], served.local.parts())
    assert remote.read_manifest(4) == base
    assert rows(remote, 4) == rows(served.local, 4)
    assert details(remote, 4, 4) == details(served.local, 4, 4)
    assert damaged_parts(remote, base) == []
    with pytest.raises(Failure, match="no checkpoint 9"):
        read_manifest(remote, 9)
    named = NamedCheckpoints(tmp_path, "c")
    kept = CheckpointFolder(named.save(remote, base, *WHOSE, "before"))
    assert damaged_parts(kept, base) == []
    assert kept.read_manifest(4) == base
    assert set(kept.parts()) == base.files


def test_damaged_and_missing_parts_are_named(served: Served, tmp_path: Path) -> None:
    base = take(served.local, initial_manifest("words-1"), 3)
    first, second = (served.local.part_file(part.name) for part in base.parts)
    first.write_bytes(first.read_bytes()[:-1] + b"?")
    second.unlink()
    said = damaged_parts(served.remote(), base)
    assert said == damaged_parts(served.local, base)
    assert len(said) == 2
    with pytest.raises(DamagedCheckpoint, match=r"words, task 1"):
        NamedCheckpoints(tmp_path, "c").save(served.remote(), base, *WHOSE, "before")
    manifest = served.local.folder / "manifests" / "3.json"
    manifest.write_bytes(manifest.read_bytes()[:-3])
    assert rows(served.remote(), 3) == rows(served.local, 3)
    with pytest.raises(Unavailable, match="none of which answers"):
        served.remote(served.dead).manifests()


def test_only_checkpoint_files_are_served(served: Served) -> None:
    take(served.local, initial_manifest("words-1"), 3)
    (served.local.folder / "manifests" / "link").symlink_to(Path(served.launch.home, "key.pem"))
    for path, code in (("../key.pem", "INVALID_ARGUMENT"), ("manifests/link", "NOT_FOUND")):
        with pytest.raises(grpc.RpcError) as refused:
            served.asker.call(served.location, CONTAINER_SERVICE, "ReadCheckpointFile", ReadFile(path, 0, 100))
        assert isinstance(refused.value, grpc.Call)
        assert refused.value.code().name == code
    with pytest.raises(grpc.RpcError):
        served.asker.call(
            served.location, CONTAINER_SERVICE, "ReadFile", ReadFile("../checkpoints/manifests/3.json", 0, 9)
        )
