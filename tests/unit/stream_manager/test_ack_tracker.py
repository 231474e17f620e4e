"""Ack tracker compared with a dict: any interleaving and batching, one settlement per root, bounded expiry."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.ids import SEQUENCE_MASK, root_base
from stream_manager.core.ack_tracker import AckTracker

TASK, INCARNATION = 7, 0xBEEF
TIMEOUT_MS, BUCKETS = 3000, 4
BASE = root_base(TASK, INCARNATION)


def roots_from(sequence: int, count: int) -> list[int]:
    return [BASE | ((sequence + i) & SEQUENCE_MASK) for i in range(count)]


def array(values: list[int]) -> np.ndarray:
    return np.array(values, np.uint64)


def data(values: list[int]) -> bytes:
    return array(values).tobytes()


class Model:
    """Reference tracker with Storm's rotating buckets."""

    def __init__(self, now_ms: int) -> None:
        self.xor: dict[int, int] = {}
        self.buckets: list[list[int]] = [[] for _ in range(BUCKETS)]
        self.rotate_at = now_ms + TIMEOUT_MS // (BUCKETS - 1)

    def init(self, roots: list[int], keys: list[int]) -> None:
        self.xor.update(zip(roots, keys, strict=True))
        self.buckets[0] += roots

    def ack(self, roots: list[int], keys: list[int]) -> list[int]:
        for root, key in zip(roots, keys, strict=True):
            if root in self.xor:
                self.xor[root] ^= key
        return [r for r in dict.fromkeys(roots) if self.xor.get(r) == 0 and self.xor.pop(r) == 0]

    def fail(self, roots: list[int]) -> list[int]:
        return [root for root in roots if self.xor.pop(root, None) is not None]

    def tick(self, now_ms: int) -> list[int]:
        if now_ms < self.rotate_at:
            return []
        self.rotate_at = now_ms + TIMEOUT_MS // (BUCKETS - 1)
        dead = self.buckets.pop()
        self.buckets.insert(0, [])
        return self.fail(dead)


@given(
    seed=st.integers(0, 2**32),
    start=st.sampled_from([0, 5, 2**31, 2**32 - 40, 2**32 - 3]),
    steps=st.lists(st.sampled_from(["init", "ack", "ack", "fail", "tick", "late"]), min_size=5, max_size=60),
    slots=st.sampled_from([(4, 4), (4, 16), (8, 1024)]),
)
def test_tracker_agrees_with_a_dict_for_any_interleaving(
    seed: int, start: int, steps: list[str], slots: tuple[int, int]
) -> None:
    rng = random.Random(seed)
    tracker = AckTracker(TASK, TIMEOUT_MS, BUCKETS, 0, min_slots=slots[0], max_slots=slots[1])
    tracker.begin(INCARNATION)
    model = Model(0)
    open_edges: list[tuple[int, int]] = []  # (root, key) of copies in the topology
    settled: list[int] = []
    opened: list[int] = []
    sequence, now_ms = start, 0
    for step in steps:
        if step == "init":
            roots = roots_from(sequence, rng.randrange(1, 30))
            sequence += len(roots)
            keys = []
            for root in roots:
                edges = [rng.getrandbits(64) for _ in range(rng.choice([1, 1, 2, 3]))]
                open_edges += [(root, edge) for edge in edges]
                keys.append(int(np.bitwise_xor.reduce(array(edges))))
            model.init(roots, keys)
            opened += roots
            at_once, refused = tracker.init(roots[0], data(keys))
            assert len(at_once) == len(refused) == 0
            got = want = []
        elif step == "ack":
            rng.shuffle(open_edges)
            cut = rng.randrange(len(open_edges) + 1)
            taken, open_edges = open_edges[:cut], open_edges[cut:]
            if rng.random() < 0.5:
                taken.sort()
            acks = []
            for root, key in taken:
                new = [rng.getrandbits(64) for _ in range(rng.choice([0, 0, 1, 2]))]
                open_edges += [(root, edge) for edge in new]
                acks.append((root, int(np.bitwise_xor.reduce(array([key, *new])))))
            want = model.ack([r for r, _ in acks], [k for _, k in acks])
            got = tracker.ack(array([r for r, _ in acks]), array([k for _, k in acks])).tolist()
        elif step == "fail":
            victims = [root for root, _ in rng.sample(open_edges, min(3, len(open_edges)))]
            want, got = model.fail(victims), tracker.fail(array(victims)).tolist()
        elif step == "late":
            strangers = [root_base(TASK, INCARNATION + 1) | 1, root_base(TASK + 1, INCARNATION), BASE | (start + 5000)]
            before = tracker.late
            assert tracker.ack(array(strangers), array([1, 2, 3])).tolist() == []
            assert tracker.late == before + 3
            got = want = []
        else:
            now_ms += rng.randrange(0, 1500)
            want, got = model.tick(now_ms), tracker.tick(now_ms).tolist()
        assert sorted(got) == sorted(want)
        settled += got
        tracker.check()
        assert tracker.live == len(model.xor)
    assert len(settled) == len(set(settled))
    for _ in range(BUCKETS + 1):
        now_ms += TIMEOUT_MS
        settled += tracker.tick(now_ms).tolist()
    assert sorted(settled) == sorted(opened), "each root settles exactly once"
    assert tracker.live == 0


