"""Backpressure: which buffers are over their mark, who says so, and which spouts pause (seed 001 §5.4; protocols 3.2).

Causes are a set, not events. This stream manager *owns* the causes of its own buffers: a destination queue (a local
instance, or a remote task's queue here) or a peer link as a whole. The set is numbered: ``announce`` gives what changed
since the last announcement, ``whole`` the set itself, which goes out on every connect and with each heartbeat, so that
a change that was missed is repaired within a second. A peer's set goes when its link or its incarnation goes.

A spout is paused exactly when the union of all sets, restricted to its scope, is not empty. Scope ``upstream``: causes
its tuples can come to; scope ``topology``: all, as in the paper.
"""

from __future__ import annotations

from heronry.model.causes import Cause
from heronry.wire.control import CauseChange, CauseSet
from stream_manager.core.routing import Routes

TOPOLOGY_SCOPE = "topology"


def is_slow(now_bytes: int, was_slow: bool, high: int, low: int) -> bool:
    """The hysteresis: slow from the high mark up until below the low one."""
    return now_bytes >= high or (was_slow and now_bytes > low)


class Pressure:
    """All causes this stream manager knows of."""

    def __init__(self) -> None:
        self.own: dict[Cause, None] = {}
        self._announced: dict[Cause, None] = {}
        self._number = 0
        self._peers: dict[int, tuple[int, dict[Cause, None]]] = {}
        self.changed = False  # since whoever reads the union last reset it
        self.started = 0  # own causes so far
        self._timed: frozenset[Cause] = frozenset()
        self.slow_ms: dict[Cause, int] = {}  # own causes to the time they have lasted in all

    def set_slow(self, cause: Cause, slow: bool) -> None:
        """This buffer is (no longer) over its mark."""
        if slow and cause not in self.own:
            self.own[cause] = None
            self.started += 1
            self.changed = True
        elif not slow and cause in self.own:
            del self.own[cause]
            self.changed = True

    def announce(self) -> CauseChange | None:
        """Start and Stop: what has changed since the last call, or None."""
        if self.own == self._announced:
            return None
        start = tuple(cause for cause in self.own if cause not in self._announced)
        stop = tuple(cause for cause in self._announced if cause not in self.own)
        self._announced = dict(self.own)
        self._number += 1
        return CauseChange(self._number, start, stop)

    def whole(self) -> CauseSet:
        """The set as it was last announced."""
        return CauseSet(self._number, tuple(self._announced))

    def peer_set(self, container: int, message: CauseSet) -> None:
        """A peer's whole set replaces what was known of it."""
        self._peers[container] = (message.number, dict.fromkeys(message.causes))
        self.changed = True

    def peer_change(self, container: int, message: CauseChange) -> None:
        """A peer's difference; one that does not follow on what is known waits for the next whole set."""
        number, causes = self._peers.get(container, (-1, {}))
        if message.number != number + 1:
            return
        for cause in message.stop:
            causes.pop(cause, None)
        causes.update(dict.fromkeys(message.start))
        self._peers[container] = (message.number, causes)
        self.changed = True

    def peer_gone(self, container: int) -> None:
        """The link or the incarnation has gone, and its causes with it."""
        self._peers.pop(container, None)
        self.changed = True

    def union(self) -> tuple[Cause, ...]:
        """Every cause of everyone, own ones first."""
        found = dict(self.own)
        for _, (_, causes) in sorted(self._peers.items()):
            found.update(causes)
        return tuple(found)

    def causes_for(self, spout: str, routes: Routes, scope: str) -> tuple[Cause, ...]:
        """Why this spout component is paused; empty if it is not."""
        union = self.union()
        if scope == TOPOLOGY_SCOPE:
            return union
        return tuple(cause for cause in union if routes.reaches(spout, cause))

    def pass_time(self, elapsed_ms: int) -> None:
        """Charge the time since the last call to the own causes that stood then and stand now."""
        for cause in self.own:
            if cause in self._timed:
                self.slow_ms[cause] = self.slow_ms.get(cause, 0) + elapsed_ms
        self._timed = frozenset(self.own)

    def forget_tasks(self, known: frozenset[int]) -> None:
        """Tasks the plan no longer has are not timed any more."""
        self.slow_ms = {cause: ms for cause, ms in self.slow_ms.items() if cause.task in known or not cause.task}
