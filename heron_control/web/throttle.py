"""Limit on wrong tokens per address, in a bounded table. A right token is never throttled."""

from __future__ import annotations

from collections import OrderedDict

ALLOWED = 20  # number of consecutive wrong tokens that are answered and logged
REFILL_SECONDS = 3.0  # interval after which one more is allowed
MAX_ADDRESSES = 4096


class Throttle:
    """Token bucket per address; the address unseen for longest is dropped first."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # address to (left, as of)

    def wrong(self, address: str, now: float) -> bool:
        """Record a wrong token; return False if there were too many. ``now`` is in seconds."""
        left, since = self._buckets.pop(address, (float(ALLOWED), now))
        left = min(float(ALLOWED), left + (now - since) / REFILL_SECONDS)
        heard = left >= 1
        self._buckets[address] = (left - 1 if heard else left, now)
        while len(self._buckets) > MAX_ADDRESSES:
            self._buckets.popitem(last=False)
        self.check()
        return heard

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self._buckets) <= MAX_ADDRESSES
        assert all(0 <= left <= ALLOWED for left, _ in self._buckets.values())
