"""Sinks of tables of lakes whose process is killed at every step it takes (``lake_story.py``): each row is there once,
and six mistakes are seen. Tables with partitions have their rows by the same story."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from iceberg_tables import rows_of as in_iceberg
from lake_story import FORMATS, MISTAKES, ROWS, WORD
from lake_tables import rows_of as in_delta

STORY = Path(__file__).with_name("lake_story.py")


def told(folder: Path, seed: int, form: str, mistake: str = "") -> tuple[int, list[int]]:
    """How often the story's process was killed, and what is in its table."""
    folder.mkdir()
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, STORY, folder, str(seed), form, mistake], env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=True, timeout=200,
    )  # fmt: skip
    found = in_delta(folder / "table") if form.startswith("delta") else in_iceberg(folder)
    assert all(row["word"] == WORD[row["n"] % 2] for row in found)
    return int(done.stdout), sorted(row["n"] for row in found)


@pytest.mark.parametrize("form", FORMATS)
def test_a_process_that_is_killed_again_and_again_writes_each_row_once(form: str, tmp_path: Path) -> None:
    killed, found = told(tmp_path / "story", 1, form)
    assert killed >= 3
    assert found == list(range(ROWS))


OF_DELTA = [("delta by word" if "partition" in name else "delta", name) for name in MISTAKES]
OF_ICEBERG = [("iceberg", "a_commit_comes_twice"), ("iceberg by word, bucket", "the_staged_file_goes_first")]


@pytest.mark.parametrize(("form", "mistake"), [*OF_DELTA, *OF_ICEBERG])
def test_a_mistake_is_seen(form: str, mistake: str, tmp_path: Path) -> None:
    seeds = range(1, 6)
    assert any(told(tmp_path / str(seed), seed, form, mistake)[1] != list(range(ROWS)) for seed in seeds)
