"""Tuple weight of a bolt: its own time, downstream time, and stable batch sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.flow_control import (
    GROWTH,
    QUARTER_MS,
    REPORTED_CHANGE,
    UPDATE_INTERVAL_MS,
    CallStatistics,
    TupleWeightEstimator,
)
from heron_instance.core.outbox import Flush, Outbox, RootColumns, RoutedSegment
from heron_instance.core.values_codec import ValuesCodec
from heron_runtime.model.dataflow import LIGHT_BYTES, SECOND_BYTES, UNKNOWN_WEIGHT, seconds_of, weight_of
from heron_runtime.model.settings import Keys, MiB, setting
from heron_runtime.wire.data import Frame


def frame(task: int, count: int, weight: int) -> Frame:
    return Frame(1, 0, task, count, 1, 0, b"", tuple_weight=weight)


def test_weight_is_unknown_before_the_first_tuple() -> None:
    weight = TupleWeightEstimator(batchwise=False)
    assert not weight.update(0.0, {})
    assert weight.tuple_weight == UNKNOWN_WEIGHT
    assert weight.is_known is False
    weight.add_work(1, 1.0)
    weight.update(0.0, {})
    assert weight.is_known is True


@given(st.floats(0.005, 2000), st.lists(st.integers(1, 500), min_size=1, max_size=50))
def test_weight_of_a_steady_bolt_equals_its_tuple_time(tuple_ms: float, pieces: list[int]) -> None:
    weight, now_ms = TupleWeightEstimator(batchwise=False), 0.0
    for n in pieces:
        weight.add_work(n, n * tuple_ms)
        now_ms += n * tuple_ms
        weight.update(now_ms, {})
    assert seconds_of(weight.tuple_weight) == pytest.approx(tuple_ms / 1000, rel=REPORTED_CHANGE - 1, abs=2e-7)


@given(st.floats(0.01, 10), st.floats(10, 3000))
def test_slow_start_is_forgotten(tuple_ms: float, first_ms: float) -> None:
    weight = TupleWeightEstimator(batchwise=False)
    weight.add_work(1, first_ms)
    weight.update(0.0, {})
    for look in range(1, 200):
        weight.add_work(10, 10 * tuple_ms)
        weight.update(look * UPDATE_INTERVAL_MS, {})
    assert weight.tuple_weight <= weight_of(tuple_ms) * REPORTED_CHANGE**2 + LIGHT_BYTES


@given(st.integers(1, 100), st.integers(1, 8), st.integers(1_000, SECOND_BYTES))
def test_weight_of_a_fast_bolt_includes_downstream_work(each: int, tasks: int, heavy: int) -> None:
    weight = TupleWeightEstimator(batchwise=False)
    weights = {7 + task: heavy for task in range(tasks)}
    weight.add_work(tasks, 0.001)
    weight.add_flush(Flush(frames=[frame(task, each, heavy) for task in weights]))
    weight.update(0.0, weights)
    assert weight.tuple_weight == pytest.approx(each * heavy / tasks, abs=1), "that of the task which gets most"
    weight.add_work(tasks, 0.001)
    weight.update(UPDATE_INTERVAL_MS, dict.fromkeys(weights, 0))
    assert weight.tuple_weight < LIGHT_BYTES, "what was sent weighs what it weighs now"


def test_weight_of_a_blocked_bolt_grows_while_it_waits() -> None:
    weight = TupleWeightEstimator(batchwise=False)
    weight.add_work(1000, 1.0)
    weight.update(0.0, {})
    before, now_ms = weight.tuple_weight, 0.0
    for _ in range(50):
        now_ms += UPDATE_INTERVAL_MS
        weight.add_work(0, UPDATE_INTERVAL_MS)
        weight.update(now_ms, {})
    assert before < weight.tuple_weight <= weight_of(now_ms + 1)


def settled_batch(fixed_ms: float, tuple_ms: float) -> float:
    """Return the rows per call of a batch bolt at equilibrium, when each call takes a full data-in queue."""
    weight, now_ms, rows = TupleWeightEstimator(batchwise=True), 0.0, 1.0
    for _ in range(300):
        n = max(1, int(rows))
        took = fixed_ms + n * tuple_ms
        now_ms += took
        weight.add_work(n, took)
        weight.update(now_ms, {})
        rows = min(1024.0, QUARTER_MS / 1000 * SECOND_BYTES / max(weight.tuple_weight, LIGHT_BYTES))
    return rows


@given(st.floats(20, 2000), st.floats(0.001, 0.2))
def test_batches_stay_large_if_each_call_is_slow(fixed_ms: float, tuple_ms: float) -> None:
    rows = settled_batch(fixed_ms, tuple_ms)
    worth = rows / (fixed_ms + rows * tuple_ms)
    best = 1024 / (fixed_ms + 1024 * tuple_ms)
    assert worth > 0.3 * best, f"{rows} rows a call"


@pytest.mark.parametrize(("fixed_ms", "tuple_ms", "call_ms"), [(30.5, 1.0, QUARTER_MS), (150.25, 2.0, 300.5)])
def test_data_in_queue_holds_the_input_of_one_target_call(fixed_ms: float, tuple_ms: float, call_ms: float) -> None:
    """The target is a quarter of a second, or twice the fixed cost of a call if that is longer."""
    calls = CallStatistics()
    for n in (100, 200):
        calls.add(n, fixed_ms + n * tuple_ms)
    rows = QUARTER_MS / calls.batch_tuple_ms()
    assert fixed_ms + rows * tuple_ms == pytest.approx(call_ms)


def test_data_in_queue_holds_a_quarter_of_a_second() -> None:
    assert 1000 * seconds_of(setting({}, Keys.TOPOLOGY_INSTANCE_DATA_IN_CAPACITY_BYTES)) == QUARTER_MS


@given(st.floats(1, 1000))
def test_batches_are_bounded_in_time_if_each_tuple_is_slow(tuple_ms: float) -> None:
    assert settled_batch(0.0, tuple_ms) * tuple_ms <= GROWTH * max(QUARTER_MS * REPORTED_CHANGE, tuple_ms)


def test_frame_holds_a_mebibyte_by_weight() -> None:
    outbox = Outbox(1, ValuesCodec("auto", 64 * MiB), lambda: 0.0)
    outbox.weigh({7: MiB // 10, 8: 0, 9: 3 * MiB})
    rows = [(n,) for n in range(35)]
    for task in (7, 8, 9):
        outbox.add([task], RoutedSegment(0, RootColumns.UNTRACKED, rows))
    frames, _ = outbox.take_frames(1)
    counts = {task: [f.count for f in frames if f.destination_task == task] for task in (7, 8, 9)}
    assert counts == {7: [10, 10, 10, 5], 8: [35], 9: [1] * 35}
    assert all(f.weight() >= f.size_bytes() for f in frames)
    assert outbox.mean_row_weight == sum(f.weight() for f in frames) / 105


def test_weight_increase_applies_at_once() -> None:
    outbox = Outbox(1, ValuesCodec("auto", 64 * MiB), lambda: 0.0)
    outbox.add([7], RoutedSegment(0, RootColumns.UNTRACKED, [(1,)]))
    outbox.take_frames(1)
    assert outbox.mean_row_weight < 1000
    outbox.weigh({7: MiB})
    assert outbox.mean_row_weight == MiB
