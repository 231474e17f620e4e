"""Percentage and remaining time in a job's progress."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_pipeline.core.stage_progress import format_progress


@pytest.mark.parametrize(
    ("done", "tasks", "seconds", "told"),
    [
        (0, 0, 9.0, ""),
        (0, 40, 9.0, "0 %"),
        (1, 40, 9.0, "2 %"),  # one task is too few for an estimate
        (20, 40, 0.5, "50 %"),
        (20, 40, 30.0, "50 %, about 30 s left"),
        (39, 40, 3.9, "97 %, about 1 s left"),
        (2, 40, 10.0, "5 %, about 3 min left"),
        (2, 2000, 10.0, "0 %, about 2 h 46 min left"),
        (40, 40, 30.0, "100 %"),
    ],
)
def test_progress_shows_percentage_and_remaining_time(done: int, tasks: int, seconds: float, told: str) -> None:
    assert format_progress(done, tasks, seconds) == told


@given(st.integers(1, 10_000), st.data(), st.floats(0, 1e6))
def test_100_percent_is_shown_only_when_all_is_done(tasks: int, data: st.DataObject, seconds: float) -> None:
    done = data.draw(st.integers(0, tasks))
    told = format_progress(done, tasks, seconds)
    assert told.startswith("100 %") == (done == tasks)
    assert "left" not in told or 0 < done < tasks
