"""Bolt executor: batches, flushes, ticks, bounds and failures, start and end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.bolt_executor import BoltExecutor, Ticks
from heron_instance.core.user_code import NoLock
from heron_runtime.model.dataflow import UNKNOWN_WEIGHT, FailKind
from heronry.api.component import BasicBolt, BatchBolt, Bolt
from heronry.api.hooks import TaskHook
from tests.support.harness.single_bolt import SingleBolt
from tests.support.harness.single_spout import Nothing


class Collect(Bolt):
    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.got: list[Any] = []

    def process(self, tup: Any) -> None:
        self.got.append(tup)
        self.ack(tup)


class Pass(BasicBolt):
    def process(self, tup: Any) -> None:
        self.emit(tup.values)


def test_tuples_carry_their_source_and_field_names() -> None:
    alone = SingleBolt(Collect)
    alone.read(alone.frame([(1,), (2,)]), alone.frame([(3,)]), alone.frame([(4, 5)], "odd"))
    got = alone.bolt.got
    assert [tup.values for tup in got] == [(1,), (2,), (3,), (4, 5)]
    assert [(t.component, t.stream, t.task, t.fields) for t in got[2:]] == [
        ("s", "default", 1, ("n",)),
        ("s", "odd", 1, ("n", "m")),
    ]
    assert len({tup.id for tup in got}) == 4
    assert got[3]["m"] == 5
    assert got[3].as_dict() == {"n": 4, "m": 5}
    with pytest.raises(KeyError, match="fields: n, m"):
        got[3]["x"]


@pytest.mark.parametrize("base", [Bolt, BasicBolt])
@pytest.mark.parametrize("error", [StopIteration, ValueError])
def test_tuple_whose_process_raises_fails_and_others_continue(base: type[Bolt], error: type[Exception]) -> None:
    class Picky(base):  # type: ignore[misc,valid-type]
        exception_policy = "fail"

        def process(self, tup: Any) -> None:
            self.emit(tup.values, anchors=[tup])
            if tup["n"] % 3 == 1:
                raise error
            self.ack(tup)

    alone = SingleBolt(Picky)
    frame = alone.frame([(n,) for n in range(6)])
    flushes = alone.read(frame)
    fails = [fail for flush in flushes for fail in flush.fails]
    acked = b"".join(ack.roots for flush in flushes for ack in flush.acks)
    roots = [frame.roots[8 * n : 8 * n + 8] for n in range(6)]
    assert b"".join(fail.roots for fail in fails) == roots[1] + roots[4]
    assert acked == roots[0] + roots[2] + roots[3] + roots[5]
    assert {fail.reason.message for fail in fails} == {f"{error.__name__}: "}


def test_sink_acks_echo_the_columns_of_a_frame() -> None:
    alone = SingleBolt(Collect)
    frame = alone.frame([(n,) for n in range(50)])
    (flush,) = alone.read(frame)
    (ack,) = flush.acks
    assert (ack.task, ack.roots, ack.xors) == (1, frame.roots, frame.keys)


def pairs(roots: bytes, keys: bytes) -> list[tuple[int, int]]:
    return list(zip(np.frombuffer(roots, "<u8").tolist(), np.frombuffer(keys, "<u8").tolist(), strict=True))


def test_ack_carries_the_keys_of_the_tuple_and_its_edges() -> None:
    class Twice(Bolt):
        def process(self, tup: Any) -> None:
            for _ in range(tup["n"]):
                self.emit([tup["n"]], anchors=[tup])
            self.ack(tup)

    alone = SingleBolt(Twice, readers=3)
    frame = alone.frame([(0,), (1,), (2,), (3,)])
    flushes = alone.read(frame)
    edges: dict[int, int] = {}
    for out in (f for flush in flushes for f in flush.frames):
        for root, key in pairs(out.roots, out.keys):
            edges[root] = edges.get(root, 0) ^ key
    keys = dict(pairs(frame.roots, frame.keys))
    for ack in (a for flush in flushes for a in flush.acks):
        for root, xor in pairs(ack.roots, ack.xors):
            assert xor == keys.pop(root) ^ edges.pop(root, 0)
    assert not keys
    assert not edges


def test_multi_anchored_tuple_has_one_edge_for_each_root() -> None:
    class Join(BatchBolt):
        def process_batch(self, tuples: Any) -> None:
            self.emit([0], anchors=tuples)
            self.emit([1], anchors=[tuples[0], tuples[0]])

    alone = SingleBolt(Join)
    frame = alone.frame([(n,) for n in range(5)])
    (flush,) = alone.read(frame)
    (out,) = flush.frames
    assert np.frombuffer(out.offsets, "<u4").tolist() == [0, 5, 6]
    keys = np.frombuffer(out.keys, "<u8")
    (ack,) = flush.acks
    drawn = np.frombuffer(ack.xors, "<u8") ^ np.frombuffer(frame.keys, "<u8")
    assert drawn[0] == keys[0] ^ keys[5]
    assert (drawn[1:] == keys[1:5]).all()
    assert len(set(keys.tolist())) == 6


def test_untracked_input_yields_untracked_output_without_acks() -> None:
    alone = SingleBolt(Pass)
    (flush,) = alone.read(alone.frame([(1,), (2,)], tracked=False))
    assert not flush.acks
    assert flush.frames[0].roots == b""
    alone.executor.collect_metrics()
    assert alone.world.telemetry[2].counters["__ack-count/s/default"] == 2


def test_delayed_acks_leave_with_the_next_flush() -> None:
    class Hold(Bolt):
        def initialize(self, config: dict[str, Any], context: Any) -> None:
            self.held: list[Any] = []

        def process(self, tup: Any) -> None:
            self.held.append(tup)

        def process_tick(self, tup: Any) -> None:
            assert tup.is_tick
            assert tup.task is None
            first, *rest = self.held
            self.held = []
            self.emit([7], anchors=[first, *rest])
            for held in (first, *rest):
                self.ack(held)

    alone = SingleBolt(Hold, {"topology.tick.tuple.freq.ms": 50})
    alone.feed(alone.frame([(1,), (2,)]))
    assert alone.step().flushes == []
    alone.feed(alone.frame([(3,)]))
    alone.step(5)
    alone.step(5)
    flushes = alone.step(60).flushes or alone.step(10).flushes
    (flush,) = flushes
    assert len(flush.acks[0].roots) == 24
    assert len(flush.frames[0].roots) == 24


def test_slow_bolt_returns_in_time_and_keeps_its_position() -> None:
    class Slow(Collect):
        def process(self, tup: Any) -> None:
            clock.now += 0.004
            super().process(tup)

    alone = SingleBolt(Slow)
    clock = alone.world.clock
    alone.feed(alone.frame([(n,) for n in range(200)]))
    alone.step()
    first = len(alone.bolt.got)
    assert first < 100
    for _ in range(5):
        before = len(alone.bolt.got)
        began = clock.now
        flushes = alone.step().flushes + alone.step().flushes
        assert flushes, "acks of a slow bolt do not wait for its batch"
        assert clock.now - began < 0.03
        assert len(alone.bolt.got) > before
    alone.all()
    assert [tup["n"] for tup in alone.bolt.got] == list(range(200))


def test_full_data_out_stops_input_after_at_most_one_piece_and_ticks() -> None:
    class Blow(BasicBolt):
        ticks = 0

        def process(self, tup: Any) -> None:
            self.emit(["z" * 5000])

        def process_tick(self, tup: Any) -> None:
            self.ticks += 1

    config = {"topology.instance.data.out.capacity.bytes": 65_536, "topology.tick.tuple.freq.ms": 10}
    alone = SingleBolt(Blow, config)
    executor = alone.executor
    alone.step()
    alone.step(11)
    alone.feed(*(alone.frame([(n,) for n in range(500)]) for _ in range(3)))
    for _ in range(10):
        alone.step(6)
    waiting, size, ticks = executor.data_in.size, executor.output.data_out.size, alone.bolt.ticks
    assert waiting > 0
    assert executor.full
    for _ in range(20):
        alone.step(50)
    assert (executor.data_in.size, executor.output.data_out.size) == (waiting, size)
    assert alone.bolt.ticks == ticks > 0
    assert executor._credit_bytes <= executor.taken_weight + max(
        executor.data_in.maximum, executor.weight_estimator.tuple_weight
    )
    for _ in range(20):
        executor.on_sent(alone.world.clock.ms, 1 << 40)
        alone.step(100)
    assert alone.bolt.ticks > ticks


def test_unreadable_frame_fails_without_its_neighbours() -> None:
    alone = SingleBolt(Collect, {"topology.on.exception": "fail"})
    bad = alone.frame([(9,), (9,)])
    bad.values = b"\xc1"
    flushes = alone.read(alone.frame([(1,)]), bad, alone.frame([(2,)]))
    assert [tup["n"] for tup in alone.bolt.got] == [1, 2]
    (fail,) = [f for flush in flushes for f in flush.fails]
    assert fail.roots == bad.roots
    assert fail.reason.kind is FailKind.EXCEPTION


class Unsendable:
    """Value with a stable key that cannot be serialized."""

    def __heronry_key__(self) -> int:
        return 7

    def __reduce__(self) -> Any:
        raise TypeError("not to be sent")


UNSENDABLE = [(Unsendable(), "TypeError", "TypeError: not to be sent"), ("h" * 5000, "ValuesError", "tuple.max.bytes")]


@pytest.mark.parametrize("base", [BasicBolt, Bolt])
@pytest.mark.parametrize(("value", "error", "message"), UNSENDABLE)
def test_unsendable_value_fails_its_tuple_and_counts_as_exception(
    base: type[Bolt], value: Any, error: str, message: str
) -> None:
    """The failure is counted and shown at the bolt, and does not restart it."""

    def process(self: Any, tup: Any) -> None:
        self.emit([tup["n"] if tup["n"] % 4 else value], anchors=tup)
        if base is Bolt:
            self.ack(tup)

    alone = SingleBolt(type("Lazy", (base,), {"process": process}), {"topology.tuple.max.bytes": 4096})
    frame = alone.frame([(n,) for n in range(12)])
    flushes = alone.read(frame)
    alone.executor.collect_metrics()
    assert sum(f.count for flush in flushes for f in flush.frames) == 9
    fails = [f for flush in flushes for f in flush.fails]
    assert b"".join(f.roots for f in fails) == b"".join(frame.roots[8 * n : 8 * n + 8] for n in (0, 4, 8))
    assert message in fails[0].reason.message
    assert fails[0].reason.component == "b"
    counted = alone.world.telemetry[2]
    assert counted.exceptions == [error] * 3
    assert counted.counters["__fail-count/s/default"] == counted.counters["__exception-count"] == 3
    assert counted.counters["__refused-tuple-count"] == 3
    assert alone.executor.failed is None


def test_fail_text_is_sent_once_for_each_reason() -> None:
    class Refuse(Bolt):
        def process(self, tup: Any) -> None:
            self.fail(tup, f"reason {tup['n'] % 12}" if tup["n"] < 90 else ValueError("v"))

    alone = SingleBolt(Refuse)
    flushes = alone.read(alone.frame([(n,) for n in range(100)]))
    fails = [f for flush in flushes for f in flush.fails]
    texts = [f.reason.message for f in fails if f.reason.kind is FailKind.FAILED]
    assert len(texts) == len(set(texts)) == 9
    assert "" in texts
    assert [f.reason.message for f in fails if f.reason.kind is FailKind.EXCEPTION] == ["ValueError: v"]
    assert sum(len(f.roots) // 8 for f in fails) == 100


def test_idle_bolt_flushes_at_once_and_busy_bolt_by_size_or_time() -> None:
    alone = SingleBolt(Collect)
    assert not alone.step(50).flushes
    alone.feed(alone.frame([(1,)]))
    assert alone.step(0.1).flushes, "the input is empty, and what had nothing to flush was no flush"
    alone.feed(alone.frame([(1,)]))
    step = alone.step(0.1)
    assert not step.flushes, "the last flush was just now"
    assert step.wait_ms is not None
    assert step.wait_ms <= 1.0
    assert alone.step(step.wait_ms).flushes


def test_new_routing_applies_to_later_emits() -> None:
    alone = SingleBolt(Pass, readers=2)
    executor = alone.executor
    alone.feed(alone.frame([(1,)]))
    executor.output.interval_ms = 1000.0
    executor.output._last_flush_ms = alone.world.clock.ms
    executor._gap_ms = 1000.0
    alone.step()
    plan = replace(executor.output.plan, routing_version=2)
    executor.on_plan(alone.world.clock.ms, plan)
    alone.feed(alone.frame([(2,)]))
    flushes = alone.step(2000).flushes
    assert [f.routing_version for flush in flushes for f in flush.frames] == [1, 2]


def test_missed_ticks_are_skipped() -> None:
    class Ticks(BasicBolt):
        ticks = 0

        def process_tick(self, tup: Any) -> None:
            self.ticks += 1
            assert tup.id == -1 - self.ticks, "each has an id of its own"

    alone = SingleBolt(Ticks, {"topology.tick.tuple.freq.secs": 0.1})
    wait = alone.step().wait_ms
    assert wait is not None
    assert wait <= 100
    alone.step(1000)
    alone.step(1)
    assert 1 <= alone.bolt.ticks <= 2
    assert alone.world.telemetry[2].exceptions == []


def test_hooks_observe_execute_ack_fail_and_emit() -> None:
    seen: list[str] = []
    ages: list[float] = []
    took: list[float] = []

    class Watch(TaskHook):
        def bolt_execute(self, info: Any) -> None:
            seen.append(f"execute {info.tuple['n']}")
            took.append(info.execute_latency_ms)

        def bolt_ack(self, info: Any) -> None:
            seen.append("ack")
            ages.append(info.process_latency_ms)

        def bolt_fail(self, info: Any) -> None:
            seen.append("fail")
            ages.append(info.fail_latency_ms)

        def emit(self, info: Any) -> None:
            seen.append(f"emit {info.values}")

    class Watched(BasicBolt):
        def initialize(self, config: dict[str, Any], context: Any) -> None:
            context.add_task_hook(Watch())

        def process(self, tup: Any) -> None:
            alone.world.clock.now += tup["n"] / 1000
            if tup["n"] == 2:
                self.fail(tup)
            else:
                self.emit(tup.values)

    alone = SingleBolt(Watched)
    frame = alone.frame([(1,), (2,)])
    alone.feed(frame)
    alone.world.clock.now += 0.25
    (flush,) = alone.all()
    assert ages == pytest.approx([252, 255], abs=1), "since the tuple arrived"
    assert took == pytest.approx([2, 3], abs=1)
    assert seen == ["emit (1,)", "execute 1", "ack", "fail", "execute 2"]
    assert flush.frames[0].roots == frame.roots[:8]
    assert flush.acks[0].roots == frame.roots[:8]
    assert flush.fails[0].roots == frame.roots[8:]


def test_user_metrics_reach_the_telemetry() -> None:
    from heronry.api.metrics import CountMetric, LatencyMetric, MultiCountMetric

    class Measured(BasicBolt):
        def initialize(self, config: dict[str, Any], context: Any) -> None:
            self.seen = context.register_metric("seen", CountMetric(), 10)
            self.by = context.register_metric("by", MultiCountMetric())
            self.took = context.register_metric("took", LatencyMetric())

        def process(self, tup: Any) -> None:
            self.seen.incr()
            self.by.incr("even" if tup["n"] % 2 == 0 else "odd")
            self.took.update(5.0)

    alone = SingleBolt(Measured)
    alone.read(alone.frame([(n,) for n in range(5)]))
    alone.executor.collect_metrics()
    alone.executor.collect_metrics()
    told = alone.world.telemetry[2]
    assert (told.counters["seen"], told.counters["by/even"], told.counters["by/odd"]) == (5, 3, 2)
    assert told.latencies["took"] == 5
    assert told.gauges["__gateway-in-stream-queue-size"] == 0


class Pair(NamedTuple):
    """Named tuple used as a row."""

    n: int


@pytest.mark.parametrize("say", [{"values": Pair(7)}, {"values": range(7, 8)}, {"tup": [7]}, {"values": [7]}])
def test_emit_accepts_any_sequence_and_the_heron_argument_name(say: dict[str, Any]) -> None:
    class Says(BasicBolt):
        def process(self, tup: Any) -> None:
            self.emit(**say)

    alone = SingleBolt(Says)
    alone.feed(alone.frame([(1,)]))
    (frame,) = [frame for flush in alone.all() for frame in flush.frames]
    assert alone.executor.task.codec.decode(frame.codec, frame.values) == [(7,)]


def test_credit_is_offered_by_halves_of_data_in() -> None:
    """A credit message costs as much as a packet."""
    alone = SingleBolt(Collect, {"topology.instance.data.in.capacity.bytes": 1_000_000})
    told = {alone.step().credit_bytes}
    for _ in range(100):
        alone.feed(alone.frame([("x" * 20_000,)]))
        told.add(alone.step().credit_bytes)
    assert alone.executor.taken_weight > 2_000_000
    assert 4 <= len(told - {None}) <= 6


def test_no_tuple_is_processed_after_a_fatal_error_with_hooks() -> None:
    class Fatal(BasicBolt):
        def initialize(self, config: dict[str, Any], context: Any) -> None:
            context.add_task_hook(TaskHook())
            self.seen: list[int] = []

        def process(self, tup: Any) -> None:
            self.seen.append(tup["n"])
            if tup["n"] == 2:
                raise RuntimeError("no more")

    alone = SingleBolt(Fatal, {"topology.on.exception": "restart"})
    alone.feed(alone.frame([(1,), (2,), (3,)]))
    for _ in range(5):
        alone.step()
    assert alone.executor.failed is not None
    assert alone.bolt.seen == [1, 2]


def test_close_skips_a_component_that_was_not_initialized() -> None:
    class Closes(BasicBolt):
        closed = 0

        def process(self, tup: Any) -> None:
            """Do nothing."""

        def close(self) -> None:
            self.closed += 1

    alone = SingleBolt(Closes)
    alone.executor.task.close()
    assert alone.bolt.closed == 1
    setup = alone.world.setup_of(2)
    unborn = BoltExecutor(setup)
    unborn.task.close()
    assert setup.component.closed == 0


@pytest.mark.parametrize("bolt", [Nothing, Pass])
def test_flush_before_the_first_call_of_a_batch_acks_nothing(bolt: type[Bolt]) -> None:
    """The timer thread may take the lock as soon as it is released, when no tuple is in progress."""
    seen: list[tuple[int, int]] = []

    class Taken(NoLock):
        """Lock that another thread acquires on release."""

        def release(self) -> None:
            work = alone.executor._work
            if work is not None:
                acks = [ack for flush in alone.executor.flush_within_call(alone.world.clock.ms) for ack in flush.acks]
                seen.append((work.position(), sum(len(ack.roots) // 8 for ack in acks)))

    alone = SingleBolt(bolt)
    alone.executor.task.user_code.lock = Taken()
    alone.feed(alone.frame([(1,), (2,)]))
    alone.step()
    assert seen == [(0, 0)]


def test_weight_is_reported_only_after_emitted_rows_have_left() -> None:
    """The weight includes downstream work; an early, low weight would admit too much input."""

    class Emits(BasicBolt):
        def process(self, tup: Any) -> None:
            alone.world.clock.now += 0.002
            self.emit(tup.values)

    alone = SingleBolt(Emits)
    alone.executor._gap_ms = 100.0
    for n in range(2):
        alone.feed(alone.frame([(n,)]))
    flushed, told = False, set()
    for _ in range(100):
        step = alone.step()
        flushed = flushed or bool(step.flushes)
        told.add((flushed, step.tuple_weight != UNKNOWN_WEIGHT))
    assert told == {(False, False), (True, True)}


class Broken(BaseException):
    """Stand-in for an exception that ends an executor during a call."""


class Singly(BasicBolt):
    def process(self, tup: Any) -> None:
        if tup["n"] == 1:
            raise Broken


class AtOnce(BatchBolt):
    def process_batch(self, tuples: Any) -> None:
        raise Broken


@pytest.mark.parametrize(("bolt", "done"), [(Singly, 1), (AtOnce, 0)])
def test_each_tuple_of_an_interrupted_batch_settles_once(bolt: type[Bolt], done: int) -> None:
    """Finished tuples are acked; the current tuple, or the whole batch of a batch bolt, fails with those after it."""
    alone = SingleBolt(bolt)
    frame = alone.frame([(n,) for n in range(4)])
    alone.feed(frame)
    for _ in range(done):
        alone.step()
    with pytest.raises(Broken):
        alone.step()
    alone.executor.stop(alone.world.clock.ms)
    alone.executor.collect_metrics()
    counters = alone.world.telemetry[2].counters
    assert counters["__fail-count/s/default"] == 4 - done
    assert counters.get("__ack-count/s/default", 0) == done


EACH_MS = 50


@pytest.mark.parametrize(("config", "each_ms"), [({"secs": 2}, 2000), ({"ms": 40}, 40), ({"secs": 2, "ms": 40}, 40)])
def test_first_tick_follows_the_first_check_by_one_interval(config: dict[str, Any], each_ms: int) -> None:
    ticks = Ticks({f"topology.tick.tuple.freq.{unit}": n for unit, n in config.items()})
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
