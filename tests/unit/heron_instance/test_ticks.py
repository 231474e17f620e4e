"""Tick tuples: due times for both settings of the interval."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.bolt_executor import Ticks

EACH_MS = 50


@pytest.mark.parametrize(
    ("config", "each_ms"),
    [
        ({"topology.tick.tuple.freq.secs": 2}, 2000),
        ({"topology.tick.tuple.freq.ms": 40}, 40),
        ({"topology.tick.tuple.freq.secs": 2, "topology.tick.tuple.freq.ms": 40}, 40),
    ],
)
def test_first_tick_follows_the_first_check_by_one_interval(config: dict[str, Any], each_ms: int) -> None:
    ticks = Ticks(config)
    assert (ticks.next_ms, ticks.count) == (None, 0)
    assert not ticks.due(1000.0)
    assert ticks.next_ms == 1000.0 + each_ms
    assert not ticks.due(999.0 + each_ms)
    assert ticks.due(1000.0 + each_ms)
    assert (ticks.next_ms, ticks.count) == (1000.0 + 2 * each_ms, 1)


def test_ticks_are_off_by_default() -> None:
    ticks = Ticks({})
    assert not any(ticks.due(now) for now in (0.0, 1e9, 2e9))
    assert (ticks.next_ms, ticks.count) == (None, 0)


@given(st.lists(st.integers(0, 4 * EACH_MS), max_size=40))
def test_late_tick_is_followed_by_at_most_one_at_once(steps: list[int]) -> None:
    """Checks in every millisecond yield one tick per interval, and sparser checks never yield more."""
    ticks, now, given_at = Ticks({"topology.tick.tuple.freq.ms": EACH_MS}), 0, list[int]()
    ticks.due(0.0)
    for step in steps:
        now += step
        looked_at = ticks.next_ms
        assert looked_at is not None
        fell_due = ticks.due(float(now))
        assert fell_due == (now >= looked_at)
        given_at += [now] * fell_due
        assert ticks.count == len(given_at) <= now // EACH_MS
        assert max(now, looked_at) <= (ticks.next_ms or 0) <= max(now, looked_at + EACH_MS)
    prompt = Ticks({"topology.tick.tuple.freq.ms": EACH_MS})
    assert sum(prompt.due(float(ms)) for ms in range(10 * EACH_MS + 1)) == 10