@given(
    buckets=st.integers(2, 6),
    timeout_ms=st.integers(50, 5000),
    tick_ms=st.integers(1, 100),
    opened_at=st.integers(0, 20_000),
)
def test_root_expires_within_its_bounds(buckets: int, timeout_ms: int, tick_ms: int, opened_at: int) -> None:
    tracker = AckTracker(TASK, timeout_ms, buckets, 0)
    tracker.begin(INCARNATION)
    now_ms, opened = 0, None
    while True:
        if opened is None and now_ms >= opened_at:
            tracker.init(BASE | 1, data([99]))
            opened = now_ms
        if len(tracker.tick(now_ms)):
            break
        now_ms += tick_ms
    assert opened is not None
    age = now_ms - opened
    interval = -(-timeout_ms // (buckets - 1))
    assert timeout_ms <= age <= buckets * (interval + tick_ms)


def test_late_tick_rotates_one_bucket() -> None:
    tracker = AckTracker(TASK, 3000, 4, 0)
    tracker.begin(INCARNATION)
    for bucket in range(3):
        tracker.init(BASE | (10 * bucket), data([5]))
        tracker.tick(1000 * (bucket + 1))
    expired = [len(tracker.tick(60_000)), len(tracker.tick(60_100)), len(tracker.tick(60_999))]
    assert expired == [1, 0, 0]


def test_stuck_root_costs_one_entry_while_millions_pass() -> None:
    tracker = AckTracker(TASK, 30_000, 3, 0, min_slots=1 << 10, max_slots=1 << 12)
    tracker.begin(INCARNATION)
    stuck = BASE | 17
    tracker.init(stuck, data([42]))
    ones = np.ones(1000, np.uint64)
    for first in range(100, 2_000_100, 1000):
        tracker.init(BASE | first, ones.tobytes())
        roots = np.arange(BASE | first, (BASE | first) + 1000, dtype=np.uint64)
        assert len(tracker.ack(roots, ones)) == 1000
    assert (tracker.live, tracker.overflow, tracker.slots) == (1, 1, 1 << 11)
    tracker.check()
    assert tracker.ack(array([stuck]), array([42])).tolist() == [stuck]
    assert tracker.live == 0


def test_new_incarnation_discards_older_roots() -> None:
    tracker = AckTracker(TASK, 2000, 3, 0, min_slots=4, max_slots=4)
    tracker.begin(1)
    old = root_base(TASK, 1)
    tracker.init(old, data([5, 6, 7, 8, 9]))
    assert tracker.overflow == 1
    assert tracker.begin(2) == 5
    tracker.check()
    assert tracker.ack(array([old]), array([5])).tolist() == []
    assert tracker.late == 1
    with pytest.raises(ValueError, match=r"task 7\.2"):
        tracker.init(old, data([5]))
    tracker.init(root_base(TASK, 2), data([5]))
    tracker.check()
    assert tracker.begin(2) == 0, "a reconnect of the same process forgets nothing"
    assert tracker.live == 1


def test_roots_without_copies_complete_at_once_and_excess_roots_are_refused() -> None:
    tracker = AckTracker(TASK, None, 3, 0, min_slots=4, max_slots=4, max_live=6)
    tracker.begin(INCARNATION)
    complete, refused = tracker.init(BASE | SEQUENCE_MASK, data([1, 0, 3]))
    assert complete.tolist() == [BASE]
    assert refused.tolist() == []
    complete, refused = tracker.init(BASE | 10, data([1] * 6))
    assert refused.tolist() == roots_from(14, 2)
    assert (tracker.live, tracker.refused) == (6, 2)
    tracker.check()


@given(st.integers(0, 7), st.integers(1, 6))
def test_reopened_root_replaces_the_old_one(first: int, count: int) -> None:
    tracker = AckTracker(TASK, None, 3, 0, min_slots=16, max_slots=16)
    tracker.begin(INCARNATION)
    for keys in (range(100, 100 + count), range(200, 200 + count)):
        tracker.init(BASE | first, data(list(keys)))
        tracker.check()
        assert tracker.live == count
    roots = roots_from(first, count)
    assert tracker.ack(array(roots), array(list(range(200, 200 + count)))).tolist() == roots
    assert tracker.live == 0


def test_root_zero_is_rejected_despite_free_slots() -> None:
    tracker = AckTracker(TASK, None)
    tracker.begin(INCARNATION)
    tracker.init(BASE | 5, data([1]))
    for roots in ([0], [BASE | 5, 0]):
        with pytest.raises(ValueError, match="root 0 is not a valid root"):
            tracker.ack(array(roots), array([1] * len(roots)))
        with pytest.raises(ValueError, match="root 0 is not a valid root"):
            tracker.fail(array(roots))
    tracker.check()
    assert tracker.tick(10**9).tolist() == [], "without a timeout none expires"
    assert (tracker.live, tracker.late) == (1, 0)
    assert tracker.ack(array([BASE | 5]), array([1])).tolist() == [BASE | 5]


@pytest.mark.parametrize("firsts", [(0, 10, 2), (10, 0, 2), (0, 2, 4)])
def test_roots_expire_for_any_gaps_between_ranges(firsts: tuple[int, ...]) -> None:
    """A range is extended only where the last one ended."""
    tracker = AckTracker(TASK, 1000, 2)
    tracker.begin(INCARNATION)
    for first, count in zip(firsts, (1, 2, 1), strict=True):
        tracker.init(BASE | first, data([1] * count))
    expired = [root for now_ms in (1000, 2000) for root in tracker.tick(now_ms).tolist()]
    assert sorted(expired) == sorted(
        root for first, count in zip(firsts, (1, 2, 1), strict=True) for root in roots_from(first, count)
    )
