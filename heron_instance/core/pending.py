"""Open roots of a spout task: the pending table, and the window of ``topology.max.spout.pending``.

``PendingTable`` settles each root exactly once. Roots are numbered consecutively, so a ring indexed by the low bits of
the sequence number holds message ids, emit times and streams; opening and settling are slices and array operations. The
ring begins small and doubles while more than half of it would be open, up to twice what ``topology.max.spout.pending``
allows: most spouts never have many open roots, and a large ring takes half a megabyte. One stuck root while millions
pass must keep its place: when the ring comes round to an open root, that one moves to ``stragglers``, a dictionary. So
memory is bounded by open roots, not by their span. The tracker of the stream manager expires roots; the timer here is
a safety net (timeout and two buckets) in case its verdict never comes.

``PendingWindow`` decides when a spout at the maximum may emit again. A spout that used each free place at once would
send ever smaller packets (silly window syndrome in TCP), and packets are the cost. So the window, once shut, stays shut
until there is room for a batch or a flush interval has passed. The largest window is smaller than the capacity of the
spout's tracker, so this is also where a spout waits for its tracker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from heron_runtime.model.ids import SEQUENCE_MASK, root_base
from heron_runtime.model.settings import Keys, setting

U64 = npt.NDArray[np.uint64]
FIRST_SIZE = 1024  # a power of two
REOPEN_ROWS = 2048  # room at which a shut window opens
REPORT_FULL_MS = 2000.0  # `heron status` shows a window that has been full for so long


class SettledRoots(NamedTuple):
    """Roots settled by one verdict: message ids, streams and ages in milliseconds, in order."""

    ids: list[Any]
    streams: npt.NDArray[np.uint16]
    ages_ms: npt.NDArray[np.float64]
    dropped: int = 0  # verdicts for roots that are not open


class PendingTable:
    """Open roots of one spout task and incarnation. Times are milliseconds of any one clock."""

    def __init__(self, base: int, max_pending: int, timeout_ms: float | None) -> None:
        self._prefix = np.uint64(base >> 32)
        self._largest = max(FIRST_SIZE, 1 << (2 * max_pending - 1).bit_length())
        self._make_ring(FIRST_SIZE)
        self._stragglers: dict[int, tuple[Any, int, float]] = {}
        self._timeout_ms = timeout_ms
        self.count = 0

    def open(self, first: int, ids: list[Any], stream: int, now_ms: float) -> None:
        """Open the roots ``first``, ``first`` + 1, … (32 bits, wrapping) with these message ids."""
        wanted = 2 * (self.count + len(ids))
        if wanted > self._size < self._largest:
            self._grow(min(self._largest, 1 << (wanted - 1).bit_length()))
        done = 0
        while done < len(ids):
            slot = (first + done) & self._mask
            # At most half the ring at once, so that a huge call moves its own roots to the stragglers in order.
            step = min(len(ids) - done, self._size - slot, self._size // 2)
            self._open_slice(slot, (first + done) & SEQUENCE_MASK, ids[done : done + step], stream, now_ms)
            done += step
        self.count += len(ids)

    def _make_ring(self, size: int) -> None:
        """Make an empty ring of ``size`` slots, a power of two."""
        self._size = size
        self._mask = size - 1
        self._ids: list[Any] = [None] * size
        self._times = np.zeros(size, dtype=np.float64)
        self._streams = np.zeros(size, dtype=np.uint16)
        self._sequences = np.zeros(size, dtype=np.uint32)
        self._open = np.zeros(size, dtype=bool)

    def _grow(self, size: int) -> None:
        """Move the open roots to a larger ring, where no two of them can collide that did not before."""
        slots = np.flatnonzero(self._open)
        ids, times, streams, sequences = self._ids, self._times, self._streams, self._sequences
        self._make_ring(size)
        places = (sequences[slots] & np.uint32(self._mask)).astype(np.int64)
        self._times[places] = times[slots]
        self._streams[places] = streams[slots]
        self._sequences[places] = sequences[slots]
        self._open[places] = True
        for place, slot in zip(places.tolist(), slots.tolist(), strict=True):
            self._ids[place] = ids[slot]

    def _open_slice(self, slot: int, first: int, ids: list[Any], stream: int, now_ms: float) -> None:
        stop = slot + len(ids)
        if self._open[slot:stop].any():
            for taken in (slot + np.flatnonzero(self._open[slot:stop])).tolist():
                sequence = int(self._sequences[taken])
                self._stragglers[sequence] = (self._ids[taken], int(self._streams[taken]), float(self._times[taken]))
        self._ids[slot:stop] = ids
        self._times[slot:stop] = now_ms
        self._streams[slot:stop] = stream
        self._sequences[slot:stop] = (np.arange(first, first + len(ids), dtype=np.int64) & SEQUENCE_MASK).astype(
            np.uint32
        )
        self._open[slot:stop] = True

    def settle(self, roots: U64, now_ms: float) -> SettledRoots:
        """Settle these roots. Roots that are not open (another incarnation, already settled) are dropped."""
        total = len(roots)
        own = roots[(roots >> np.uint64(32)) == self._prefix]
        sequences = (own & np.uint64(SEQUENCE_MASK)).astype(np.uint32)
        if len(sequences) > 1 and not (sequences[1:] > sequences[:-1]).all():
            sequences = np.unique(sequences)
        slots = (sequences & np.uint32(self._mask)).astype(np.int64)
        in_ring = self._open[slots] & (self._sequences[slots] == sequences)
        if in_ring.all():
            settled = self._settle_slots(slots, now_ms)
        else:
            settled = self._settle_slots(slots[in_ring], now_ms)
            if self._stragglers:
                settled = _joined(settled, self._settle_stragglers(sequences[~in_ring].tolist(), now_ms))
        self.count -= len(settled.ids)
        return settled._replace(dropped=total - len(settled.ids))

    def _settle_slots(self, slots: npt.NDArray[np.int64], now_ms: float) -> SettledRoots:
        count = len(slots)
        if count == 0:
            return _NOTHING
        ids = self._ids
        if (slots[1:] == slots[:-1] + 1).all():
            first = int(slots[0])
            settled_ids = ids[first : first + count]
            ids[first : first + count] = [None] * count
        else:
            places = slots.tolist()
            settled_ids = [ids[place] for place in places]
            for place in places:
                ids[place] = None
        self._open[slots] = False
        return SettledRoots(settled_ids, self._streams[slots], now_ms - self._times[slots])

    def _settle_stragglers(self, sequences: list[int], now_ms: float) -> SettledRoots:
        stragglers = [self._stragglers.pop(s) for s in sequences if s in self._stragglers]
        if not stragglers:
            return _NOTHING
        ids, streams, times = zip(*stragglers, strict=True)
        return SettledRoots(list(ids), np.array(streams, dtype=np.uint16), now_ms - np.array(times))

    def expire(self, now_ms: float) -> SettledRoots:
        """Settle roots older than the timeout and two buckets."""
        if self._timeout_ms is None or not self.count:
            return _NOTHING
        return self._settle_before(now_ms - self._timeout_ms, now_ms)

    def settle_all(self, now_ms: float) -> SettledRoots:
        """Settle every open root, since their tracker is gone."""
        return self._settle_before(float("inf"), now_ms)

    def _settle_before(self, limit: float, now_ms: float) -> SettledRoots:
        slots = np.flatnonzero(self._open & (self._times < limit))
        late = [s for s, (_, _, time) in self._stragglers.items() if time < limit]
        stragglers = self._settle_stragglers(late, now_ms)
        settled = _joined(stragglers, self._settle_slots(slots, now_ms))
        self.count -= len(settled.ids)
        return settled

    def oldest_ms(self) -> float | None:
        """Return when the oldest open root was emitted, or None."""
        times = [time for _, _, time in self._stragglers.values()]
        if self._open.any():
            times.append(float(self._times[self._open].min()))
        return min(times, default=None)

    def check(self) -> None:
        """Assert that the counts agree, the ring has room while it may grow, and no root is in two places."""
        assert self._size == self._largest or 2 * self.count <= self._size, "the ring should have grown"
        assert self.count == int(self._open.sum()) + len(self._stragglers), "open roots are miscounted"
        for sequence in self._stragglers:
            slot = sequence & self._mask
            assert not (self._open[slot] and int(self._sequences[slot]) == sequence), "a root is in two places"
        slots = np.flatnonzero(self._open)
        assert (self._sequences[slots].astype(np.int64) & self._mask == slots).all(), "a root is in the wrong slot"


def _joined(a: SettledRoots, b: SettledRoots) -> SettledRoots:
    if not a.ids:
        return b
    if not b.ids:
        return a
    return SettledRoots(a.ids + b.ids, np.concatenate([a.streams, b.streams]), np.concatenate([a.ages_ms, b.ages_ms]))


_NOTHING = SettledRoots([], np.zeros(0, dtype=np.uint16), np.zeros(0, dtype=np.float64))


def make_pending_table(
    task: int, incarnation: int, settings: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[PendingTable, float]:
    """Make the table of a spout task. Return it and the interval of its expiry in milliseconds."""
    max_pending: int = setting(config, Keys.TOPOLOGY_MAX_SPOUT_PENDING)
    timeout_ms: float | None = 1000.0 * setting(config, Keys.TOPOLOGY_MESSAGE_TIMEOUT_SECS)
    expire_each_ms = 1000.0
    if setting(config, Keys.TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS) and timeout_ms is not None:
        bucket_ms = timeout_ms / (setting(settings, Keys.HERON_STREAMMGR_ACK_BUCKETS) - 1)
        expire_each_ms = max(50.0, min(1000.0, bucket_ms))
        timeout_ms += 2 * bucket_ms
    else:
        timeout_ms = None
    return PendingTable(root_base(task, incarnation), max_pending, timeout_ms), expire_each_ms


class PendingWindow:
    """Window of at most ``max_pending`` open roots; the caller passes their number. Times are in milliseconds."""

    def __init__(self, max_pending: int, patience_ms: float) -> None:
        self.max_pending = max_pending
        self._patience_ms = patience_ms
        self._enough_room = min(REOPEN_ROWS, max(1, max_pending // 4))
        self._shut_since_ms: float | None = None
        self._full = False

    def is_shut(self, pending: int, now_ms: float) -> bool:
        """Return True if no root may be added now."""
        room = self.max_pending - pending
        self._full = room <= 0
        if self._full:
            if self._shut_since_ms is None:
                self._shut_since_ms = now_ms
            return True
        if self._shut_since_ms is None:
            return False
        if room < self._enough_room and now_ms < self._shut_since_ms + self._patience_ms:
            return True
        self._shut_since_ms = None
        return False

    def describe_wait(self, now_ms: float) -> str:
        """Describe a long wait for acks, with a remedy, for `heron status`; empty if no wait is long."""
        since_ms = self._shut_since_ms
        if not self._full or since_ms is None or now_ms - since_ms < REPORT_FULL_MS:
            return ""
        return (
            f"waiting for acks for {(now_ms - since_ms) / 1000:.0f} s: {self.max_pending} tuples are in flight, all of "
            "topology.max.spout.pending; raise it, or see which bolt is slow or does not ack"
        )

    def next_opening_ms(self, pending: int) -> float | None:
        """Return when the window opens without room for a batch, or None if time alone does not open it."""
        if self._shut_since_ms is None or pending >= self.max_pending:
            return None
        return self._shut_since_ms + self._patience_ms
