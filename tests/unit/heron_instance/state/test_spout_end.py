"""A spout at its end: when its heartbeat says so, and what takes it back."""

from __future__ import annotations

from typing import Any

import pytest

from heron_instance.core.state.barriers import SnapshotRequest
from heron_runtime.wire.container import AT_END
from tests.support.harness.executors import SHUFFLE, Part
from tests.support.harness.single_spout import Nothing, SingleSpout, Source
from tests.support.harness.stateful_executors import StatefulExecutorHarness

KEPT = {"topology.reliability.mode": "ATLEAST_ONCE"}


def ends(self: Source) -> bool:
    return self.n == self.total


def rests(alone: SingleSpout) -> str:
    """What it says of itself after nothing has come for a while."""
    for _ in range(20):
        alone.step(16.0)
        alone.drain()
    return alone.executor.at_end.status


@pytest.mark.parametrize("total", [0, 1, 700])
def test_it_is_at_its_end_once_nothing_is_in_flight(total: int) -> None:
    alone = SingleSpout(KEPT, total=total, at_end=ends)
    assert rests(alone) == ("" if total else AT_END)
    alone.verdict(alone.roots)
    assert rests(alone) == AT_END


def test_what_comes_after_all_takes_it_back() -> None:
    alone = SingleSpout({"topology.reliability.mode": "ATMOST_ONCE"}, total=3, at_end=ends)
    assert rests(alone) == AT_END
    alone.spout.total += 1
    alone.spout.at_end = lambda: True
    alone.executor.on_wake(alone.world.clock.ms)
    alone.step()
    assert alone.executor.at_end.status == ""


def test_a_spout_that_says_nothing_is_never_at_its_end() -> None:
    assert rests(SingleSpout(KEPT, total=0)) == ""


def test_one_that_raises_is_not_at_its_end() -> None:
    def raises(self: Source) -> bool:
        raise RuntimeError("it does not know")

    alone = SingleSpout(KEPT, total=0, at_end=raises)
    assert rests(alone) == ""
    alone.executor.collect_metrics()
    assert alone.world.telemetry[1].counters["__exception-count"]


class Bounded(Source):
    total = 3

    def at_end(self) -> bool:
        return self.n == self.total


class Ended:
    """A spout whose state is kept, which has read everything."""

    def __init__(self) -> None:
        parts = {"s": Part(Bounded, 1, {"default": ["x"]}), "r": Part(Nothing, 1, {}, [("s", "default", SHUFFLE)])}
        self.world = StatefulExecutorHarness(parts)
        self.executor: Any = self.world.executors[1]
        self.rest()

    def rest(self) -> str:
        for _ in range(20):
            self.world.clock.now += 0.016
            self.executor.run(self.world.clock.ms)
            self.executor.on_sent(self.world.clock.ms, 1 << 40)
            self.executor.on_wake(self.world.clock.ms)
            for _ in range(10):
                self.world.clock.now += 0.016
                self.executor.run(self.world.clock.ms)
        return str(self.executor.at_end.status)

    def snapshot(self, number: int) -> None:
        self.executor.quiet_points.align(SnapshotRequest(number, 0))
        self.executor.checkpointer._participant.over(number)

    def complete(self, number: int) -> None:
        self.executor.checkpointer._participant.completed(number)


def test_where_state_is_kept_a_checkpoint_behind_its_end_must_be_complete() -> None:
    ended = Ended()
    assert ended.rest() == ""
    ended.snapshot(1)
    assert ended.rest() == "", "its output is not committed yet"
    ended.complete(1)
    assert ended.rest() == AT_END


def test_a_checkpoint_from_before_its_end_does_not_do() -> None:
    ended = Ended()
    ended.executor.at_end.revoke()
    ended.snapshot(1)
    ended.rest()  # only now it is found at its end
    ended.complete(1)
    assert ended.rest() == ""
