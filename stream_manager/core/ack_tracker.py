"""XOR tracker of one local spout task: which of its tuple trees are complete (Toshniwal et al. 2014, section 3.2).

A root lives in a *slot* of a ring of two columns: ``owner`` (the whole 64-bit root, 0 when free)
and ``xor`` (the XOR of all edge keys heard of so far). The slot of a root is the low bits of its 32-bit sequence
number, so the roots of one Init, which are consecutive, fill one or two slices: an Init costs a handful of array
operations whatever its length. An ack column finds its slots by the same mask; comparing ``owner`` with the root tells
a live root from a late one (settled, expired, or of another incarnation) without any table.

If a newer root needs the slot of an older live root, the older one moves to ``overflow``, a plain dict. So memory
follows the number of *live* roots, never the span from the oldest to the newest: one stuck root while millions pass
costs one dict entry. The ring doubles while more than half of it would be live, up to ``max_slots``. Above ``max_live``
roots the rest of an Init is refused and fails at once. A spout never reaches that, since ``topology.max.spout.pending``
has a smaller maximum, and at that a spout waits.

Expiry: ``buckets`` sets of roots; each rotation expires the oldest set. With a rotation every T/(n-1), n the number of
buckets, a root expires no earlier than T and no later than T(1 + 1/(n-1)) plus the distance of n ticks, since a
rotation never comes early, waits for the next tick, and one tick rotates one bucket at most.

A sequence number may be reused only after its root is settled; the pending table of the spout ensures that.

Input columns are ``bytes`` of little-endian uint64; results are numpy arrays of settled roots.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heron_runtime.model.ids import SEQUENCE_MASK, root_base, root_sequence

Column = NDArray[np.uint64]

MIN_SLOTS = 1 << 12
MAX_SLOTS = 1 << 22  # 64 MiB
MAX_LIVE = 1 << 24

NO_ROOTS: Column = np.empty(0, np.uint64)
_SEQUENCE_MASK = np.uint64(SEQUENCE_MASK)
_UINT64 = np.dtype("<u8")


def column(data: bytes) -> Column:
    """Return little-endian bytes as a read-only column, without a copy."""
    return np.frombuffer(data, _UINT64)


def refuse_zero(roots: Column) -> None:
    """Reject root 0, which marks a free slot.

    Raises:
        ValueError: A root is 0.
    """
    if not roots.all():
        raise ValueError("root 0 is not a valid root")


@dataclass(slots=True)
class _Range:
    """Roots ``first``, ``first`` + 1, … within one incarnation; the sequence number wraps."""

    first: int
    count: int


class AckTracker:
    """Roots of one spout task. ``timeout_ms`` None means that roots never expire."""

    def __init__(
        self,
        task: int,
        timeout_ms: int | None,
        buckets: int = 3,
        now_ms: int = 0,
        min_slots: int = MIN_SLOTS,
        max_slots: int = MAX_SLOTS,
        max_live: int = MAX_LIVE,
    ) -> None:
        if buckets < 2:
            raise ValueError(f"a rotating map needs two buckets, not {buckets}")
        self.task = task
        self.incarnation: int | None = None
        self.live = 0  # ring and overflow
        self.late = 0  # acked or failed roots that were not (or no longer) known
        self.refused = 0  # roots above max_live
        self._max_slots = max_slots
        self._max_live = max_live
        self._overflow: dict[int, int] = {}
        self._interval_ms = None if timeout_ms is None else -(-timeout_ms // (buckets - 1))
        self._rotate_at_ms = now_ms + (self._interval_ms or 0)
        self._buckets: deque[list[_Range]] = deque([] for _ in range(buckets))  # newest first
        self._allocate(min_slots)

    @property
    def slots(self) -> int:
        """Size of the ring."""
        return self._slots

    @property
    def overflow(self) -> int:
        """Number of live roots that have lost their slot to a newer one."""
        return len(self._overflow)

    def begin(self, incarnation: int) -> int:
        """Start an incarnation of the spout. A new one forgets the older roots. Return their number."""
        if incarnation == self.incarnation:
            return 0
        forgotten, self.incarnation = self.live, incarnation
        self._owner[:] = 0
        self._overflow.clear()
        self.live = 0
        for bucket in self._buckets:
            bucket.clear()
        return forgotten

    def init(self, first_root: int, xors: bytes) -> tuple[Column, Column]:
        """Open the roots ``first_root``, ``first_root`` + 1, ….

        Returns:
            Roots that are complete at once since they have no copies, and roots above ``max_live``, which are refused.

        Raises:
            ValueError: The roots are of another task or incarnation.
        """
        if self.incarnation is None or root_base(self.task, self.incarnation) != first_root & ~SEQUENCE_MASK:
            raise ValueError(f"init of root {first_root:#018x} at the tracker of task {self.task}.{self.incarnation}")
        keys = column(xors)
        refused = NO_ROOTS
        room = self._max_live - self.live
        if len(keys) > room:
            refused = self._roots(self._after(first_root, room), len(keys) - room)
            self.refused += len(refused)
            keys = keys[:room]
        if not len(keys):
            return NO_ROOTS, refused
        self._remember(first_root, len(keys))
        self._store(first_root, keys)
        if keys.all():
            return NO_ROOTS, refused
        rootless = self._roots(first_root, len(keys))[keys == 0]
        return self.fail(rootless), refused

    def ack(self, roots: Column, xors: Column) -> Column:
        """XOR ``xors`` into ``roots``, which may repeat. Return the roots that are complete now.

        Raises:
            ValueError: A root is 0.
        """
        refuse_zero(roots)
        slots = (roots & self._mask).view(np.int64)
        distinct = len(roots) < 2 or bool((roots[1:] > roots[:-1]).all())
        hit = self._owner[slots] == roots
        elsewhere: list[int] = []
        if not hit.all():
            elsewhere = self._ack_overflow(roots[~hit], xors[~hit])
            slots, roots, xors = slots[hit], roots[hit], xors[hit]
        if distinct:
            values = self._xor[slots]
            values ^= xors
            self._xor[slots] = values
            done = values == 0
            if done.all():
                complete = roots
            else:
                slots, complete = slots[done], roots[done]
        else:
            np.bitwise_xor.at(self._xor, slots, xors)
            slots = np.unique(slots[self._xor[slots] == 0])
            complete = self._owner[slots]
        self._owner[slots] = 0
        self.live -= len(complete)
        return _joined(complete, elsewhere)

    def fail(self, roots: Column) -> Column:
        """Close roots. Return those that were still open, each once.

        Raises:
            ValueError: A root is 0.
        """
        refuse_zero(roots)
        slots = (roots & self._mask).view(np.int64)
        hit = self._owner[slots] == roots
        elsewhere: list[int] = []
        if not hit.all():
            for root in roots[~hit].tolist():
                if self._overflow.pop(root, None) is None:
                    self.late += 1
                else:
                    elsewhere.append(root)
            self.live -= len(elsewhere)
            slots = slots[hit]
        slots = np.unique(slots)
        closed = self._owner[slots]
        self._owner[slots] = 0
        self.live -= len(closed)
        return _joined(closed, elsewhere)

    def tick(self, now_ms: int) -> Column:
        """Rotate one bucket if it is due. Return the roots that have expired."""
        if self._interval_ms is None or now_ms < self._rotate_at_ms:
            return NO_ROOTS
        self._rotate_at_ms = now_ms + self._interval_ms
        ranges = self._buckets.pop()
        self._buckets.appendleft([])
        return self._expire(ranges) if ranges and self.live else NO_ROOTS

    def check(self) -> None:
        """Assert every invariant."""
        occupied = np.flatnonzero(self._owner)
        owners = self._owner[occupied]
        assert self.live == len(occupied) + len(self._overflow), "live roots are counted"
        assert self.live <= self._max_live, "bounded"
        assert self._slots <= self._max_slots, "the ring is bounded"
        assert (occupied == (owners & self._mask).view(np.int64)).all(), "each root is in its slot"
        base = root_base(self.task, self.incarnation or 0)
        for root in [*owners.tolist(), *self._overflow]:
            assert root & ~SEQUENCE_MASK == base, "no root of another incarnation"
        assert not set(owners.tolist()) & set(self._overflow), "a root is in one place"
        if self._interval_ms is not None:
            for root in [*owners.tolist(), *self._overflow]:
                assert any(_within(root, r) for bucket in self._buckets for r in bucket), "every live root expires"

    # Ring

    def _allocate(self, slots: int) -> None:
        self._slots = slots
        self._mask = np.uint64(slots - 1)
        self._owner = np.zeros(slots, np.uint64)
        self._xor = np.zeros(slots, np.uint64)

    def _store(self, first_root: int, keys: Column) -> None:
        while self.live + len(keys) > self._slots // 2 and self._slots < self._max_slots:
            self._grow()
        done = 0
        while done < len(keys):
            root = self._after(first_root, done)
            slot = root & (self._slots - 1)
            count = min(len(keys) - done, self._slots - slot)
            owners = self._owner[slot : slot + count]
            if owners.any():
                self._displace(slot, owners, root)
            # A slice never crosses the end of the ring, and the ring divides 2**32: no sequence number wraps in it.
            self._xor[slot : slot + count] = keys[done : done + count]
            owners[:] = np.arange(root, root + count, dtype=np.uint64)
            self.live += count
            done += count

    def _displace(self, slot: int, owners: Column, first_root: int) -> None:
        """Move older roots from their slots to the overflow table. A root that is opened again is replaced."""
        occupied = np.flatnonzero(owners)
        values = self._xor[slot + occupied]
        for index, value in zip(occupied.tolist(), values.tolist(), strict=True):
            root = int(owners[index])
            if root == first_root + index:
                self.live -= 1
            else:
                self._overflow[root] = value

    def _grow(self) -> None:
        owner, xor = self._owner, self._xor
        self._allocate(self._slots * 2)
        old = np.flatnonzero(owner)
        # Two roots that had different slots have different slots in a larger ring as well.
        slots = (owner[old] & self._mask).view(np.int64)
        self._owner[slots] = owner[old]
        self._xor[slots] = xor[old]

    def _ack_overflow(self, roots: Column, xors: Column) -> list[int]:
        overflow = self._overflow
        if not overflow:
            self.late += len(roots)
            return []
        touched: dict[int, None] = {}
        for root, key in zip(roots.tolist(), xors.tolist(), strict=True):
            value = overflow.get(root)
            if value is None:
                self.late += 1
            else:
                overflow[root] = value ^ key
                touched[root] = None
        complete = [root for root in touched if overflow[root] == 0]
        for root in complete:
            del overflow[root]
        self.live -= len(complete)
        return complete

    # Expiry

    def _remember(self, first_root: int, count: int) -> None:
        if self._interval_ms is None:
            return
        newest = self._buckets[0]
        # A spout numbers its roots one after the other, so a bucket is nearly always a single range.
        if newest and self._after(newest[-1].first, newest[-1].count) == first_root:
            newest[-1].count += count
        else:
            newest.append(_Range(first_root, count))

    def _expire(self, ranges: list[_Range]) -> Column:
        slots = np.flatnonzero(self._owner)
        roots = self._owner[slots]
        inside = np.zeros(len(roots), bool)
        for r in ranges:
            inside |= ((roots - np.uint64(r.first)) & _SEQUENCE_MASK) < r.count
        expired = roots[inside]
        self._owner[slots[inside]] = 0
        elsewhere = [root for root in self._overflow if any(_within(root, r) for r in ranges)]
        for root in elsewhere:
            del self._overflow[root]
        self.live -= len(expired) + len(elsewhere)
        return _joined(expired, elsewhere)

    def _after(self, root: int, distance: int) -> int:
        return (root & ~SEQUENCE_MASK) | ((root + distance) & SEQUENCE_MASK)

    def _roots(self, first: int, count: int) -> Column:
        """Return ``count`` roots, starting with ``first``."""
        sequences = np.arange(root_sequence(first), root_sequence(first) + count, dtype=np.uint64) & _SEQUENCE_MASK
        return sequences | np.uint64(first & ~SEQUENCE_MASK)


def _within(root: int, r: _Range) -> bool:
    return ((root - r.first) & SEQUENCE_MASK) < r.count


def _joined(roots: Column, more: list[int]) -> Column:
    return np.concatenate([roots, np.array(more, np.uint64)]) if more else roots
