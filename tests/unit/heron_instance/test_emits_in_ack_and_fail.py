"""Emits in a spout's ``ack`` and ``fail``: held while the spout may not emit, bounded, never lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core import spout_executor
from heron_instance.core.spout_executor import SpoutExecutor
from heron_runtime.model.dataflow import FailKind
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.data import Reason
from tests.support.harness.executors import SHUFFLE, ExecutorHarness, Part
from tests.support.harness.single_spout import Nothing, SingleSpout, Source

MOST = 50
TIMED_OUT = Reason(FailKind.TIMEOUT)
Way = Callable[[Any, int], None]


def one_by_one(spout: Any, count: int) -> None:
    for _ in range(count):
        spout.emit(["again"], tup_id=spout.n)
        spout.n += 1


def in_bulk(spout: Any, count: int) -> None:
    spout.emit_many([["again"]] * count, list(range(spout.n, spout.n + count)))
    spout.n += count


def with_task_ids(spout: Any, count: int) -> None:
    for _ in range(count):
        assert spout.emit(["again"], tup_id=spout.n, need_task_ids=True) == [2]
        spout.n += 1


WAYS = [one_by_one, in_bulk, with_task_ids]


def eager(way: Way, again: int, config: dict[str, Any] | None = None) -> SingleSpout:
    """Return a spout with ``MOST`` open roots that emits ``again`` tuples for each ack and each fail."""

    def ack(self: Any, tup_id: Any) -> None:
        Source.ack(self, tup_id)
        way(self, again)

    def fail(self: Any, tup_id: Any, reason: Any) -> None:
        Source.fail(self, tup_id, reason)
        way(self, again)

    alone = SingleSpout({"topology.max.spout.pending": MOST, **(config or {})}, ack=ack, fail=fail)
    while alone.executor.pending.count < MOST:
        alone.step()
    alone.step(10)
    alone.drain()
    return alone


def pause(alone: SingleSpout) -> None:
    alone.executor.on_pause(alone.world.clock.ms, True)


def go_on(alone: SingleSpout) -> None:
    alone.executor.on_pause(alone.world.clock.ms, False)


def deactivate(alone: SingleSpout) -> None:
    alone.executor.on_plan(0, replace(alone.executor.output.plan, state=TopologyState.PAUSED))


def activate(alone: SingleSpout) -> None:
    alone.executor.on_plan(0, replace(alone.executor.output.plan, state=TopologyState.RUNNING))


def told(alone: SingleSpout) -> int:
    return len(alone.spout.acked) + len(alone.spout.failed)


def test_activation_calls_have_the_name_of_their_method() -> None:
    doing: list[str] = []

    def note(self: Any) -> None:
        doing.append(self.user_code.call.method if hasattr(self, "user_code") else "at the start")

    alone = SingleSpout(activate=note, deactivate=note)
    alone.step()
    doing.clear()
    alone.spout.user_code = alone.executor.task.user_code
    for tell in (deactivate, activate):
        tell(alone)
        alone.step()
    assert doing == ["deactivate", "activate"]


def test_exception_in_deactivate_does_not_prevent_close(caplog: pytest.LogCaptureFixture) -> None:
    closed: list[Any] = []

    def raises(self: Any) -> None:
        raise OSError("it was closed before")

    def close(self: Any) -> None:
        closed.append(self)

    alone = SingleSpout(deactivate=raises, close=close)
    alone.step()
    alone.executor.stop(alone.world.clock.ms)
    assert closed == [alone.spout]
    assert "s.deactivate raised" in caplog.text


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("stop", "resume"), [(pause, go_on), (deactivate, activate)])
def test_paused_spout_emits_nothing_and_delivers_verdicts_later_in_order(way: Way, stop: Any, resume: Any) -> None:
    """Verdicts that the spout cannot act on wait; after the resume all emits leave in order."""
    alone = eager(way, 10)
    stop(alone)
    alone.step()
    opened = len(alone.roots)
    alone.verdict(alone.roots[:20])
    alone.verdict(alone.roots[20:30], TIMED_OUT)
    for _ in range(30):
        step = alone.step(50)
        assert step.flushes == []
        assert step.wait_ms is None or step.wait_ms > 0, "it does not spin"
    assert len(alone.roots) == opened, "no root is opened"
    assert alone.executor.pending.count == MOST - 30, "what it is told is settled"
    assert told(alone) == 1, "it is told no more than it can hold the emits of"
    resume(alone)
    done = 30
    for _ in range(200):
        alone.step(20)
        alone.drain()
        if told(alone) >= 30:
            break
        if len(alone.roots) > done:
            alone.verdict(alone.roots[done : done + MOST])
            done += MOST
    assert alone.spout.acked[:20] == list(range(20)), "each once, in order"
    assert [n for n, _ in alone.spout.failed] == list(range(20, 30))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("again", [1, 10, 200])
def test_pending_exceeds_its_maximum_by_the_emits_of_one_call(way: Way, again: int) -> None:
    alone = eager(way, again)
    done = 0
    for turn in range(60):
        alone.verdict(alone.roots[done : done + MOST], TIMED_OUT if turn % 3 == 0 else None)
        done = min(len(alone.roots), done + MOST)
        for _ in range(4):
            alone.step(3.0)
            alone.drain()
            assert alone.executor.pending.count < MOST + again
    assert told(alone) > 10, "it is told on"


def test_held_emits_leave_when_the_spout_stops() -> None:
    alone = eager(one_by_one, 7)
    pause(alone)
    alone.verdict(alone.roots[:5])
    alone.step()
    flushes = alone.executor.stop(alone.world.clock.ms)
    assert sum(frame.count for flush in flushes for frame in flush.frames) == 7
    assert sum(len(init.xors) // 8 for flush in flushes for init in flush.inits) == 7


def test_untracked_acks_that_emit_do_not_loop_forever() -> None:
    """Without acks each tuple is acked when its call returns, so an ``ack`` that emits leads to another ``ack``."""
    config = {"topology.reliability.mode": "ATMOST_ONCE", "topology.instance.data.out.capacity.bytes": 65_536}
    alone = SingleSpout(config, ack=lambda self, tup_id: one_by_one(self, 1), total=3, payload="x" * 100)
    for _ in range(200):
        alone.step(6.0)
    assert alone.executor.full, "nobody takes what it sends"
    emitted = alone.spout.n
    alone.step(50)
    assert alone.spout.n <= emitted + 1
    assert alone.step(50).wait_ms != 0


@pytest.mark.parametrize("way", WAYS)
def test_untracked_tuple_is_acked_once_for_every_kind_of_emit(way: Way) -> None:
    alone = SingleSpout(
        {"topology.reliability.mode": "ATMOST_ONCE"}, next_tuple=lambda self: way(self, 3 * (self.n < 9))
    )
    for _ in range(5):
        alone.step(6.0)
        alone.drain()
    assert alone.spout.acked == list(range(9))


def test_emit_order_holds_across_a_hold() -> None:
    """Two streams to one task, with and without requested task ids."""
    count = 12

    class Numbered(Source):
        def next_tuple(self) -> None:
            if self.n < count:
                self.say("default")

        def say(self, stream: str, need_task_ids: bool = False) -> None:
            self.emit([self.n], tup_id=self.n, stream=stream, need_task_ids=need_task_ids)
            self.n += 1

        def ack(self, tup_id: Any) -> None:
            self.acked.append(tup_id)
            if tup_id == 0:
                for turn in range(9):
                    self.say(("default", "more")[turn % 2], turn % 4 == 3)

    parts = {
        "s": Part(Numbered, 1, {"default": ["n"], "more": ["n"]}),
        "r": Part(Nothing, 1, {}, [("s", "default", SHUFFLE), ("s", "more", SHUFFLE)]),
    }
    world = ExecutorHarness(parts, {"topology.max.spout.pending": count})
    spout, executor = world.components[1], world.executors[1]
    assert isinstance(executor, SpoutExecutor)
    sent: list[int] = []

    def step() -> None:
        world.clock.now += 0.01
        for flush in executor.run(world.clock.ms).flushes:
            for frame in flush.frames:
                sent.extend(row[0] for row in executor.task.codec.decode(frame.codec, frame.values))

    for _ in range(40):
        step()
    executor.on_pause(0, True)
    first = np.array([np.uint64(executor.collector._base)]).tobytes()
    executor.on_verdicts(0, [spout_executor.Verdict(1, first, None)])
    step()
    assert sent == list(range(count))
    assert spout.n == count + 9
    executor.on_pause(0, False)
    for _ in range(40):
        step()
    assert sent == list(range(count + 9))


steps = st.lists(
    st.sampled_from(["pause", "go on", "verdict", "fail", "drain", "step", "step", "wait"]), min_size=5, max_size=30
)


@given(steps=steps, again=st.integers(0, 6), way=st.sampled_from(WAYS))
def test_each_root_is_delivered_once_for_any_sequence_of_events(steps: list[str], again: int, way: Way) -> None:
    alone, done, paused = eager(way, again), 0, False
    for what in steps:
        before = len(alone.roots)
        if what in ("pause", "go on"):
            paused = what == "pause"
            (pause if paused else go_on)(alone)
        elif what in ("verdict", "fail"):
            alone.verdict(alone.roots[done : done + 10], TIMED_OUT if what == "fail" else None)
            done = min(len(alone.roots), done + 10)
        elif what == "drain":
            alone.drain()
        alone.step(1.0 if what != "wait" else 200.0)
        assert not paused or what == "pause" or len(alone.roots) == before
        assert alone.executor.pending.count < MOST + max(1, again)
    go_on(alone)
    for _ in range(80):
        alone.step(20.0)
        alone.drain()
    seen = [*alone.spout.acked, *(n for n, _ in alone.spout.failed)]
    assert len(seen) == len(set(seen))
    assert set(range(done)) <= set(seen) or alone.executor.pending.count >= MOST
