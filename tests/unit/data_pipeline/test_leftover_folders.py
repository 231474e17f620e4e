"""Temporary folders left by a killed job, next to files of other users."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from data_pipeline.__main__ import LOCK, TEMPORARY

CODE = "from data_pipeline.__main__ import _own_folder; _own_folder(); print('begun')"


def test_pipe_or_link_in_place_of_a_lock_stops_no_job(tmp_path: Path) -> None:
    for name, make in (("pipe", os.mkfifo), ("link", lambda path: os.symlink("/dev/tty", path))):
        folder = tmp_path / f"{TEMPORARY}{name}"
        folder.mkdir()
        make(folder / LOCK)
    (tmp_path / f"{TEMPORARY}left").mkdir()
    (tmp_path / f"{TEMPORARY}left" / LOCK).touch()
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout == "begun\n", done.stderr
    left = {path.name for path in tmp_path.iterdir()}
    assert f"{TEMPORARY}pipe" in left
    assert f"{TEMPORARY}left" not in left, "what was left with a free lock is removed"
