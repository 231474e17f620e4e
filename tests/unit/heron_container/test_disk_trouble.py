"""When a disk is said to be full."""

from __future__ import annotations

from pathlib import Path

import pytest

from heron_container.core.disk import LEAST_FREE_BYTES, Space, disk_trouble
from heron_container.shell.disk import spaces_of

ROOMY = Space("/roomy", 1 << 30, 1 << 40, 1000, 2000)


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (ROOMY, ""),
        (Space("/d", LEAST_FREE_BYTES, 1 << 40, 5, 9), ""),
        (Space("/d", LEAST_FREE_BYTES - 1, 1 << 40, 5, 9), "the disk of /d is full: 4095 KiB are left"),
        (Space("/d", 1 << 30, 1 << 40, 0, 9), "the disk of /d is full: it has room for no more files, of 9"),
        (Space("/d", 3000, 1 << 40, 5, 9), "the disk of /d is full: 2 KiB are left. Logs and metrics lose lines"),
        (Space("/d", 0, 0, 1, 9), ""),
        (Space("/d", 0, 0, 0, 9), "the disk of /d is full: it has room for no more files, of 9"),
        (Space("/counts-nothing", 0, 0, 0, 0), ""),
    ],
)
def test_what_is_said(space: Space, said: str) -> None:
    text = disk_trouble([ROOMY, space])
    assert text.startswith(said)
    assert bool(text) == bool(said)
    assert not said or "free some space" in text


def test_real_folders_are_asked_and_others_passed_over(tmp_path: Path) -> None:
    (found,) = spaces_of([tmp_path / "is not there", tmp_path])
    assert found.folder == str(tmp_path)
    assert 0 < found.free_bytes <= found.bytes
