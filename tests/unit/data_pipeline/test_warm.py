"""Warm Spark and job progress: which jobs it serves, the name of its workers' code, and remaining time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from data_pipeline.core import warm
from data_pipeline.core.stage_progress import format_progress
from data_pipeline.core.warm import Warm, lasting, reason_against

OURS = Warm(1, 2, "token", "local[*]", {"spark.driver.memory": "2g"}, "/log", 5.0, 60.0, "v1")
parts = st.lists(st.binary(max_size=4), max_size=4)


@example([b"ab", b""], [b"a", b"b"])
@given(parts, parts)
def test_different_code_has_a_different_name(one: list[bytes], other: list[bytes]) -> None:
    assert (warm.code_name(one) == warm.code_name(other)) == (one == other)


@pytest.mark.parametrize(
    ("master", "conf", "versions", "reason"),
    [
        ("local[*]", {}, "v1", ""),
        ("local[*]", {"spark.driver.memory": "2g"}, "v1", ""),
        ("local[*]", {"spark.sql.shuffle.partitions": "3"}, "v1", ""),
        ("local[*]", {"spark.driver.memory": "1g"}, "v1", "without spark.driver.memory=1g"),
        ("local[*]", {"spark.executor.cores": "1"}, "v1", "without spark.executor.cores=1"),
        ("local[2]", {}, "v1", "not at local[2]"),
        ("local[*]", {}, "v2", "another version"),
    ],
)
def test_warm_spark_serves_only_matching_jobs(master: str, conf: dict[str, str], versions: str, reason: str) -> None:
    found = reason_against(OURS, master, conf, versions)
    assert reason in found
    assert bool(found) == bool(reason)


def test_record_round_trips() -> None:
    assert Warm.from_json(OURS.to_json()) == OURS
    assert Warm.from_json(replace(OURS, conf={}).to_json()).conf == {}
    for text in ("", "{}", "[]", '{"pid": 1}'):
        with pytest.raises((ValueError, TypeError)):
            Warm.from_json(text)


def test_workers_get_the_environment_without_transient_variables() -> None:
    assert lasting({"PATH": "/bin", "_": "/bin/heron", "SHLVL": "2", "TOKEN": "x"}) == {"PATH": "/bin", "TOKEN": "x"}


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
