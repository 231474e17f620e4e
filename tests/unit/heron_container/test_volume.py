"""Disk of a container: scan and quota of its volume, and the detection of a full disk."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heron_container.core.storage import (
    LEAST_FREE_BYTES,
    LEAST_SECONDS,
    MOST_SECONDS,
    PATIENCE,
    REST,
    ROOM,
    DiskSpace,
    VolumeQuota,
    VolumeUsage,
    describe_full_disk,
    pause_seconds,
)
from heron_container.shell.container import read_disk_space
from heron_container.shell.resource_limits import VolumeFolders, scan_volume
from heron_runtime.code_user import CodeUser
from heron_runtime.linux import files_as
from heron_runtime.model.containers import LEAST_FILES, volume_bytes, volume_files
from heron_runtime.model.plan import ContainerPlan, PackingPlan, Resources
from heron_runtime.model.settings import GiB, Keys, MiB

GRANTED = 100 * MiB
sizes = st.sampled_from([0, GRANTED // 2, GRANTED, GRANTED + 1, 2 * GRANTED]) | st.integers(0, 2 * GRANTED)
usages = st.builds(
    VolumeUsage,
    bytes=sizes,
    files=st.sampled_from([0, LEAST_FILES, LEAST_FILES + 1]) | st.integers(0, 2 * LEAST_FILES),
    removed_bytes=st.just(0) | st.integers(0, GRANTED),
    largest=st.just("/volume/cache"),
    closed=st.sampled_from([(), ("/volume/closed",)]),
    hiding=st.sets(st.sampled_from(["process 7", "process 8"])).map(frozenset),
)
looks = st.lists(usages, min_size=1, max_size=8)
SETTINGS = settings(database=None)


def measured(usage: VolumeUsage, containers: int) -> bool:
    return not usage.closed and usage.bytes + containers * usage.removed_bytes <= GRANTED * ROOM


@SETTINGS
@given(looks, st.integers(1, 5))
def test_tasks_are_held_beyond_the_limit(found: list[VolumeUsage], containers: int) -> None:
    watch = VolumeQuota()
    for usage in found:
        trouble = watch.update(usage, GRANTED, containers)
        beyond = usage.bytes + containers * usage.removed_bytes > GRANTED or usage.files > LEAST_FILES
        assert trouble or not (beyond or usage.closed)


@SETTINGS
@given(looks, st.integers(1, 5))
def test_tasks_run_if_there_is_room(found: list[VolumeUsage], containers: int) -> None:
    """Earlier excess does not matter."""
    watch = VolumeQuota()
    for usage in found:
        trouble = watch.update(usage, GRANTED, containers)
        roomy = measured(usage, containers) and usage.files <= LEAST_FILES * ROOM
        assert not trouble or not roomy or usage.hiding


@SETTINGS
@given(st.integers(int(GRANTED * ROOM) + 1, GRANTED), st.booleans())
def test_state_is_kept_between_room_and_limit(size: int, ended: bool) -> None:
    watch = VolumeQuota()
    watch.update(VolumeUsage(2 * GRANTED if ended else 0, 1), GRANTED, 1)
    assert bool(watch.update(VolumeUsage(size, 1), GRANTED, 1)) == ended


@SETTINGS
@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_hiding_process_is_named_after_several_scans(hides: list[bool]) -> None:
    watch, in_a_row = VolumeQuota(), 0
    for hidden in hides:
        in_a_row = in_a_row + 1 if hidden else 0
        trouble = watch.update(VolumeUsage(0, 0, hiding=frozenset({"process 7"} if hidden else ())), GRANTED, 1)
        assert ("process 7 hides" in trouble) == (in_a_row >= PATIENCE)


@SETTINGS
@given(st.floats(0, 1000))
def test_scans_take_a_bounded_share_of_time(took: float) -> None:
    pause = pause_seconds(took)
    assert LEAST_SECONDS <= pause <= MOST_SECONDS
    assert pause >= took * REST or pause == MOST_SECONDS


def test_message_names_place_limit_and_remedy() -> None:
    watch = VolumeQuota()
    text = watch.update(VolumeUsage(300 * MiB, 2, 0, "/volume/a\nb"), GRANTED, 1)
    assert "user code keeps 300 MiB in files, most of it in /volume/a\\nb, of 100 MiB (topology.volume.disk)" in text
    assert "Remove files there as heronry-code, or submit the topology again" in text
    text = watch.update(VolumeUsage(0, 0, 40 * MiB), GRANTED, 3)
    assert "40 MiB in removed files that are open in this container" in text
    text = watch.update(VolumeUsage(0, LEAST_FILES + 1, 0, "/volume/many"), GRANTED, 3)
    assert "more than 10,000 files, the limit for 100 MiB" in text
    text = watch.update(VolumeUsage(0, 0, closed=("/volume/shut",)), GRANTED, 3)
    assert "/volume/shut cannot be read" in text
    assert "chmod u+rx" in text


def test_volume_size_follows_the_containers_unless_configured() -> None:
    plans = [PackingPlan("t", tuple(ContainerPlan(i, (), Resources(disk_bytes=GiB)) for i in range(n))) for n in (1, 9)]
    assert [volume_bytes({}, plan) for plan in plans] == [4 * GiB, 9 * GiB]
    assert {volume_bytes({Keys.TOPOLOGY_VOLUME_DISK.name: 7 * MiB}, plan) for plan in plans} == {7 * MiB}
    assert (volume_files(MiB), volume_files(4 * GiB)) == (LEAST_FILES, 262_144)


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


ROOMY = DiskSpace("/roomy", 1 << 30, 1 << 40, 1000, 2000)


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (ROOMY, ""),
        (DiskSpace("/d", LEAST_FREE_BYTES, 1 << 40, 5, 9), ""),
        (DiskSpace("/d", LEAST_FREE_BYTES - 1, 1 << 40, 5, 9), "the disk of /d is full: 4095 KiB left"),
        (DiskSpace("/d", 1 << 30, 1 << 40, 0, 9), "the disk of /d is full: all of its 9 files are in use"),
        (DiskSpace("/d", 3000, 1 << 40, 5, 9), "the disk of /d is full: 2 KiB left. Logs and metrics lose lines"),
        (DiskSpace("/d", 0, 0, 1, 9), ""),
        (DiskSpace("/d", 0, 0, 0, 9), "the disk of /d is full: all of its 9 files are in use"),
        (DiskSpace("/counts-nothing", 0, 0, 0, 0), ""),
    ],
)
def test_full_disk_is_described(space: DiskSpace, said: str) -> None:
    text = describe_full_disk([ROOMY, space])
    assert text.startswith(said)
    assert bool(text) == bool(said)
    assert not said or "free some there" in text


def test_disk_space_of_missing_folders_is_skipped(tmp_path: Path) -> None:
    (found,) = read_disk_space([tmp_path / "is not there", tmp_path])
    assert found.folder == str(tmp_path)
    assert 0 < found.free_bytes <= found.bytes
