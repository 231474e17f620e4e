"""Emits within one call of user code: they leave during the call, respect all bounds, and check these rarely."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.collector import TaskCollector
from heron_instance.core.emit_gate import LONG_CALL_MS, EmitBudget
from heron_instance.core.output_streams import OutputStream
from heron_instance.core.spout_executor import FINISH_CALL_MS
from heron_instance.shell.main import locate_user_frame
from heron_runtime.model.topology import TopologyState
from heronry.api.component import BasicBolt, BatchBolt, Bolt
from tests.support.harness.executors import SHUFFLE, ExecutorHarness, Part, chain, fields
from tests.support.harness.looping_spout import BOLT, SPOUT, Shell, complete_all, looping
from tests.support.harness.single_bolt import SingleBolt
from tests.support.harness.single_spout import Nothing, Source


def test_pending_window_holds_within_a_call() -> None:
    world, shell, spout = looping({"topology.max.spout.pending": 10}, total=500)
    pending = shell.executor.pending
    shell.meanwhile = lambda: complete_all(world) if len(shell.waits) % 3 == 0 else None
    most: list[int] = []
    out = shell.executor.collector.streams["default"]
    spout.look = lambda: most.append(pending.count + len(out.waiting) // out.per_row)
    world.step(SPOUT)
    assert spout.n == 500
    in_short_call = int(LONG_CALL_MS) + 1
    assert max(most[:in_short_call]) <= in_short_call, "a short call is not held"
    assert max(most[in_short_call + 5 :]) <= 10
    assert shell.waits, "it had to wait"
    world.clock.now += 1.0
    world.step(SPOUT)
    assert sum(frame.count for frame in world.wires[SPOUT, BOLT]) == 500


def test_acks_are_counted_during_a_call_and_delivered_after_it() -> None:
    world, shell, spout = looping({"topology.max.spout.pending": 10}, total=300)
    shell.meanwhile = lambda: complete_all(world)
    seen: list[int] = []
    spout.look = lambda: seen.append(len(spout.acked))
    world.step(SPOUT)
    counted = world.telemetry[SPOUT].counters["__ack-count/default"]
    assert counted > 200
    assert max(seen) == 0
    world.step(SPOUT)
    assert len(spout.acked) >= counted
    assert spout.acked == sorted(spout.acked)


def test_poll_delivers_acks_within_a_call() -> None:
    world, shell, spout = looping({"topology.max.spout.pending": 10}, total=300, polls=True)
    shell.meanwhile = lambda: complete_all(world)
    behind: list[int] = []
    spout.look = lambda: behind.append(spout.n - len(spout.acked))
    world.step(SPOUT)
    assert max(behind[100:]) <= 12


def test_untracked_ids_are_not_acked_within_an_emit() -> None:
    world, shell, spout = looping({"topology.reliability.mode": "ATMOST_ONCE"}, total=300)
    seen: list[int] = []
    spout.look = lambda: seen.append(len(spout.acked))
    world.step(SPOUT)
    assert set(seen) == {0}
    assert shell.served > 0, "it was a long call"
    world.step(SPOUT)
    assert spout.acked == list(range(1, 301))


def test_poll_takes_pending_items_without_waiting() -> None:
    world, shell, spout = looping(total=20)
    taken: list[int] = []

    def look() -> None:
        before = shell.served
        spout.poll()
        taken.append(shell.served - before)

    spout.look = look
    world.step(SPOUT)
    assert taken == [1] * 20
    assert shell.waits == []


def test_undelivered_acks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heron_instance.core.ack_delivery.MAX_UNDELIVERED", 50)
    world, shell, spout = looping({"topology.max.spout.pending": 10}, total=1000)
    shell.meanwhile = lambda: complete_all(world)
    untold: list[int] = []
    spout.look = lambda: untold.append(shell.executor._ack_delivery.undelivered_count)
    world.step(SPOUT)
    assert max(untold) <= 70
    assert len(spout.acked) > 900


def test_pause_and_deactivation_hold_within_a_call() -> None:
    world, shell, spout = looping(total=4000)
    executor = shell.executor

    def look() -> None:
        if spout.n == 100:
            executor.on_pause(world.clock.ms, True)
        if spout.n == 1300:
            executor.on_plan(world.clock.ms, replace(world.plan, state=TopologyState.PAUSED))

    emitted_at_wait: list[int] = []

    def meanwhile() -> None:
        emitted_at_wait.append(spout.n)
        executor.on_pause(world.clock.ms, False)
        executor.on_plan(world.clock.ms, world.plan)

    spout.look, shell.meanwhile = look, meanwhile
    world.step(SPOUT)
    assert spout.n == 4000
    assert len(emitted_at_wait) == 2
    assert 100 < emitted_at_wait[0] <= 100 + 1025
    assert 1300 < emitted_at_wait[1] <= 1300 + 1025 + FINISH_CALL_MS  # one emit per millisecond


def test_short_rest_of_a_call_does_not_wait_for_activation() -> None:
    world, shell, spout = looping(total=3, each_ms=1.5 * LONG_CALL_MS)
    serve = shell.serve

    def deactivate(wait_ms: float) -> None:
        shell.executor.on_plan(world.clock.ms, replace(world.plan, state=TopologyState.PAUSED))
        serve(wait_ms)

    shell.serve = deactivate  # type: ignore[method-assign]
    world.step(SPOUT)
    assert spout.n == 3
    assert shell.waits == []


def test_emits_of_a_long_spout_call_leave_in_time() -> None:
    world, shell, spout = looping(total=1000, each_ms=1.0)
    late: list[int] = []

    spout.look = lambda: late.append(spout.n - sum(frame.count for frame in world.wires[SPOUT, BOLT]))
    world.step(SPOUT)
    assert max(late) <= shell.executor.gate.interval_ms + 1
    assert shell.watched >= 100, "each first emit behind a flush has the timer watch"


def test_emits_in_close_are_not_held() -> None:
    world, shell, spout = looping({"topology.max.spout.pending": 1}, total=0)

    def close() -> None:
        for n in range(100):
            world.clock.now += 0.1
            spout.emit(["late"], tup_id=n)

    spout.close = close
    shell.post(shell.executor.stop(world.clock.ms))
    assert not shell.waits


class Script(Bolt):
    """Bolt that runs scripted actions on its tuples: anchored emit, ack, fail, or a flush by the loop's thread."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.held: list[Any] = []

    def process(self, tup: Any) -> None:
        self.held.append(tup)
        for action, pick in self.script.pop(0) if self.script else [("ack", 0)]:
            if action == "flush":
                self.shell.flush()
            elif self.held:
                chosen = self.held[pick % len(self.held)]
                if action == "emit":
                    self.emit([pick], anchors=[chosen])
                elif action == "join":
                    self.emit([pick], anchors=list(self.held))
                elif action == "loose":
                    self.emit([pick])
                else:
                    self.held.remove(chosen)
                    (self.ack if action == "ack" else self.fail)(chosen)
        if not self.script:
            for left in self.held:
                self.ack(left)
            self.held = []


