"""Pending table compared with a dictionary: each root settles exactly once, and old roots keep their slot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.pending import FIRST_SIZE, PendingTable, SettledRoots, make_pending_table
from heron_runtime.model.ids import SEQUENCE_MASK, root_base

BASE = root_base(3, 9)


def roots(sequences: list[int], base: int = BASE) -> np.ndarray:  # type: ignore[type-arg]
    return np.array([base | (s & SEQUENCE_MASK) for s in sequences], dtype=np.uint64)


@given(data=st.data(), start=st.sampled_from([0, SEQUENCE_MASK - 700]), most=st.sampled_from([256, 3000]))
def test_table_agrees_with_a_dictionary(data: st.DataObject, start: int, most: int) -> None:
    table = PendingTable(BASE, most, 1000.0)
    model: dict[int, tuple[int, float]] = {}
    sequence, now = start, 0.0
    for _ in range(data.draw(st.integers(1, 25))):
        now += data.draw(st.integers(0, 300))
        action = data.draw(st.sampled_from(["open", "open", "settle", "expire", "strange"]))
        if action == "open":
            count = data.draw(st.integers(1, 900))
            table.open(sequence, list(range(sequence, sequence + count)), 1, now)
            for s in range(sequence, sequence + count):
                model[s & SEQUENCE_MASK] = (s, now)
            sequence = (sequence + count) & SEQUENCE_MASK
        elif action == "settle" and model:
            some = data.draw(st.lists(st.sampled_from(sorted(model)), max_size=50))
            settled = table.settle(roots(some), now)
            expected = [model.pop(s) for s in dict.fromkeys(some)]
            assert sorted(zip(settled.ids, settled.ages_ms.tolist(), strict=True)) == sorted(
                (tup_id, now - time) for tup_id, time in expected
            )
            assert settled.dropped == len(some) - len(expected)
        elif action == "strange":
            settled = table.settle(roots([sequence + 5, sequence + 6]), now)
            assert (settled.ids, settled.dropped) == ([], 2)
            assert table.settle(roots(list(model)[:3], root_base(3, 8)), now).ids == []
        else:
            late = {s for s, (_, time) in model.items() if time < now - 1000}
            settled = table.expire(now)
            assert sorted(settled.ids) == sorted(model.pop(s)[0] for s in late)
        table.check()
        assert table.count == len(model)
    settled = table.settle_all(now)
    assert sorted(settled.ids) == sorted(tup_id for tup_id, _ in model.values())
    assert table.count == 0


def test_old_root_keeps_its_slot_while_millions_pass() -> None:
    table = PendingTable(BASE, 1000, None)
    table.open(0, ["stuck"], 0, 0.0)
    for first in range(1, 3_000_000, 1000):
        table.open(first, list(range(1000)), 0, 1.0)
        assert len(table.settle(roots([first])[0] + np.arange(1000, dtype=np.uint64), 2.0).ids) == 1000
    assert table.count == 1
    assert table.settle(roots([0]), 5.0).ids == ["stuck"]
    assert table.settle(roots([0]), 5.0).dropped == 1


def test_ring_grows_only_with_open_roots() -> None:
    table = PendingTable(BASE, 20_000, None)
    for first in range(0, 100_000, 100):  # few at a time, so it stays small however many pass
        table.open(first, list(range(100)), 0, 1.0)
        table.settle(roots([first])[0] + np.arange(100, dtype=np.uint64), 2.0)
    assert table._size == FIRST_SIZE
    table.open(100_000, list(range(60_000)), 0, 1.0)
    table.check()
    assert table._size == 65_536
    assert sorted(table.settle_all(2.0).ids) == list(range(60_000))


def crowded(timeout_ms: float | None = 1000.0) -> PendingTable:
    """Return a table whose ring has one root displaced by another that is 100 ms younger; both are open."""
    table = PendingTable(BASE, 1, timeout_ms)
    table.open(0, ["old"], 7, 100.0)
    table.open(FIRST_SIZE, ["young"], 8, 200.0)
    return table


def told(settled: SettledRoots) -> list[tuple[str, int, float]]:
    return list(zip(settled.ids, settled.streams.tolist(), settled.ages_ms.tolist(), strict=True))


def test_displaced_root_expires_on_time() -> None:
    table = crowded()
    assert told(table.expire(1100.0)) == []  # as old as the timeout, not older
    assert table.oldest_ms() == 100.0
    assert told(table.expire(1101.0)) == [("old", 7, 1001.0)]
    assert table.oldest_ms() == 200.0
    assert told(table.expire(1200.0)) == []
    assert told(table.expire(1201.0)) == [("young", 8, 1001.0)]
    assert (table.count, table.oldest_ms()) == (0, None)


def test_without_timeout_nothing_expires_and_all_can_settle() -> None:
    table = crowded(None)
    assert told(table.expire(1e12)) == []
    assert sorted(told(table.settle_all(300.0))) == [("old", 7, 200.0), ("young", 8, 100.0)]


def test_stream_indexes_are_integers_for_every_slot() -> None:
    """Stream indexes address arrays of streams."""
    assert crowded().settle(roots([0]), 300.0).streams.dtype == crowded().settle(roots([FIRST_SIZE]), 0.0).streams.dtype


@pytest.mark.parametrize(
    ("timeout_secs", "buckets", "each_ms", "net_ms"),
    [
        (30, 3, 1000.0, 60_000.0),
        (1, 3, 500.0, 2000.0),
        (1, 6, 200.0, 1400.0),
        (1, 41, 50.0, 1050.0),
        (None, 3, 1000.0, None),
    ],
)
def test_spout_timeout_exceeds_the_trackers_by_two_buckets(
    timeout_secs: int | None, buckets: int, each_ms: float, net_ms: float | None
) -> None:
    settings = {"heron.streammgr.ack.buckets": buckets}
    config: dict[str, object] = {"topology.message.timeout.secs": timeout_secs or 1}
    config["topology.enable.message.timeouts"] = timeout_secs is not None
    table, found_ms = make_pending_table(3, 9, settings, config)
    assert found_ms == each_ms
    table.open(0, ["one"], 0, 0.0)
    assert table.expire(net_ms or 1e12).ids == []
    assert table.expire((net_ms or 1e12) + 1).ids == ([] if net_ms is None else ["one"])


@pytest.mark.parametrize("fault", ["miscounted", "two places", "wrong slot", "should have grown"])
def test_check_detects_double_and_lost_roots(fault: str) -> None:
    table = crowded()
    if fault == "miscounted":
        table.count += 1
    elif fault == "two places":
        table._sequences[0] = 0
    elif fault == "wrong slot":
        table._sequences[0] = 1
    else:
        table.count = FIRST_SIZE
        table._largest *= 2
    with pytest.raises(AssertionError, match=fault):
        table.check()
