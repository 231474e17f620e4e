"""Spout pacing: the next call coincides with the flush of the last emits, unless the spout paces itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.spout_executor import LAST_DELAY_MS, RETRY_BURSTS, Pacing
from tests.support.harness.single_spout import SingleSpout

FLUSH_MS = 5.0


def simulate(emits: Callable[[float], int], until_ms: float) -> list[tuple[float, int]]:
    """Return (time, tuples) of each burst of a spout that emits as ``emits`` defines, flushed every ``FLUSH_MS``."""
    pacing, now, flushed = Pacing(), 0.0, float("-inf")
    bursts = []
    while now < until_ms:
        emitted = emits(now)
        bursts.append((now, emitted))
        if emitted:
            pacing.reset()
        if emitted and now - flushed >= FLUSH_MS:
            flushed = now
        pacing.record_empty_call(now, emitted, flushed + FLUSH_MS)
        assert now < pacing.next_call_ms <= now + LAST_DELAY_MS
        now = pacing.next_call_ms
    return bursts


def test_spout_with_a_backlog_is_called_once_per_flush() -> None:
    given_so_far = 0

    def one_each_ms(now: float) -> int:
        nonlocal given_so_far
        due, given_so_far = int(now) - given_so_far, int(now)
        return due

    bursts = simulate(one_each_ms, 2000)
    assert sum(n for _, n in bursts) >= 1990
    assert len(bursts) <= 420


@pytest.mark.parametrize("period_ms", [1.0, 2.0, 3.0])
def test_self_paced_spout_keeps_its_rate(period_ms: float) -> None:
    last = float("-inf")

    def when_past(now: float) -> int:
        nonlocal last
        if now - last < period_ms:
            return 0
        last = now
        return 1

    emitted = sum(n for _, n in simulate(when_past, 2000))
    assert emitted >= 0.6 * 2000 / period_ms


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-1e6, 1e6)), min_size=1, max_size=50))
def test_next_call_is_within_the_longest_delay(bursts: list[tuple[int, float]]) -> None:
    pacing = Pacing()
    for emitted, flush_ms in bursts:
        pacing.record_empty_call(0.0, emitted, flush_ms)
        assert 0.0 < pacing.next_call_ms <= LAST_DELAY_MS


def test_spout_reports_a_long_wait_for_acks_until_there_is_room() -> None:
    alone = SingleSpout({"topology.max.spout.pending": 20})
    clock = alone.world.clock

    def said() -> str:
        alone.drain()
        alone.step()
        return alone.executor.window.describe_wait(clock.ms)

    assert [said() for _ in range(30)] == [""] * 30, "not at once"
    clock.now += 3
    assert said().startswith("waiting for acks for 3 s: 20 tuples are in flight, all of topology.max.spout.pending")
    alone.executor.on_pause(clock.ms, True)
    clock.now += 3
    assert "for 6 s" in said(), "a pause does not hide it"
    alone.verdict(alone.roots)
    assert said() == ""


def test_delay_doubles_from_1_to_16_ms_until_reset() -> None:
    pacing = Pacing()
    assert (pacing.at_rest, pacing.slow, pacing.next_call_ms) == (False, False, float("-inf"))
    for _ in range(2):
        waits = []
        for _ in range(6):
            pacing.record_empty_call(100.0, 0, 0.0)
            waits.append((pacing.next_call_ms - 100.0, pacing.slow))
        assert waits == [(1, False), (2, False), (4, False), (8, False), (16, True), (16, True)]
        pacing.at_rest = True
        pacing.reset()
        assert (pacing.at_rest, pacing.slow, pacing.next_call_ms) == (False, False, float("-inf"))


@pytest.mark.parametrize(("now_ms", "wait_ms"), [(32.0, 16.0), (33.0, 15.0), (47.5, 0.5), (48.0, 16.0)])
def test_idle_spouts_wake_at_multiples_of_16_ms(now_ms: float, wait_ms: float) -> None:
    pacing = Pacing()
    assert pacing.rest(now_ms) == wait_ms
    assert pacing.next_call_ms == now_ms + wait_ms


def test_call_waits_for_the_flush_unless_single_tuples_came() -> None:
    """One single-tuple burst in ``RETRY_BURSTS`` is tried with the wait, and so is every first larger burst."""
    pacing, waits = Pacing(), []
    for emitted in (2, *[1] * (2 * RETRY_BURSTS), 2, 0):
        pacing.reset()
        pacing.record_empty_call(100.0, emitted, 105.0)
        waits.append(pacing.next_call_ms - 100.0)
    assert waits == [5.0, *([1.0] * (RETRY_BURSTS - 1) + [5.0]) * 2, 5.0, 5.0]
