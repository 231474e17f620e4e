"""End of a spout's input: when the heartbeat reports it, and what revokes it."""

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
    """Return the status that the spout reports after an idle period."""
    for _ in range(20):
        alone.step(16.0)
        alone.drain()
    return alone.executor.at_end.status


@pytest.mark.parametrize("total", [0, 1, 700])
def test_spout_is_at_its_end_once_nothing_is_in_flight(total: int) -> None:
    alone = SingleSpout(KEPT, total=total, at_end=ends)
    assert rests(alone) == ("" if total else AT_END)
    alone.verdict(alone.roots)
    assert rests(alone) == AT_END


def test_new_data_revokes_the_end() -> None:
    alone = SingleSpout({"topology.reliability.mode": "ATMOST_ONCE"}, total=3, at_end=ends)
    assert rests(alone) == AT_END
    alone.spout.total += 1
    alone.spout.at_end = lambda: True
    alone.executor.on_wake(alone.world.clock.ms)
    alone.step()
    assert alone.executor.at_end.status == ""


def test_spout_without_at_end_never_ends() -> None:
    assert rests(SingleSpout(KEPT, total=0)) == ""


def test_at_end_that_raises_does_not_end_the_spout() -> None:
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
    """Stateful spout that has read all of its input."""

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
        self.executor.checkpointer.align(SnapshotRequest(number, 0))
        self.executor.checkpointer._participant.over(number)

    def complete(self, number: int) -> None:
        self.executor.checkpointer._participant.completed(number)


def test_stateful_spout_ends_after_a_complete_checkpoint() -> None:
    ended = Ended()
    assert ended.rest() == ""
    ended.snapshot(1)
    assert ended.rest() == "", "its output is not committed yet"
    ended.complete(1)
    assert ended.rest() == AT_END


def test_checkpoint_before_the_end_does_not_end_the_spout() -> None:
    ended = Ended()
    ended.executor.at_end.revoke()
    ended.snapshot(1)
    ended.rest()  # the end is detected only here
    ended.complete(1)
    assert ended.rest() == ""
