"""Spouts and bolts together over links that reorder frames: invariants of acks, failures and counts."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.dataflow import FailKind
from heron_runtime.model.topology import GroupingSpec
from heronry.api.component import BasicBolt, BatchBolt, Bolt, Spout
from tests.support.harness.executors import ALL, SHUFFLE, ExecutorHarness, Part, chain, fields


class NumberSpout(Spout):
    total = 200
    per_call = 1

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.next = 0
        self.acked: list[Any] = []
        self.failed: list[Any] = []
        self.reasons: list[Any] = []

    def next_tuple(self) -> None:
        for _ in range(self.per_call):
            if self.next < self.total:
                self.emit([f"w{self.next % 17}", self.next], tup_id=self.next)
                self.next += 1

    def ack(self, tup_id: Any) -> None:
        self.acked.append(tup_id)

    def fail(self, tup_id: Any, reason: Any) -> None:
        self.failed.append(tup_id)
        self.reasons.append(reason)


class Split(Bolt):
    """Bolt that emits each tuple twice, anchored, and then acks it."""

    def process(self, tup: Any) -> None:
        self.emit([tup["word"], tup["n"]], anchors=[tup])
        self.emit([tup["word"], -tup["n"]], anchors=[tup])
        self.ack(tup)


class BasicSplit(BasicBolt):
    def process(self, tup: Any) -> None:
        self.emit([tup[0], tup[1]])
        self.emit((tup[0], -tup[1]))


class BatchSplit(BatchBolt):
    def process_batch(self, tuples: Any) -> None:
        for tup in tuples:
            self.emit(tup.values, anchors=tup)
        self.emit_many([(w, -n) for w, n in tuples.rows], anchors=list(tuples), one_to_one=True)


class BasicSink(BasicBolt):
    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.seen: Counter[Any] = Counter()

    def process(self, tup: Any) -> None:
        self.seen[tup.values] += 1


class Sink(Bolt):
    initialize = BasicSink.initialize

    def process(self, tup: Any) -> None:
        self.seen[tup.values] += 1
        self.ack(tup)


class BatchSink(BatchBolt):
    initialize = BasicSink.initialize

    def process_batch(self, tuples: Any) -> None:
        self.seen.update(tuples.rows)


PAIR = {"default": ["word", "n"]}


def ran(sink: type[Bolt], tasks: int = 1, how: GroupingSpec = SHUFFLE) -> ExecutorHarness:
    """Return a harness after a spout of 200 numbers and its reader have run."""
    world = ExecutorHarness(
        {"spout": Part(NumberSpout, 1, PAIR), "sink": Part(sink, tasks, {}, [("spout", "default", how)])}
    )
    world.run()
    return world


@pytest.mark.parametrize("split", [Split, BasicSplit, BatchSplit])
@pytest.mark.parametrize("sink", [Sink, BasicSink, BatchSink])
@pytest.mark.parametrize("mode", ["ATLEAST_ONCE", "ATMOST_ONCE"])
def test_every_tuple_arrives_and_is_acked_once(split: type, sink: type, mode: str) -> None:
    world = ExecutorHarness(
        {
            "spout": Part(NumberSpout, 2, PAIR),
            "split": Part(split, 2, PAIR, [("spout", "default", SHUFFLE)]),
            "sink": Part(sink, 3, {}, [("split", "default", fields("word"))]),
        },
        {"topology.reliability.mode": mode},
    )
    world.run()
    seen: Counter[Any] = sum((bolt.seen for bolt in world.objects("sink")), Counter())
    expected = Counter({(f"w{n % 17}", s * n): 2 for n in range(200) for s in (1, -1)})
    expected["w0", 0] = 4
    assert seen == expected
    homes = [{word for word, _ in bolt.seen} for bolt in world.objects("sink")]
    assert sum(map(len, homes)) == 17, "a key has two homes"
    for spout in world.objects("spout"):
        assert sorted(spout.acked) == list(range(200))
        assert spout.failed == []
    assert not world.tracker
    assert not world.late
    if mode == "ATMOST_ONCE":
        assert all(not f.inits and not f.acks for _, f in world.flushes)
    for task in world.plan.tasks_of("sink"):
        counters = world.telemetry[task].counters
        assert counters["__execute-count/split/default"] == sum(world.components[task].seen.values())
        assert counters["__ack-count/split/default"] == counters["__execute-count/split/default"]


@given(seed=st.integers(0, 10_000), data=st.data())
def test_random_trees_settle_each_root_once_and_not_too_early(seed: int, data: st.DataObject) -> None:
    """Bolts delay acks, join across batches and roots, fail and ack twice; a model tracks each tree."""
    chance = random.Random(seed)
    truth: dict[Any, set[Any]] = {}  # message id to the unprocessed copies in its tree
    doomed: set[Any] = set()
    serial = iter(range(10**9))

    class Source(Spout):
        def initialize(self, config: dict[str, Any], context: Any) -> None:
            self.count = 0
            self.acked: list[Any] = []
            self.failed: list[Any] = []
            self.task = context.get_task_id()

        def next_tuple(self) -> None:
            if self.count < 40:
                self.count += 1
                tup_id = None if chance.random() < 0.2 else (self.task, self.count)
                name = next(serial)
                if tup_id is not None:
                    truth[tup_id] = {(name, bolt) for bolt in ("a", "b")}
                self.emit([name, [tup_id] if tup_id else []], tup_id)

        def ack(self, tup_id: Any) -> None:
            assert truth[tup_id] == set(), f"{tup_id} acked with {truth[tup_id]} unprocessed"
            self.acked.append(tup_id)

        def fail(self, tup_id: Any) -> None:
            assert tup_id in doomed
            self.failed.append(tup_id)

    def bolt(me: str, readers: tuple[str, ...]) -> type:
        class Middle(Bolt):
            def initialize(self, config: dict[str, Any], context: Any) -> None:
                self.held: list[Any] = []

            def settle(self, tup: Any) -> None:
                name, ids = tup.values
                if chance.random() < 0.05:
                    doomed.update(ids)
                    self.fail(tup, "no")
                    return
                for tup_id in ids:
                    truth[tup_id].discard((name, me))
                self.ack(tup)
                if chance.random() < 0.1:
                    self.ack(tup)

            def process(self, tup: Any) -> None:
                self.held.append(tup)
                while self.held and chance.random() < 0.7:
                    if readers and chance.random() < 0.8:
                        anchors = [chance.choice(self.held) for _ in range(chance.randint(0, 3))]
                        name, ids = next(serial), sorted({i for a in anchors for i in a.values[1]})
                        for tup_id in ids:
                            truth[tup_id] |= {(name, reader) for reader in readers}
                        self.emit([name, ids], anchors=anchors)
                    self.settle(self.held.pop(chance.randrange(len(self.held))))

            def process_tick(self, tup: Any) -> None:
                while self.held:
                    self.settle(self.held.pop())

        return Middle

    tick = {"topology.tick.tuple.freq.ms": 100}
    row = {"default": ["name", "ids"]}
    world = ExecutorHarness(
        {
            "source": Part(Source, 2, row),
            "a": Part(bolt("a", ("c", "b")), 2, row, [("source", "default", SHUFFLE)], tick),
            "b": Part(bolt("b", ("c",)), 1, row, [("source", "default", SHUFFLE), ("a", "default", SHUFFLE)], tick),
            "c": Part(bolt("c", ()), 2, {}, [("a", "default", SHUFFLE), ("b", "default", SHUFFLE)], tick),
        },
        seed=seed,
    )
    for _ in range(4):
        world.run()
        world.clock.now += 0.2
    assert not world.tracker, "a root is neither complete nor failed"
    for task, spout in zip(world.plan.tasks_of("source"), world.objects("source"), strict=True):
        mine = sorted(tup_id for tup_id in truth if tup_id[0] == task)
        assert sorted(spout.acked + spout.failed) == mine
        assert world.executors[task].pending.count == 0  # type: ignore[attr-defined]


def test_exception_fails_its_tuple_with_traceback_and_the_bolt_continues() -> None:
    class Picky(BasicSink):
        def process(self, tup: Any) -> None:
            if tup["n"] % 10 == 3:
                raise ValueError(f"I do not like {tup['n']}")
            super().process(tup)

    world = ran(Picky)
    (spout,) = world.objects("spout")
    assert sorted(spout.failed) == list(range(3, 200, 10))
    assert sorted(spout.acked + spout.failed) == list(range(200))
    reason = spout.reasons[0]
    assert reason.kind is FailKind.EXCEPTION
    assert (reason.component, reason.task) == ("sink", 2)
    assert "I do not like 3" in reason.message
    assert "in process" in reason.traceback
    assert reason.elapsed_ms > 0
    assert world.telemetry[2].counters["__exception-count"] == 20
    assert world.telemetry[2].counters["__fail-count/spout/default"] == 20
    assert world.telemetry[1].counters["__fail-count/default"] == 20
    by_reason = [{n: v for n, v in world.telemetry[t].counters.items() if "by-reason" in n} for t in (1, 2)]
    assert [sum(found.values()) for found in by_reason] == [20, 20]


def test_each_ack_has_one_process_latency() -> None:
    class Slow(BasicSink):
        """Bolt whose pieces end within a batch and whose reports fall into the work."""

        def process(self, tup: Any) -> None:
            super().process(tup)
            if tup["n"] % 7 == 0:
                world.executors[2].collect_metrics()

    world = chain(NumberSpout, Slow, row=PAIR["default"])
    world.run()
    world.executors[2].collect_metrics()
    told = world.telemetry[2]
    for counter, latency in (("ack", "process"), ("execute", "execute"), ("execute", "queue")):
        assert told.counters[f"__{counter}-count/s/default"] == told.latencies[f"__{latency}-latency/s/default"] == 200


def test_plain_bolt_that_raises_is_restarted_and_its_input_fails() -> None:
    class Broken(Sink):
        def process(self, tup: Any) -> None:
            if tup["n"] == 5:
                raise RuntimeError("broken")
            super().process(tup)

    world = ran(Broken)
    assert world.executors[2].failed is not None
    for flush in world.executors[2].stop(world.clock.ms):
        world.send(2, flush)
    while world.step(1) == 0.0:
        pass
    (spout,) = world.objects("spout")
    assert 5 in spout.failed
    assert len(spout.acked) + len(spout.failed) == 200


def test_failed_batch_fails_only_unsettled_tuples() -> None:
    class Half(BatchBolt):
        def process_batch(self, tuples: Any) -> None:
            for tup in tuples:
                if tup["n"] % 2:
                    self.ack(tup)
            raise ValueError("half")

    world = ran(Half)
    (spout,) = world.objects("spout")
    assert sorted(spout.acked) == list(range(1, 200, 2))
    assert sorted(spout.failed) == list(range(0, 200, 2))


def test_anchor_to_settled_tuple_raises_and_second_ack_is_counted() -> None:
    caught: list[str] = []

    class Careless(Bolt):
        def process(self, tup: Any) -> None:
            self.ack(tup)
            self.ack(tup)
            try:
                self.emit(tup.values, anchors=[tup])
            except ValueError as error:
                caught.append(str(error))

    world = ExecutorHarness(
        {
            "spout": Part(NumberSpout, 1, PAIR),
            "careless": Part(Careless, 1, PAIR, [("spout", "default", SHUFFLE)]),
            "sink": Part(Sink, 1, {}, [("careless", "default", SHUFFLE)]),
        }
    )
    world.run()
    assert len(caught) == 200
    assert "acked or failed already" in caught[0]
    assert world.telemetry[2].counters["__ignored-settle-count"] == 200
    assert len(world.objects("spout")[0].acked) == 200


def test_all_grouping_sends_each_task_a_copy_with_its_own_keys() -> None:
    world = ran(Sink, 3, ALL)
    for bolt in world.objects("sink"):
        assert sum(bolt.seen.values()) == 200
    assert len(world.completed) == 200
    frames = [f for _, flush in world.flushes for f in flush.frames]
    assert len({f.keys for f in frames}) == len(frames)


def test_tuple_without_readers_is_acked_at_once() -> None:
    world = ExecutorHarness({"spout": Part(NumberSpout, 1, PAIR)})
    world.run()
    assert world.objects("spout")[0].acked == list(range(200))
    assert not any(flush.inits for _, flush in world.flushes)
