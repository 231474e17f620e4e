"""Sinks of tables of lakes whose process is killed at every step it takes (``lake_story.py``): each row is there once,
and five mistakes are seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from iceberg_tables import rows_of as in_iceberg
from lake_story import MISTAKES, ROWS
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
    found = in_delta(folder / "table") if form == "delta" else in_iceberg(folder)
    return int(done.stdout), sorted(row["n"] for row in found)


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_process_that_is_killed_again_and_again_writes_each_row_once(form: str, tmp_path: Path) -> None:
    killed, found = told(tmp_path / "story", 1, form)
    assert killed >= 3
    assert found == list(range(ROWS))


@pytest.mark.parametrize(
    ("form", "mistake"), [*(("delta", name) for name in MISTAKES), ("iceberg", "a_commit_comes_twice")]
)
def test_a_mistake_is_seen(form: str, mistake: str, tmp_path: Path) -> None:
    seeds = range(1, 6)
    assert any(told(tmp_path / str(seed), seed, form, mistake)[1] != list(range(ROWS)) for seed in seeds)
