"""Shared storage: each topology's folder has an owner and is removed with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from heron_control.schedulers import container_spec
from heron_control.schedulers.engine import EngineError, TopologyOwner
from heron_control.schedulers.shared_storage import OWNER_FILE, SharedStorage
from tests.unit.schedulers.test_container_spec import launch_named

LABELS = container_spec.owner_labels("heronry", launch_named("T"))


def test_folder_is_created_once_with_an_owner_and_removed(tmp_path: Path) -> None:
    storage = SharedStorage(tmp_path, "heronry")
    for _ in range(2):
        storage.make("t", LABELS)
    assert storage.owners() == {"t": TopologyOwner("T", "T-0123456789ab")}
    assert SharedStorage(tmp_path, "stranger").owners() == {}
    for part in container_spec.SHARED_MOUNTS:
        assert (tmp_path / "t" / part).stat().st_mode & 0o777 == 0o700
    for _ in range(2):
        storage.remove("t")
    assert list(tmp_path.iterdir()) == []


def test_checkpoint_is_stored_where_containers_expect_it(tmp_path: Path) -> None:
    storage, source = SharedStorage(tmp_path / "shared", "heronry"), tmp_path / "source"
    storage.folder.mkdir()
    for name in ("manifests/9.json", "parts/a.part"):
        (source / name).parent.mkdir(parents=True)
        (source / name).write_bytes(name.encode())
        (source / name).chmod(0o600)
    path = f"{container_spec.HOME}/checkpoints"
    with pytest.raises(EngineError, match="cannot store a checkpoint"):
        storage.put("t", source, path)
    storage.make("t", LABELS)
    before = os.umask(0o077)
    try:
        for _ in range(2):
            storage.put("t", source, path)
    finally:
        os.umask(before)
    there = storage.folder / "t" / "checkpoints"
    found = {str(file.relative_to(there)): file for file in there.rglob("*") if file.is_file()}
    assert {name: file.read_bytes().decode() for name, file in found.items()} == {name: name for name in found}
    assert set(found) == {"manifests/9.json", "parts/a.part"}
    assert {file.stat().st_mode & 0o777 for file in found.values()} == {0o644}
    with pytest.raises(EngineError, match="no file can be copied there"):
        storage.put("t", source, f"{container_spec.HOME}/elsewhere")


def test_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    storage = SharedStorage(tmp_path, "heronry")
    storage.remove("mine")
    assert (tmp_path / "mine").is_dir()


def test_unreadable_owner_file_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    storage = SharedStorage(tmp_path, "heronry")
    storage.make("t", LABELS)
    (tmp_path / "t" / OWNER_FILE).chmod(0o600)
    (tmp_path / "t" / OWNER_FILE).write_text("{")
    with pytest.raises(EngineError, match="remove its folder if no topology uses it"):
        storage.owners()


def test_missing_storage_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot store a folder"):
        SharedStorage(tmp_path / "nothing", "heronry").make("t", LABELS)


WORK = """
import os, sys
for number in range(200_000):
    try:
        os.close(os.open(f"{sys.argv[1]}/{number % 50}.part", os.O_CREAT))
        os.unlink(f"{sys.argv[1]}/{(number - 25) % 50}.part")
    except FileNotFoundError:
        if not os.path.exists(sys.argv[1]):
            break
    if number == 100:
        print("works", flush=True)
"""


def test_folder_is_removed_while_a_container_still_writes(tmp_path: Path) -> None:
    """The process writes and removes files for a while, like a stopping container on another node."""
    storage = SharedStorage(tmp_path, "heronry")
    for number in range(5):
        storage.make(f"t{number}", LABELS)
        command = [sys.executable, "-c", WORK, str(tmp_path / f"t{number}" / "files")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            storage.remove(f"t{number}")
        assert not (tmp_path / f"t{number}").exists()


def test_partly_removed_folder_is_removed_by_the_next_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = SharedStorage(tmp_path, "heronry")
    storage.make("t", LABELS)
    (tmp_path / "t" / ".a").touch()
    (tmp_path / "t" / "link").symlink_to(tmp_path)
    real = shutil.rmtree

    def refuses(path: Path) -> None:
        if path.name == "files":
            raise PermissionError(13, "another user's")
        real(path)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", refuses)
        with pytest.raises(PermissionError):
            storage.remove("t")
    assert storage.owners() == {"t": TopologyOwner("T", "T-0123456789ab")}, "it is still known whose it is"
    storage.remove("t")
    assert list(tmp_path.iterdir()) == []
