"""RTAC in Bytewax: users of the current second in eight buckets, then one sum."""

from __future__ import annotations

from zlib import crc32

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax_source import NullSink, Source
from peer_load import Progress, event_maker

BUCKETS = [str(number) for number in range(8)]
progress: list[Progress] = []


class Active(op.StatefulBatchLogic):
    """Users of the current second."""

    def __init__(self, state: tuple[int, set[str]] | None) -> None:
        self._second, self._users = state or (0, set())
        if not progress:
            progress.append(Progress())

    def on_batch(self, events: list[tuple[str, str, float]]) -> tuple[list[tuple[int, int]], bool]:
        """Collect users; emit the number of the last second."""
        found = []
        for user, _, created in events:
            if int(created) > self._second:
                found.append((self._second, len(self._users)))
                self._second, self._users = int(created), set()
            self._users.add(user)
        progress[0].add(len(events))
        return found, False

    def snapshot(self) -> tuple[int, set[str]]:
        """Return the state for recovery, which is off."""
        return self._second, set(self._users)


class Total(op.StatefulBatchLogic):
    """Sums by second."""

    def __init__(self, state: dict[int, int] | None) -> None:
        self._sums = state or {}

    def on_batch(self, pairs: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], bool]:
        """Add the numbers."""
        for second, count in pairs:
            self._sums[second] = self._sums.get(second, 0) + count
        return list(self._sums.items())[-1:], False

    def snapshot(self) -> dict[int, int]:
        """Return the state for recovery, which is off."""
        return dict(self._sums)


flow = Dataflow("rtac")
stream = op.input("events", flow, Source(event_maker))
stream = op.key_on("bucket", stream, lambda event: BUCKETS[crc32(event[0].encode()) & 7])
stream = op.stateful_batch("active", stream, Active)
stream = op.map("all", stream, lambda keyed: ("all", keyed[1]))
stream = op.stateful_batch("total", stream, Total)
op.output("nowhere", stream, NullSink())
