"""Detection and description of a full disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from heron_container.core.storage import LEAST_FREE_BYTES, DiskSpace, describe_full_disk
from heron_container.shell.container import read_disk_space

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
