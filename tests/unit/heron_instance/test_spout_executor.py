"""Spout executor: pending tuples, pauses, back-off, verdicts and bounds."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from heron_instance.core.pending import PendingWindow
from heron_runtime.model.dataflow import FailKind
from heron_runtime.model.ids import SEQUENCE_MASK, root_base
from heron_runtime.model.plan import PlanVersion
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.data import Reason
from heronry.api.hooks import TaskHook
from stream_manager.core.ack_tracker import AckTracker, column
from tests.support.harness.single_spout import SingleSpout

MODE = "topology.reliability.mode"


@pytest.mark.parametrize("each", [1, 7, 300])
def test_pending_exceeds_its_maximum_by_one_call_at_most(each: int) -> None:
    alone = SingleSpout({"topology.max.spout.pending": 100}, each=each)
    for _ in range(20):
        alone.step()
        assert alone.executor.pending.count < 100 + each
    assert alone.executor.pending.count >= 100
    calls = alone.spout.calls
    alone.verdict(alone.roots[:each])
    alone.step()
    assert alone.spout.acked == list(range(each))
    assert alone.spout.calls > calls


def test_first_burst_is_small_until_the_tuple_size_is_known() -> None:
    large = SingleSpout(payload="x" * 1_000_000)
    large.step()
    assert large.spout.n <= 64
    bytes_out = 0
    for _ in range(20):  # the gateway takes nothing
        bytes_out += sum(flush.weight() for flush in large.step(6.0).flushes)
    assert large.executor.full
    assert large.spout.n <= 128, f"{bytes_out:,} bytes are out"
    small = SingleSpout()
    for _ in range(20):
        small.step(6.0)
        small.drain()
    assert small.spout.n > 4096


def test_shut_window_opens_for_a_batch_or_after_a_flush_interval() -> None:
    alone = SingleSpout({"topology.max.spout.pending": 100})
    while alone.executor.pending.count < 100:
        alone.step(0.01)
    while alone.executor.output.unsent():
        alone.step(0.01)
    alone.step(10.0)
    calls, shut = alone.spout.calls, alone.executor.pending.count
    alone.executor.window = PendingWindow(100, 5.0)
    assert alone.executor.window.is_shut(100, alone.world.clock.ms)  # shut just now
    alone.verdict(alone.roots[:10])
    step = alone.step(0.01)
    assert alone.executor.pending.count == shut - 10
    assert alone.spout.calls == calls, "room for ten is not worth a packet yet"
    assert step.wait_ms is not None
    assert step.wait_ms <= 5.0, "it will be, a flush interval after the window shut"
    alone.verdict(alone.roots[10:25])
    alone.step(0.01)
    assert alone.spout.calls > calls, "a quarter of the window is"
    while alone.executor.pending.count < 100:
        alone.step(0.01)
    alone.step(0.01)
    calls = alone.spout.calls
    alone.verdict(alone.roots[25:26])
    alone.step(6.0)
    assert alone.spout.calls > calls, "after the flush interval one place is enough"


def test_paused_spout_takes_acks_and_emits_nothing() -> None:
    alone = SingleSpout({"topology.max.spout.pending": 50})
    alone.step()
    alone.step(10)
    alone.executor.on_pause(alone.world.clock.ms, True)
    calls = alone.spout.calls
    alone.verdict(alone.roots[:30])
    alone.verdict(alone.roots[30:40], Reason(FailKind.TIMEOUT))
    for _ in range(5):
        alone.step()
    assert alone.spout.calls == calls
    assert alone.spout.acked == list(range(30))
    assert alone.spout.failed == [(n, FailKind.TIMEOUT) for n in range(30, 40)]
    assert alone.world.telemetry[1].gauges["__paused"] == 1
    alone.executor.on_pause(alone.world.clock.ms, False)
    alone.step()
    assert alone.spout.calls > calls


def test_spout_waits_for_stream_manager_and_activation() -> None:
    alone = SingleSpout()
    executor = alone.executor
    plan = replace(executor.output.plan, state=TopologyState.PAUSED)
    executor.on_plan(0, plan)
    alone.step()
    assert alone.spout.said == []
    executor.on_plan(0, replace(plan, state=TopologyState.RUNNING))
    alone.step()
    assert alone.spout.said == ["activate"]
    assert alone.spout.calls > 0
    executor.on_plan(0, plan)
    calls = alone.spout.calls
    alone.step()
    assert alone.spout.said == ["activate", "deactivate"]
    assert alone.spout.calls == calls


def test_empty_calls_back_off_to_16_ms_until_an_ack() -> None:
    alone = SingleSpout(total=1)
    waits = []
    alone.step()
    for _ in range(12):
        calls = alone.spout.calls
        wait = alone.step(0.01).wait_ms
        assert wait is not None
        if alone.spout.calls == calls + 1:
            waits.append(round(wait))
        alone.world.clock.now += wait / 1000
    assert max(waits) == 16
    assert [w for w in waits if w in (2, 4, 8)] == [2, 4, 8]
    alone.verdict(alone.roots)
    calls = alone.spout.calls
    assert alone.step(0.01).wait_ms is not None
    assert alone.spout.calls == calls + 1
    alone.step(0.01)
    assert alone.spout.calls == calls + 1
    alone.spout.context.wake_up()
    alone.executor.on_wake(alone.world.clock.ms)
    alone.step(0.01)
    assert alone.spout.calls == calls + 2


def test_idle_spout_is_called_every_16_ms_and_routes_its_first_tuples() -> None:
    alone = SingleSpout(total=0)
    for _ in range(40):
        alone.step(16.1)
    for _ in range(3):
        calls = alone.spout.calls
        wait_ms = alone.step((alone.step(2.0).wait_ms or 0.0) + 0.001).wait_ms  # first too early, then on time
        assert alone.spout.calls == calls + 1
        assert wait_ms is not None
        assert wait_ms <= 16.0
        assert (alone.world.clock.ms + wait_ms) % 16.0 == pytest.approx(0.0, abs=0.01) or wait_ms < 0.01
    alone.spout.total = 2
    flushed = [*alone.step(16.1).flushes, *alone.step(6.0).flushes]
    assert [len(alone.roots), alone.executor.pending.count] == [2, 2]
    assert sum(frame.count for flush in flushed for frame in flush.frames) == 2


def test_idle_spout_that_raises_is_restarted() -> None:
    def next_tuple(self: Any) -> None:
        self.calls += 1
        if self.calls > 30:
            self.emit(["x"], tup_id=1)
            raise RuntimeError("on purpose")

    alone = SingleSpout(next_tuple=next_tuple)
    for _ in range(60):
        alone.step(16.1)
        if alone.executor.failed is not None:
            break
    assert alone.executor.failed is not None
    assert alone.spout.calls == 31
    assert alone.executor.pending.count == 1, "what it had emitted is routed"


def test_full_data_out_stops_emits_but_not_acks() -> None:
    alone = SingleSpout({"topology.instance.data.out.capacity.bytes": 65536}, payload="y" * 1000, each=3)
    for _ in range(50):
        alone.step()
    size = alone.executor.output.data_out.size
    assert size >= 65536
    calls = alone.spout.calls
    alone.verdict(alone.roots[:5])
    alone.step()
    assert alone.spout.calls == calls
    assert len(alone.spout.acked) == 5
    for _ in range(20):
        alone.step(100)
    assert alone.executor.output.data_out.capacity == 0, "a queue over its limit shrinks"
    alone.drain()
    alone.step(200)
    alone.step(200)
    assert alone.spout.calls > calls


def test_lost_stream_manager_fails_open_roots_at_once() -> None:
    alone = SingleSpout({"topology.max.spout.pending": 10})
    alone.step()
    alone.step(10)
    alone.executor.on_stream_manager(alone.world.clock.ms, 7)
    assert alone.executor.pending.count == 10, "it is the same one"
    alone.executor.on_stream_manager(alone.world.clock.ms, 8)
    assert alone.executor.pending.count == 0
    alone.step()
    assert alone.spout.failed[:10] == [(n, FailKind.STREAM_MANAGER_LOST) for n in range(10)]
    alone.verdict(alone.roots[:10])
    alone.step(10)
    assert alone.spout.acked == []
    assert alone.world.telemetry[1].counters["__dropped-verdict-count"] == 10
    assert alone.executor.pending.count == 10


def test_spout_times_out_two_buckets_after_the_message_timeout() -> None:
    alone = SingleSpout({"topology.max.spout.pending": 5, "topology.message.timeout.secs": 10})
    alone.step()
    alone.step(19_000)
    assert alone.spout.failed == []
    alone.step(2_000)
    assert alone.spout.failed == [(n, FailKind.TIMEOUT) for n in range(5)]
    counters = alone.world.telemetry[1].counters
    alone.step(10)
    assert counters["__timeout-count/default"] == 5
    assert counters["__fail-count/default"] == 5
    assert counters["__failed-by-reason/timeout"] == 5


def test_spout_that_raises_is_restarted_unless_the_policy_is_fail() -> None:
    def broken(self: Any) -> None:
        raise OSError("no source")

    alone = SingleSpout(next_tuple=broken)
    alone.step()
    assert "no source" in str(alone.executor.failed)
    assert alone.world.telemetry[1].exceptions == ["OSError"]
    patient = SingleSpout({"topology.on.exception": "fail"}, next_tuple=broken)
    patient.step()
    assert patient.executor.failed is None
    assert patient.step(0.01).wait_ms is not None


def test_exception_in_ack_does_not_lose_later_acks() -> None:
    def picky(self: Any, tup_id: Any) -> None:
        if tup_id == 2:
            raise ValueError("two")
        self.acked.append(tup_id)

    alone = SingleSpout({"topology.max.spout.pending": 5, "topology.on.exception": "fail"}, ack=picky)
    alone.step()
    alone.step(10)
    alone.verdict(alone.roots[:5])
    alone.step()
    assert alone.spout.acked == [0, 1, 3, 4]


def test_failures_are_counted_by_reason_and_component() -> None:
    alone = SingleSpout({"topology.max.spout.pending": 10})
    alone.step()
    alone.verdict(alone.roots[:2], Reason(FailKind.FAILED, "r", 2, "because"))
    alone.verdict(alone.roots[2:5], Reason(FailKind.EXCEPTION, "r", 2, "ValueError"))
    alone.verdict(alone.roots[5:6], Reason(FailKind.MOVED))
    alone.step()
    alone.executor.collect_metrics()
    counters = alone.world.telemetry[1].counters
    by_reason = {name: n for name, n in counters.items() if name.startswith("__failed-by-reason")}
    assert by_reason == {
        "__failed-by-reason/failed/r": 2, "__failed-by-reason/exception/r": 3, "__failed-by-reason/moved": 1,
    }  # fmt: skip
    assert sum(by_reason.values()) == counters["__fail-count/default"]


def test_mixed_tracked_and_untracked_rows_and_emit_many() -> None:
    def many(self: Any) -> None:
        if self.n == 0:
            self.n = 1
            self.emit_many([["a"], ("b",), ["c"]], [10, None, 12])
            self.emit_many([("d",)])
            self.emit(tup=["e"], tup_id=13)

    alone = SingleSpout(next_tuple=many)
    step = alone.step()
    step = step if step.flushes else alone.step(10)
    (flush,) = step.flushes
    (frame,) = flush.frames
    assert np.frombuffer(frame.offsets, "<u4").tolist() == [0, 1, 1, 2, 2, 3]
    assert len(alone.roots) == 3
    alone.verdict(alone.roots)
    alone.step()
    assert alone.spout.acked == [10, 12, 13]


def test_hooks_see_emits_acks_and_fails() -> None:
    seen: list[str] = []

    class Watch(TaskHook):
        def emit(self, info: Any) -> None:
            seen.append(f"emit {info.tup_id}")

        def spout_ack(self, info: Any) -> None:
            seen.append(f"ack {info.message_id}")

        def spout_fail(self, info: Any) -> None:
            seen.append(f"fail {info.message_id} {info.reason.kind}")
            raise ValueError("hooks do not hurt")

        def clean_up(self) -> None:
            seen.append("clean")

    alone = SingleSpout({"topology.max.spout.pending": 2})
    alone.spout.context.add_task_hook(Watch())
    alone.step()
    alone.step(10)
    alone.verdict(alone.roots[:1])
    alone.verdict(alone.roots[1:2], Reason(FailKind.FAILED))
    alone.executor.on_pause(0, True)
    alone.step()
    alone.executor.stop(alone.world.clock.ms)
    assert seen == ["emit 0", "emit 1", "ack 0", "fail 1 failed", "clean"]
    assert alone.spout.failed == [(1, FailKind.FAILED)]


def test_older_plan_is_rejected() -> None:
    alone = SingleSpout()
    executor = alone.executor
    newer = replace(
        executor.output.plan, version=PlanVersion(executor.output.plan.version.epoch + 1, 1), state=TopologyState.PAUSED
    )
    executor.on_plan(0, newer)
    executor.on_plan(0, replace(newer, version=PlanVersion(0, 99), state=TopologyState.RUNNING))
    alone.step()
    assert executor.output.plan is newer
    assert alone.spout.calls == 0


def test_spout_drops_data_older_than_the_limit() -> None:
    def emit_time_ms(self: Any, values: Any) -> float:
        return -5000.0 if self.n % 2 else 0.0  # the test's wall clock stays at 0

    config = {"topology.spout.drop.older.ms": 1000, "topology.max.spout.pending": 1000}
    alone = SingleSpout(config, each=10, total=100, emit_time_ms=emit_time_ms)
    while alone.spout.n < 100:
        alone.step()
        alone.drain()
    alone.step(10)
    assert alone.spout.acked == list(range(1, 100, 2)), "the source lets go of what is dropped"
    assert len(alone.roots) == 50
    assert alone.world.telemetry[1].counters["__dropped-older-count"] == 50


def test_drop_older_requires_emit_time_ms() -> None:
    with pytest.raises(TypeError, match="emit_time_ms"):
        SingleSpout({"topology.spout.drop.older.ms": 1000})


def test_dropped_tuples_are_untracked_for_every_kind_of_emit() -> None:
    """Covers single emits, bulk emits and requested task ids; hooks see only emitted tuples."""
    seen: list[Any] = []

    class Watch(TaskHook):
        def emit(self, info: Any) -> None:
            seen.append((info.values, info.tup_id))

    def next_tuple(self: Any) -> None:
        if self.n == 0:
            self.n = 1
            self.emit_many([["old"], ("new",)], [1, 2])
            self.tasks = [self.emit([age], tup_id=n, need_task_ids=True) for n, age in ((3, "old"), (4, "new"))]
            for n, age in ((5, "old"), (6, "new")):
                self.emit([age], tup_id=n)

    def emit_time_ms(self: Any, values: Any) -> float:
        return -5000.0 if values[0] == "old" else 0.0

    config = {"topology.spout.drop.older.ms": 1000}
    alone = SingleSpout(config, next_tuple=next_tuple, emit_time_ms=emit_time_ms)
    alone.spout.context.add_task_hook(Watch())
    alone.step()
    alone.step(10)
    assert seen == [(("new",), n) for n in (2, 4, 6)]
    assert alone.spout.tasks == [[], [2]]
    assert alone.spout.acked == [1, 3, 5]
    assert len(alone.roots) == 3


@pytest.mark.parametrize("hooks", [[], [TaskHook()]])
def test_emit_many_that_raises_emits_nothing_with_or_without_hooks(hooks: list[TaskHook]) -> None:
    def next_tuple(self: Any) -> None:
        self.emit_many([["a"], ["b", "too many"]], [1, 2])

    alone = SingleSpout({"topology.on.exception": "fail"}, next_tuple=next_tuple)
    for hook in hooks:
        alone.spout.context.add_task_hook(hook)
    alone.step()
    alone.step(10)
    assert alone.world.telemetry[1].exceptions[:1] == ["ValueError"]
    assert alone.roots == []


@pytest.mark.parametrize(
    ("config", "warnings"),
    [({MODE: None}, 1), ({MODE: "ATMOST_ONCE"}, 0), ({MODE: "ATLEAST_ONCE"}, 0)],
)
def test_untracked_ids_are_reported_once(
    config: dict[str, Any], warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    alone = SingleSpout(config, total=50)
    alone.executor.on_plan(alone.world.clock.ms, alone.world.plan)
    for _ in range(60):
        alone.step()
        alone.drain()
    alone.executor.collect_metrics()
    said = [record.getMessage() for record in caplog.records if "message ids" in record.getMessage()]
    assert len(said) == warnings
    assert all("s emits" in text and '"topology.reliability.mode": "ATLEAST_ONCE"' in text for text in said)
    untracked = alone.world.telemetry[1].counters["__untracked-ack-count"]
    assert untracked == (0 if config[MODE] == "ATLEAST_ONCE" else 50)


def one_by_one(spout: Any) -> None:
    """Emit five tuples in a call, each routed separately."""
    for _ in range(5):
        spout.emit([spout.payload], tup_id=spout.n, need_task_ids=True)
        spout.n += 1


def test_inits_are_cut_where_the_sequence_wraps() -> None:
    """Each root is in an init before a copy leaves (``Alone.step`` checks), and tracker and table settle it once."""
    for ahead, ways in itertools.product((1, 3, 7), ({"each": 5}, {"next_tuple": one_by_one})):
        alone, tracker = SingleSpout({"topology.max.spout.pending": 20}, **ways), AckTracker(1, 30_000)
        collector = alone.executor.collector
        tracker.begin(5)
        collector._sequence = SEQUENCE_MASK + 1 - ahead
        keys: dict[int, int] = {}
        inits: list[Any] = []
        for _ in range(10):
            for flush in alone.step(6).flushes:
                inits += flush.inits
                for frame in flush.frames:
                    keys.update(zip(column(frame.roots).tolist(), column(frame.keys).tolist(), strict=True))
        assert alone.roots == [root_base(1, 5) | (SEQUENCE_MASK + 1 - ahead + n) & SEQUENCE_MASK for n in range(20)]
        for init in inits:
            tracker.init(init.first_root, init.xors)
            tracker.check()
        assert tracker.live == 20
        columns = [
            (column(root.to_bytes(8, "little")), column(key.to_bytes(8, "little"))) for root, key in keys.items()
        ]
        done = [tracker.ack(roots, xors) for roots, xors in columns]
        assert [roots.tolist() for roots in done] == [[root] for root in keys]
        alone.verdict(alone.roots)
        alone.step()
        assert sorted(alone.spout.acked) == list(range(20))