ACTIONS = ["emit", "emit", "join", "loose", "ack", "ack", "fail", "flush", "flush"]
actions = st.tuples(st.sampled_from(ACTIONS), st.integers(0, 5))


@given(script=st.lists(st.lists(actions, max_size=8), min_size=1, max_size=12), seed=st.integers(0, 1000))
def test_tuple_trees_stay_consistent_for_any_flush_time(script: Any, seed: int) -> None:
    """The tracker's XOR of a root is 0 when all of its tuples are acked, and never before."""
    count = len(script)
    source = type("Few", (Source,), {"total": count})
    world = chain(source, Script, Nothing, seed=seed)
    bolt: Any = world.components[BOLT]
    bolt.shell, bolt.script = Shell(world, BOLT), [list(actions) for actions in script]
    world.run()
    assert set(world.late) <= set(world.failed), "a root was complete before its tuples were acked"
    assert not world.tracker, "a root is neither complete nor failed"
    assert len(world.completed) + len(world.failed) == count


def acks_within_call(bolt: type[Bolt]) -> list[int]:
    """Return the completed trees, of ten in one batch, at each flush that the bolt does."""
    completed: list[int] = []

    def flush() -> None:
        world.executors[BOLT].task.component.shell.flush()
        completed.append(len(world.completed))

    world = chain(
        type("Few", (Source,), {"total": 10, "each": 10}), type("Flushes", (bolt,), {"flush": staticmethod(flush)})
    )
    world.components[BOLT].shell = Shell(world, BOLT)
    world.run()
    assert len(world.completed) == 10
    return completed


