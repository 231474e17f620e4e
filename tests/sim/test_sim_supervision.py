"""Schedules of supervision and liveness of processes."""

from __future__ import annotations

from collections.abc import Callable

from .seeds import scaled
from .simulation import broken_law
from .supervision import run

SCHEDULES = scaled(40)


def test_places_keep_one_process_for_each_slot(record_property: Callable[[str, object], None]) -> None:
    for seed in range(1, SCHEDULES + 1):
        assert broken_law(run, seed) == "", f"seed {seed}"
    record_property("schedules of supervision", SCHEDULES)


def test_schedules_of_supervision_are_not_idle() -> None:
    found = [run(seed) for seed in range(1, 21)]
    assert sum(containers for containers, _, _ in found) > 40, "hardly any place has two containers"
    assert sum(restarts for _, restarts, _ in found) > 100
    assert found[:3] == [run(seed) for seed in range(1, 4)], "a seed fixes its schedule"
