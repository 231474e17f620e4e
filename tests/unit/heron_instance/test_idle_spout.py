"""Idle spout: it is only polled until something arrives or is emitted; reports continue."""

from __future__ import annotations

from typing import Any

import pytest

from heron_instance.shell import executor_loop as runner_module
from heron_instance.shell.executor_loop import ExecutorLoop
from heron_instance.shell.flush_timer import FlushTimer
from heron_instance.shell.inbox import Inbox, WakeUp
from tests.support.harness.single_spout import SingleSpout


class Idle:
    """Runner whose inbox advances the clock at once. ``rings``: number of waits before an item arrives."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rings: int = 10**9) -> None:
        self.now_ms = 1000.0
        self.rings = rings
        self.waits: list[float] = []
        self.polled: list[float] = []
        self.collected: list[float] = []
        self.sent_weight = 0  # of the gateway
        self.post = self.wake = lambda *_: None
        monkeypatch.setattr(runner_module, "now_ms", lambda: self.now_ms)
        here: Any = self
        self.flush_timer = FlushTimer(self.post, self.wake)
        self.runner = ExecutorLoop(lambda driver: SingleSpout(total=0).world.drive(1, driver), here, here, here, 1000.0)
        monkeypatch.setattr(self.runner.executor, "poll_idle", self.poll)
        self.runner._next_report_ms = self.now_ms + 1000.0
        monkeypatch.setattr(self.runner, "collect", lambda: self.collected.append(self.now_ms))

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now_ms += 1000 * seconds
        return len(self.waits) > self.rings

    def poll(self, now_ms: float) -> float | None:
        self.polled.append(now_ms)
        self.now_ms += 3.0  # duration of next_tuple
        return 16.0 if len(self.polled) < 200 else None


def test_idle_polling_ends_after_an_emit(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Idle(monkeypatch)
    idle.runner._poll_idle(16.0)
    assert len(idle.polled) == 200
    assert set(idle.waits) == {0.016}
    assert idle.runner._busy_ms == pytest.approx(600.0)
    assert idle.runner._idle_ms == pytest.approx(3200.0)
    assert [round(at) for at in idle.collected] == [2007, 3014, 4021][: len(idle.collected)]
    assert len(idle.collected) == 3, "a report each second"


def test_idle_polling_ends_when_an_item_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Idle(monkeypatch, rings=5)
    idle.runner._poll_idle(16.0)
    assert (len(idle.polled), len(idle.waits)) == (5, 6)
    assert idle.runner._idle_ms == pytest.approx(6 * 16.0)


def test_idle_polling_ends_when_the_gateway_has_sent_data(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Idle(monkeypatch)
    idle.sent_weight = 7
    idle.runner._poll_idle(16.0)
    assert idle.polled == []


def test_wait_for_an_item_does_not_take_it() -> None:
    inbox, wake = Inbox(), WakeUp()
    assert not inbox.wait(0.0)
    assert not inbox.wait(-1.0)
    inbox.put(wake)
    assert inbox.wait(60.0)
    assert inbox.wait(60.0), "it is there still"
    assert inbox.take(0) == [wake]
    assert not inbox.wait(0.0)


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