def test_basic_bolt_acks_leave_while_a_later_tuple_is_slow() -> None:
    class Slow(BasicBolt):
        n = 0

        def process(self, tup: Any) -> None:
            self.n += 1
            if self.n == 10:
                self.flush()

    assert acks_within_call(Slow) == [9], "all but the tuple in hand"


@pytest.mark.parametrize("kind", [Bolt, BatchBolt])
def test_acks_of_a_batch_leave_during_the_call(kind: Any) -> None:
    class Batch(kind):  # type: ignore[misc]
        def process_batch(self, tuples: Any) -> None:
            for place, tup in enumerate(tuples):
                self.ack(tup)
                if place == len(tuples) // 2:
                    self.flush()

    assert acks_within_call(Batch)[0] >= 5


def test_concurrent_emits_and_flushes_keep_trees_consistent() -> None:
    """User code emits and acks while another thread flushes, both without pause."""
    source = type("Many", (Source,), {"total": 20_000, "each": 100})
    finished = threading.Event()

    class Busy(BatchBolt):
        def process_batch(self, tuples: Any) -> None:
            for tup in tuples:
                for n in range(3):
                    self.emit([n], anchors=[tup])
                self.ack(tup)

    parts = {
        "s": Part(source, 1, {"default": ["x"]}),
        "b": Part(Busy, 1, {"default": ["y"]}, [("s", "default", SHUFFLE)]),
        "r": Part(Nothing, 2, {}, [("b", "default", fields("y"))]),
    }

    def lock() -> Any:
        made = threading.RLock()
        made.acquire()
        return made

    world = ExecutorHarness(parts, lock=lock)
    executor, flushed = world.executors[BOLT], 0

    def loop() -> None:
        nonlocal flushed
        gate = executor.gate
        while not finished.is_set():
            if gate._user_code.call is not None and gate.lock.acquire(blocking=False):
                try:
                    if gate._user_code.call is not None:
                        for flush in executor.flush_within_call(world.clock.ms):
                            flushed += 1
                            world.send(BOLT, flush)
                finally:
                    gate.lock.release()

    thread = threading.Thread(target=loop)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        world.run(20_000)
    finally:
        finished.set()
        thread.join()
        sys.setswitchinterval(before)
    assert flushed > 0
    assert not world.late
    assert len(world.completed) == 20_000


def test_locate_user_frame_returns_function_file_and_line() -> None:
    def inner() -> str:
        return locate_user_frame(sys._getframe(), Path(__file__).parent)

    assert "inner" in inner()
    assert "test_emit_gate.py:" in inner()
    assert locate_user_frame(None, Path("/nowhere")) == ""


def test_ack_made_during_routing_leaves_with_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """User code may emit and ack between the moment its rows are taken and the moment acks are sent."""
    meanwhile: list[Callable[[], None]] = []
    real = TaskCollector.route_pending

    def route_pending(self: Any) -> None:
        real(self)
        while meanwhile:
            meanwhile.pop()()

    class Late(Bolt):
        def process(self, tup: Any) -> None:
            def act() -> None:
                self.emit([1], anchors=[tup])
                self.ack(tup)

            meanwhile.append(act)
            self.shell.flush()

    monkeypatch.setattr(TaskCollector, "route_pending", route_pending)
    source = type("Few", (Source,), {"total": 5})
    world = chain(source, Late, Nothing)
    bolt: Any = world.components[BOLT]
    bolt.shell = Shell(world, BOLT)
    world.run()
    assert not world.late
    assert len(world.completed) == 5


