"""Metrics of settled roots: counts and ages of each stream."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.pending import SettledRoots
from heron_instance.core.task_metrics import MAX_AGE_RUNS, RootMetrics
from heron_runtime.model.metrics import keyed

STREAMS = {0: "default", 1: "odd", 2: "never"}


class Told:
    """Telemetry stand-in."""

    def __init__(self) -> None:
        self.ages: dict[str, Counter[float]] = {}
        self.counts: Counter[str] = Counter()

    def latency(self, name: str, milliseconds: float, n: int = 1) -> None:
        self.ages.setdefault(name, Counter())[milliseconds] += n

    def count(self, name: str, n: float) -> None:
        self.counts[name] += int(n)


def told(roots: list[tuple[int, int]], streams: dict[int, str]) -> Told:
    """Return the telemetry of these ``roots``, pairs of (stream, age in ms)."""
    found = Told()
    numbers, ages = zip(*roots, strict=True) if roots else ((), ())
    settled = SettledRoots(list(range(len(roots))), np.array(numbers, np.uint16), np.array(ages, np.float64))
    figures = RootMetrics(streams, found.count, found)  # type: ignore[arg-type]
    figures.count_roots("ack", settled)
    figures.time_roots("age", settled)
    return found


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3)), min_size=1, max_size=MAX_AGE_RUNS))
def test_each_stream_has_its_own_counts_and_ages(roots: list[tuple[int, int]]) -> None:
    found = told(roots, STREAMS)
    wanted = Counter(keyed("ack", STREAMS[number]) for number, _ in roots)
    assert found.counts == wanted
    ages: dict[str, Counter[float]] = {}
    for number, age in roots:
        ages.setdefault(keyed("age", STREAMS[number]), Counter())[float(age)] += 1
    assert found.ages == ages


@given(st.lists(st.integers(0, 3), min_size=1, max_size=MAX_AGE_RUNS))
def test_single_stream_is_reported_like_several(ages: list[int]) -> None:
    found = told([(0, age) for age in ages], {0: "default"})
    assert found.counts == Counter({keyed("ack", "default"): len(ages)})
    assert found.ages == {keyed("age", "default"): Counter(map(float, ages))}


def test_many_ages_are_merged_and_each_root_counts() -> None:
    found = told([(0, age) for age in range(10_000)], {0: "default"})
    (ages,) = found.ages.values()
    assert ages.total() == 10_000
    assert MAX_AGE_RUNS // 2 <= len(ages) <= MAX_AGE_RUNS + 1
