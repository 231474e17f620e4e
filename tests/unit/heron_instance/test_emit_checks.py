"""Frequency of checks within emits: often enough for every bound, and rare otherwise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.emit_gate import EmitBudget
from heron_instance.core.output_streams import OutputStream
from heronry.api.component import BasicBolt, Bolt
from tests.support.harness.looping_spout import Shell
from tests.support.harness.single_bolt import SingleBolt


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