@pytest.mark.parametrize("interval_ms", [5, 20])
def test_call_outlasts_the_flush_interval_after_its_interval(interval_ms: int) -> None:
    seen: list[bool] = []

    class Looks(Source):
        def next_tuple(self) -> None:
            world.clock.now += (interval_ms - 1) / 1000
            seen.append(gate.outlasts_flush_interval())
            world.clock.now += 1.1 / 1000
            seen.append(gate.outlasts_flush_interval())

    world = chain(Looks, Nothing, config={"topology.flush.interval.ms": interval_ms})
    gate = world.executors[1].gate
    assert not gate.outlasts_flush_interval(), "there is none"
    world.executors[1].run(world.clock.ms)
    assert seen[:2] == [False, True]


def test_long_call_is_described_with_its_location() -> None:
    told: list[tuple[float, str]] = []

    class Sleeps(Source):
        def next_tuple(self) -> None:
            for seconds in (1.9, 0.2, 2.7, 0.3):
                world.clock.now += seconds
                told.append((gate.in_call_ms() // 100, gate.describe_call(lambda: "user.py, line 7")))

    world = chain(Sleeps, Nothing)
    gate = world.executors[1].gate
    world.executors[1].run(world.clock.ms)
    told.append((gate.in_call_ms(), gate.describe_call(lambda: "nowhere")))
    assert told == [
        (0, ""),
        (21, "in next_tuple for 2 s"),
        (48, "in next_tuple for 5 s"),
        (51, "in next_tuple for 5 s (user.py, line 7)"),
        (0, ""),
    ]


class Emitter:
    """Emits to several streams within a budget, as ``emit_row`` and ``emit_rows`` of a collector do."""

    def __init__(self, streams: int) -> None:
        self.outs = [OutputStream("s", f"s{n}", n, ("x",), False) for n in range(streams)]
        collector: Any = SimpleNamespace(
            streams={out.name: out for out in self.outs},
            emitted_ever=lambda: sum(out.emitted_ever + len(out.waiting) for out in self.outs),
        )
        self.budget = EmitBudget(collector)
        self.looks = 0

    def emit(self, stream: int, rows: int) -> None:
        out = self.outs[stream % len(self.outs)]
        if len(out.waiting) + (0 if rows == 1 else rows) >= out.gate_at:
            self.looks += 1
            self.budget.spend(out, rows)
        out.waiting += [("x",)] * rows


@given(
    st.integers(1, 3),
    st.integers(0, 60),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 7)), max_size=80),
    st.booleans(),
)
def test_budget_is_exhausted_by_the_emit_that_reaches_it(
    streams: int, room: int, emits: list[tuple[int, int]], again: bool
) -> None:
    emitter, total = Emitter(streams), 0
    budget = emitter.budget
    assert not budget.is_active
    assert not budget.is_exhausted
    if again:  # the remainder of an earlier budget does not count
        budget.begin(7)
        emitter.emit(0, 9)
        budget.end()
        assert not budget.is_active
    budget.begin(room)
    assert budget.is_active
    assert not budget.is_exhausted
    for stream, rows in emits:
        emitter.emit(stream, rows)
        total += rows
        assert budget.is_exhausted == (total >= room)
        if budget.is_exhausted:
            break


@pytest.mark.parametrize(("streams", "most"), [(1, 2), (2, 25), (3, 45)])
def test_budget_is_checked_rarely(streams: int, most: int) -> None:
    emitter = Emitter(streams)
    emitter.budget.begin(1000)
    for n in range(1000):
        assert not emitter.budget.is_exhausted
        emitter.emit(n, 1)
    assert emitter.budget.is_exhausted
    assert emitter.looks <= most


