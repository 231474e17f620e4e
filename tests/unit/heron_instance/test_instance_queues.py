"""Adaptive queue bounds, and the upload queue of the gateway."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.flow_control import ADJUST_INTERVAL_MS, PACKET_BYTES, AdaptiveQueue, UploadQueue
from heron_instance.core.outbox import Flush
from heron_runtime.model.dataflow import FailKind
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


def flush_of(sizes: list[int], number: int) -> Flush:
    frames = [Frame(1, 0, 2, 1, 1, 0, b"x" * size) for size in sizes]
    ones = np.array([number], dtype=np.uint64).tobytes()
    return Flush([Init(1, number, ones)], [Ack(1, ones, ones)], [Fail(1, ones, Reason(FailKind.FAILED))], frames)


@given(
    st.lists(st.lists(st.integers(0, 700_000), max_size=4), max_size=8), st.lists(st.integers(1, 2_000_000), max_size=8)
)
def test_upload_keeps_order_and_frames_stay_within_credit(flushes: list[list[int]], limits: list[int]) -> None:
    outgoing = UploadQueue()
    outgoing.begin_stream()
    for number, sizes in enumerate(flushes, 1):
        outgoing.put(flush_of(sizes, number))
    expected = [size for sizes in flushes for size in sizes]
    sent: list[int] = []
    inits: list[int] = []
    total, sequence, granted = 0, 0, 0
    for limit in [0, *limits, 1 << 40]:
        outgoing.grant(limit)
        granted = max(granted, limit)
        while (taken := outgoing.take()) is not None:
            packet, frame_bytes = taken
            sequence += 1
            assert packet.sequence == sequence
            inits += [init.first_root for init in packet.inits]
            if packet.frames:
                assert len(inits) == len(flushes), "inits wait for no credit"
                assert total < granted
                assert len(packet.frames) == 1 or frame_bytes <= PACKET_BYTES
                assert sum(frame.size_bytes() for frame in packet.frames[:-1]) + total < granted
            total += frame_bytes
            sent += [len(frame.values) for frame in packet.frames]
            outgoing.check()
    assert sent == expected
    assert inits == list(range(1, len(flushes) + 1))
    assert outgoing.empty()


def test_waiting_frames_leave_on_the_next_stream() -> None:
    outgoing = UploadQueue()
    outgoing.begin_stream()
    outgoing.put(flush_of([10, 10], 1))
    outgoing.grant(1)
    assert outgoing.take() is not None
    assert outgoing.take() is None
    outgoing.begin_stream()
    assert not outgoing.sendable()
    outgoing.grant(1000)
    taken = outgoing.take()
    assert taken is not None
    assert taken[0].sequence == 1
    assert len(taken[0].frames) == 1
