"""Flow control: bounds of queues, upload and download credit, and the tuple weight of a bolt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heron_instance.core.flow_control import (
    ADJUST_INTERVAL_MS,
    GROWTH,
    PACKET_BYTES,
    QUARTER_MS,
    REPORTED_CHANGE,
    UPDATE_INTERVAL_MS,
    AdaptiveQueue,
    CallStatistics,
    DownloadCredit,
    TupleWeightEstimator,
    UploadQueue,
)
from heron_instance.core.outbox import Flush, Outbox, RootColumns, RoutedSegment
from heron_instance.core.values_codec import ValuesCodec
from heron_runtime.model.dataflow import LIGHT_BYTES, SECOND_BYTES, UNKNOWN_WEIGHT, FailKind, seconds_of, weight_of
from heron_runtime.model.settings import Keys, MiB, setting
from heron_runtime.wire.control import Credit
from heron_runtime.wire.data import Ack, Fail, Frame, Init, Reason


def test_capacity_falls_to_zero_in_an_outage_and_recovers_slowly() -> None:
    queue = AdaptiveQueue(1600)
    queue.add(1500)
    now, seen = 0.0, []
    for _ in range(12):
        queue.adjust(now)
        seen.append(queue.capacity)
        now += ADJUST_INTERVAL_MS
    assert seen[:4] == [800, 400, 200, 100]
    assert seen[-1] == 0
    assert queue.full
    assert queue.room() == 0, "it holds more than it may"
    queue.remove(1500)
    assert queue.full, "nothing may be added before the next adjustment"
    for _ in range(16):
        assert queue.deadline_ms() is not None
        queue.adjust(now)
        now += ADJUST_INTERVAL_MS
    assert queue.capacity == 1600
    assert queue.deadline_ms() is None


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500), st.integers(0, 200)), max_size=60))
def test_capacity_stays_within_its_bounds(steps: list[tuple[int, int, int]]) -> None:
    queue, now = AdaptiveQueue(1000), 0.0
    for add, remove, wait in steps:
        if not queue.full:
            queue.add(add)
        queue.remove(remove)
        now += wait
        queue.adjust(now)
        queue.check()
        assert queue.size < 1000 + 500


def test_capacity_halves_above_the_limit_and_grows_by_a_sixteenth() -> None:
    queue = AdaptiveQueue(1600, 100)
    assert (queue.size, queue.capacity, queue.full, queue.room()) == (0, 1600, False, 1600)
    queue.add(100)
    assert queue.adjust(50.0)
    assert (queue.capacity, queue.room(), queue.deadline_ms()) == (1600, 1500, None), "just the limit is no more"
    queue.add(1)
    assert queue.deadline_ms() == 50.0 + ADJUST_INTERVAL_MS
    assert not queue.adjust(49.0 + ADJUST_INTERVAL_MS)
    assert queue.adjust(50.0 + ADJUST_INTERVAL_MS)
    assert queue.capacity == 800
    queue.remove(1)
    assert queue.adjust(50.0 + 2 * ADJUST_INTERVAL_MS)
    assert (queue.capacity, queue.deadline_ms()) == (900, 50.0 + 3 * ADJUST_INTERVAL_MS)
    queue.add(800)
    assert (queue.full, queue.room()) == (True, 0)
    queue.remove(1)
    assert (queue.full, queue.room()) == (False, 1)
    queue.remove(10**6)
    assert queue.size == 0


def test_small_queue_grows_by_one_and_its_limit_is_half() -> None:
    queue = AdaptiveQueue(9)
    assert (queue.maximum, queue.limit) == (9, 4)
    queue.add(5)
    seen = []
    for round_ in range(8):
        if round_ == 3:
            queue.remove(1)
        queue.adjust(ADJUST_INTERVAL_MS * round_)
        seen.append(queue.capacity)
    assert seen == [4, 2, 1, 2, 3, 4, 5, 6]


ITEMS = st.lists(
    st.tuples(st.sampled_from(("inits", "acks", "fails", "frames", "large")), st.integers(1, 30)), max_size=6
)
LIMITS = st.integers(0, 400) | st.integers(0, 2_000_000)
UPLOADS = st.lists(st.one_of(ITEMS, LIMITS, st.sampled_from(("take", "hello"))), max_size=25)


def made(what: str, number: int, size: int) -> Any:
    column = np.arange(number, number + size, dtype=np.uint64).tobytes()
    match what:
        case "inits":
            return Init(1, number, column)
        case "acks":
            return Ack(1, column, column)
        case "fails":
            return Fail(1, column, Reason(FailKind.FAILED, "b", 2, "no"))
        case _:
            return Frame(1, 0, 2, size, 1, 0, bytes(size if what == "frames" else 25_000 * size))


@given(UPLOADS)
def test_items_leave_once_and_in_order_and_frames_within_credit(steps: list[Any]) -> None:
    outgoing, number = UploadQueue(), 0
    want: dict[str, list[Any]] = {"inits": [], "acks": [], "fails": [], "frames": []}
    got: dict[str, list[Any]] = {"inits": [], "acks": [], "fails": [], "frames": []}
    limit = sent = sequence = 0
    outgoing.begin_stream()
    for step in [*steps, 1 << 40, "take"]:
        if step == "hello":
            outgoing.begin_stream()
            limit = sent = sequence = 0
        elif step == "take":
            while (taken := outgoing.take()) is not None:
                packet, weight = taken
                sequence += 1
                assert packet.sequence == sequence
                assert weight == sum(frame.weight() for frame in packet.frames)
                assert len(packet.frames) <= 1 or weight <= PACKET_BYTES
                assert not packet.frames or sent + weight - packet.frames[-1].weight() < limit
                sent += weight
                for kind, items in got.items():
                    items += getattr(packet, kind)
                assert want["inits"] == got["inits"] or not (packet.acks or packet.fails or packet.frames)
            waiting = {kind for kind in want if len(got[kind]) < len(want[kind])}
            assert waiting <= {"frames"}, "only frames need credit"
            assert not waiting or sent >= limit
            assert outgoing.empty() == (not waiting)
        elif isinstance(step, int):
            outgoing.grant(step)
            limit = max(limit, step)
        else:
            flush = Flush()
            for what, size in step:
                number += 100
                item = made(what, number, size)
                kind = "frames" if what == "large" else what
                getattr(flush, kind).append(item)
                want[kind].append(item)
            outgoing.put(flush)
        waits = {kind for kind in want if len(got[kind]) < len(want[kind])}
        assert outgoing.sendable() == bool(waits - {"frames"} or (waits and sent < limit))
        outgoing.check()
    assert got == want


def test_acks_with_both_columns_fit_the_packet_limit() -> None:
    outgoing, column = UploadQueue(), bytes(PACKET_BYTES // 4)
    outgoing.begin_stream()
    outgoing.put(Flush(acks=[Ack(task, column, column) for task in (1, 2, 3)]))
    sent = []
    while (taken := outgoing.take()) is not None:
        sent.append([ack.task for ack in taken[0].acks])
    assert sent == [[1, 2], [3]]


DOWNLOADS = st.lists(st.tuples(st.sampled_from(("hello", "receive", "take", "offer", "weigh")), st.integers(0, 90)))


@given(DOWNLOADS, st.booleans())
@example([("weigh", 0), ("hello", 0)], False)  # a zero credit must also be sent to each stream manager
def test_limits_belong_to_the_connection_and_are_sent_once(steps: list[tuple[str, int]], tell: bool) -> None:
    """``told`` is the last state sent on this connection, None before the first message."""
    download, told = DownloadCredit(), None
    received = before = taken = total = 0
    weight = 7
    download.offer(total, weight)
    for what, size in [*steps, ("offer", 100)]:
        match what:
            case "hello":
                download.begin_stream()
                before, told = received, None
            case "receive":
                download.receive(size)
                received += size
            case "take":
                taken = min(received, taken + size)
                download.taken_weight = taken
            case "weigh":
                weight = size
                download.offer(total, weight)
            case _:
                total += size
                download.offer(total, weight)
        now = Credit(max(0, total - before), weight, max(0, taken - before))
        if tell:
            assert download.report_taken() == (told is not None and told.taken_bytes != now.taken_bytes)
        due = told is None or now.limit_bytes > told.limit_bytes or now.tuple_weight != told.tuple_weight
        due = due or (tell and told is not None and told.taken_bytes != now.taken_bytes)
        assert download.take_update() == (now if due else None)
        assert download.take_update() is None, "once"
        told = now if due else told


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
