"""Scan of a volume with real files of this user and, as root, of another user."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from heron_container.shell.resource_limits import VolumeFolders, scan_volume
from heron_runtime.code_user import CodeUser
from heron_runtime.linux import files_as
from heron_runtime.model.settings import MiB

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to be somebody else")
MANY = 100_000
SOMEBODY = CodeUser("somebody", 54_321, 54_321, (), "/")  # no other process runs as this user


def oneself() -> CodeUser:
    return CodeUser("me", os.geteuid(), os.getegid(), (), "/")


def places(folder: Path, *apart: str, user: CodeUser | None = None) -> VolumeFolders:
    return VolumeFolders(folder, tuple(str(folder / name) for name in apart), user or oneself())


def written(path: Path, size: int = MiB) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


def test_all_folders_count_except_excluded_ones(tmp_path: Path) -> None:
    written(tmp_path / "a/b/c/file", 3 * MiB)
    written(tmp_path / "logs/file", 5 * MiB)
    os.link(written(tmp_path / "d/one"), tmp_path / "d/two")
    (tmp_path / "link").symlink_to("/usr")
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 40)
    found = scan_volume(places(tmp_path, "logs"), MANY)
    assert 4 * MiB <= found.bytes < 5 * MiB, "twice the same file, holes and what a link leads to count nothing"
    assert found.files == 10
    assert found.largest == str(tmp_path / "a")
    assert found.closed == ()


def test_scan_ends_at_the_file_limit(tmp_path: Path) -> None:
    for number in range(50):
        written(tmp_path / f"folder{number % 5}/{number}", 1)
    assert 20 < scan_volume(places(tmp_path), 20).files <= 40


def test_missing_volume_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        scan_volume(places(tmp_path / "none"), MANY)


@pytest.fixture
def open_path() -> Iterator[Path]:
    """Yield a folder that every user can reach and write to."""
    with tempfile.TemporaryDirectory(prefix="heronry-volume-") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


KEEPS_OPEN = f"""
import os, sys, time
from heron_runtime.linux import change_user, set_hidden
change_user({SOMEBODY.uid}, {SOMEBODY.gid}, ())
file = open(sys.argv[1])
again = os.dup(file.fileno())
os.unlink(sys.argv[1])
set_hidden(sys.argv[2] == "hide")
print("ready", flush=True)
time.sleep(60)
"""


@AS_ROOT
@pytest.mark.parametrize("hide", [True, False])
def test_removed_open_file_is_counted_once_or_its_hider_is_named(open_path: Path, hide: bool) -> None:
    file = written(open_path / "gone", 7 * MiB)
    command = [sys.executable, "-c", KEEPS_OPEN, str(file), "hide" if hide else ""]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "ready\n"
            first, second = (scan_volume(places(open_path, user=SOMEBODY), MANY) for _ in range(2))
        finally:
            child.kill()
    assert first == second, "a process has one name"
    assert [name.startswith(f"process {child.pid} (python") for name in first.hiding] == [True] * hide
    assert first.removed_bytes == (0 if hide else 7 * MiB)
    assert scan_volume(places(open_path, user=SOMEBODY), MANY).removed_bytes == 0


@AS_ROOT
def test_files_as_applies_to_one_thread_and_block(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    shut = tmp_path / "shut"
    shut.mkdir(0o700)
    with files_as(SOMEBODY.uid, SOMEBODY.gid), pytest.raises(PermissionError):
        os.listdir(shut)
    assert os.listdir(shut) == []
