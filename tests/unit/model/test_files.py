"""Atomic replacement of files, and listing of folders."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from heron_runtime.files import entries, replace_file


def test_file_is_replaced_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    for content in (b"one", "twö"):
        replace_file(path, content, 0o400, durable=True)
    assert path.read_text(encoding="utf-8") == "twö"
    assert stat.S_IMODE(path.stat().st_mode) == 0o400
    assert list(tmp_path.iterdir()) == [path]


def test_concurrent_writers_of_one_path_do_not_conflict(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    threads = [threading.Thread(target=replace_file, args=(path, b"x" * 100_000, 0o400)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() == b"x" * 100_000
    assert list(tmp_path.iterdir()) == [path]


def test_failed_replacement_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config"
    path.write_text("old")

    def full(_: object, __: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_folder_that_is_created_and_removed_concurrently_can_be_listed(tmp_path: Path) -> None:
    folder = tmp_path / "runtime"
    script = "import os, sys\nwhile True:\n os.mkdir(sys.argv[1])\n os.rmdir(sys.argv[1])\n"
    other = subprocess.Popen([sys.executable, "-S", "-c", script, str(folder)])
    try:
        assert all(entries(folder) == [] for _ in range(20_000))
    finally:
        other.kill()
        other.wait()
    folder.mkdir(exist_ok=True)
    (folder / "b").touch()
    (folder / "a").touch()
    assert entries(folder) == [folder / "a", folder / "b"]
    assert entries(folder / "a") == entries(folder / "c") == []
