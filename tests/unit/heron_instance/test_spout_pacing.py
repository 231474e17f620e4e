"""Pacing of spouts: the pending window, bursts, delays of idle spouts, and the age limit of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.executor import ms_until_first
from heron_instance.core.pending import REOPEN_ROWS, REPORT_FULL_MS, PendingWindow
from heron_instance.core.spout_collector import AgeFilter
from heron_instance.core.spout_executor import LAST_DELAY_MS, RETRY_BURSTS, Pacing
from tests.support.harness.executors import SHUFFLE, ExecutorHarness, Part
from tests.support.harness.single_spout import Nothing, SingleSpout, Source


def shut_at_100(max_pending: int = 20) -> PendingWindow:
    """Return a window that was open and has been full since 100 ms; it waits 5 ms."""
    window = PendingWindow(max_pending, 5.0)
    assert window.describe_wait(10.0 * REPORT_FULL_MS) == ""
    assert not window.is_shut(max_pending - 1, 99.0)
    assert window.is_shut(max_pending, 100.0)
    return window


@pytest.mark.parametrize(("maximum", "batch"), [(20, 5), (23, 5), (3, 1), (1, 1), (1_000_000, REOPEN_ROWS)])
def test_shut_window_opens_for_a_quarter_or_a_batch(maximum: int, batch: int) -> None:
    window = shut_at_100(maximum)
    if batch > 1:
        assert window.is_shut(maximum - batch + 1, 104.9)
    assert not window.is_shut(maximum - batch, 104.9)
    assert not window.is_shut(maximum - 1, 104.9)  # it is open now, up to the maximum


def test_shut_window_opens_for_one_row_after_the_flush_interval() -> None:
    window = shut_at_100()
    assert window.is_shut(20, 103.0)  # still full: the interval starts when the window first shut
    assert window.next_opening_ms(19) == 105.0
    assert window.next_opening_ms(20) is None
    assert window.is_shut(20, 500.0)
    assert not window.is_shut(19, 500.0)
    assert window.next_opening_ms(19) is None


def test_window_opens_at_the_announced_time() -> None:
    window = shut_at_100()
    opens = window.next_opening_ms(19)
    assert opens is not None
    assert not window.is_shut(19, opens)  # otherwise the spout would wake in vain


def test_long_wait_is_described() -> None:
    window = shut_at_100()
    assert window.describe_wait(99.0 + REPORT_FULL_MS) == ""
    assert window.describe_wait(100.0 + REPORT_FULL_MS).startswith("waiting for acks for 2 s: 20 tuples are in flight")
    assert window.describe_wait(100.0 + 600_000).startswith("waiting for acks for 600 s")
    assert window.is_shut(19, 101.0)
    assert window.describe_wait(100.0 + REPORT_FULL_MS) == ""  # there is room, so the window collects a batch


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


@pytest.mark.parametrize("streams", [1, 2, 3])
def test_burst_continues_for_emits_to_any_stream(streams: int) -> None:
    class Wide(Source):
        def next_tuple(self) -> None:
            self.calls += 1
            self.emit(["x"], stream=f"s{self.calls % streams}")

    names = [f"s{n}" for n in range(streams)]
    readers = [("s", name, SHUFFLE) for name in names]
    world = ExecutorHarness({"s": Part(Wide, 1, {n: ["x"] for n in names}), "r": Part(Nothing, 1, {}, readers)})
    world.executors[1].run(world.clock.ms)
    assert world.objects("s")[0].calls > 50, "one call after the other until the time is up"


@pytest.mark.parametrize(("call_ms", "calls"), [(3.0, 1), (2.1, 1), (1.9, 2), (0.6, 4)])
def test_burst_of_a_slow_spout_ends_after_two_milliseconds(call_ms: float, calls: int) -> None:
    """This also holds for the first burst, when the duration of a call is still unknown."""

    def slowly(self: Any) -> None:
        alone.world.clock.now += call_ms / 1000
        Source.next_tuple(self)

    alone = SingleSpout(next_tuple=slowly)
    for bursts in (1, 2, 3):
        alone.step()
        assert alone.spout.calls == bursts * calls


def test_overdue_deadline_needs_no_wait() -> None:
    assert ms_until_first(100.0) is None
    assert ms_until_first(100.0, None, 90.0) == 0.0
    assert ms_until_first(100.0, 130.5, None, 120.25) == 20.25


def test_poll_idle_and_run_may_be_mixed() -> None:
    """A driver may call ``poll_idle`` or ``run``: the user calls are the same, and none is repeated."""
    alone = SingleSpout(total=0)
    step = alone.step()
    while not step.at_rest:
        step = alone.step(step.wait_ms or 0.1)
    calls, wait_ms, clock = alone.spout.calls, step.wait_ms, alone.world.clock
    for number in range(1, 50):
        assert wait_ms is not None
        assert 0.0 < wait_ms <= 16.0
        clock.now += (wait_ms + 0.05) / 1000
        wait_ms = alone.executor.poll_idle(clock.ms)
        assert alone.spout.calls == calls + number
    assert wait_ms is not None
    calls = alone.spout.calls
    again = alone.step(4.0)
    assert again.wait_ms == pytest.approx(wait_ms - 4.0, abs=0.01)
    assert alone.spout.calls == calls
    alone.spout.total = 1
    clock.now += (wait_ms - 4.0) / 1000
    assert alone.executor.poll_idle(clock.ms) is None
    flushed = [*alone.step(0.0).flushes, *alone.step(6.0).flushes]
    assert sum(frame.count for flush in flushed for frame in flush.frames) == 1
    assert alone.executor.pending.count == 1


@given(st.integers(0, 2_000_000_000), st.integers(0, 5000), st.integers(0, 5000))
def test_filter_drops_exactly_the_rows_older_than_the_limit(now_seconds: int, age_ms: int, limit_ms: int) -> None:
    let_go: list[Any] = []
    keep = AgeFilter(lambda row: row[0], limit_ms, lambda: now_seconds, let_go.append)
    row, passes = (1000 * now_seconds - age_ms,), age_ms <= limit_ms
    assert [keep(row, "id", "default", None), keep(row, None, "default", None)] == [passes] * 2
    assert let_go == ([] if passes else ["id"])
    assert [keep.take_dropped(), keep.take_dropped()] == [0 if passes else 2, 0]


def test_spout_with_only_old_data_is_called_again_at_once() -> None:
    """Dropped rows count as output: the spout must not back off before newer data."""
    alone = SingleSpout({"topology.spout.drop.older.ms": 1000}, emit_time_ms=lambda self, values: -5000.0)
    for _ in range(20):
        alone.step(0.1)
    assert alone.spout.calls >= 20
