"""Lake sinks whose process is killed at every step (``lake_story.py``): the table contains each row once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.delta_tables import rows_of as in_delta
from tests.support.iceberg_tables import rows_of as in_iceberg
from tests.unit.connect.lake_story import FORMATS, ROWS, WORD

STORY = Path(__file__).with_name("lake_story.py")


def told(folder: Path, seed: int, form: str) -> tuple[int, list[int]]:
    """Return the number of kills and the contents of the table."""
    folder.mkdir()
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, STORY, folder, str(seed), form], env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=True, timeout=200,
    )  # fmt: skip
    found = in_delta(folder / "table") if form.startswith("delta") else in_iceberg(folder)
    assert all(row["word"] == WORD[row["n"] % 2] for row in found)
    return int(done.stdout), sorted(row["n"] for row in found)


@pytest.mark.parametrize("form", FORMATS)
def test_repeatedly_killed_process_writes_each_row_once(form: str, tmp_path: Path) -> None:
    killed, found = told(tmp_path / "story", 1, form)
    assert killed >= 3
    assert found == list(range(ROWS))