@pytest.mark.parametrize("kind", [Bolt, BasicBolt])
def test_emits_of_a_long_bolt_call_leave_in_time(kind: type[Bolt]) -> None:
    late: list[int] = []

    class Loops(kind):  # type: ignore[misc, valid-type]
        def process(self, tup: Any) -> None:
            for n in range(300):
                alone.world.clock.now += 0.001
                self.emit([n])
                shell.tick()
                late.append(n + 1 - sum(frame.count for frame in alone.world.wires[2, 3]))

    alone = SingleBolt(Loops)
    shell = Shell(alone.world, 2)
    alone.feed(alone.frame([(1,)]))
    alone.step()
    assert len(late) == 300
    assert max(late) <= alone.executor.gate.interval_ms + 1
    assert shell.watched >= 300 // (alone.executor.gate.interval_ms + 2), "each first emit behind a flush"
    assert shell.served < 150, "it does not look at each emit"


FLUSHES = [
    ({"rows": 4095}, False),
    ({"rows": 4096}, True),
    ({"rows": 10, "mean_row_bytes": 26_214.3}, False),
    ({"rows": 10, "mean_row_bytes": 26_214.4}, True),
    ({"rows": 10, "mean_row_weight": 104_857.5}, False),
    ({"rows": 10, "mean_row_weight": 104_857.6}, True),
    ({"rows": 1, "waited_ms": 4.75}, False),
    ({"rows": 1, "waited_ms": 5.0}, True),
    ({"rows": 1, "idle": True, "since_flush_ms": 2.75}, False),
    ({"rows": 1, "idle": True, "since_flush_ms": 3.0}, True),
    ({"rows": 1, "idle": False, "since_flush_ms": 4.0}, False),
    ({"rows": 0, "waited_ms": 9.0, "idle": True}, False),
]


@pytest.mark.parametrize(("state", "due"), FLUSHES)
def test_flush_is_due_by_rows_bytes_weight_or_time(state: dict[str, Any], due: bool) -> None:
    """Limits: 4096 rows, 256 KiB, 1 MiB by weight, the flush interval; when idle, the gap since the last flush."""
    alone = SingleBolt(BasicBolt, {"topology.flush.interval.ms": 5})
    output, outbox = alone.executor.output, alone.executor.task.outbox
    now_ms = 10_000.0
    output.waiting_since_ms = now_ms - state.get("waited_ms", 0.0)
    output._last_flush_ms = now_ms - state.get("since_flush_ms", 1.0)
    outbox.rows = state["rows"]
    outbox.mean_row_bytes = state.get("mean_row_bytes", 1.0)
    outbox.mean_row_weight = state.get("mean_row_weight", 1.0)
    assert output.next_flush_ms(3.0) == output._last_flush_ms + 3.0
    output.take_due(now_ms, state.get("idle", False), 3.0)
    assert (output._last_flush_ms == now_ms) == due
    assert (output.waiting_since_ms is None) == (due or not state["rows"])


@pytest.mark.parametrize(
    ("room", "weight", "rows"),
    [(0, 10.0, 1), (99, 10.0, 9), (100, 10.0, 10), (1 << 30, 10.0, 4096), (1 << 30, 1024.0, 1024), (100, 1000.0, 1)],
)
def test_quantum_fits_data_out_and_the_weight_of_a_batch(room: int, weight: float, rows: int) -> None:
    """The quantum fits into data-out and 1 MiB of weight, is at most a batch and at least one row."""
    alone = SingleBolt(BasicBolt, {"topology.instance.data.out.capacity.bytes": 1 << 30})
    output = alone.executor.output
    output.data_out.add((1 << 30) - room)
    alone.executor.task.outbox.mean_row_weight = weight
    assert output.quantum() == rows
