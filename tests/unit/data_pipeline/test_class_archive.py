"""Archive of Spark's classes: one writer at a time, and removal of a killed writer's leftovers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from data_pipeline.shell.class_archive import workshop

ROOT = Path(__file__).resolve().parents[3]
MAKER = """
import pathlib, sys
from data_pipeline.shell.class_archive import workshop

with workshop(pathlib.Path(sys.argv[1])) as folder:
    (folder / "half").write_text("made")
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_leftovers_of_a_killed_writer_are_removed_and_a_live_one_is_untouched(tmp_path: Path) -> None:
    place = tmp_path / "share"
    maker = subprocess.Popen(
        [sys.executable, "-c", MAKER, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert maker.stdout is not None
        theirs = Path(maker.stdout.readline().strip())
        with pytest.raises(RuntimeError, match="another `heron spark prepare` is writing it"), workshop(place):
            pass
        assert (theirs / "half").read_text() == "made"
    finally:
        maker.kill()
        maker.communicate()
    assert theirs.is_dir(), "kill -9 leaves it"
    (place / "spark-1.jsa").touch()
    with workshop(place) as mine:
        assert [path.name for path in place.glob(".making-*")] == [mine.name]
    assert sorted(path.name for path in place.iterdir()) == [".making.lock", "spark-1.jsa"]
