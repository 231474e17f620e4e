"""Backpressure: which tasks and links cause it, and which spouts pause for it (seed 001 §5.4; protocols 3.2).

Causes are a set, not events. This stream manager *owns* the causes of its own buffers: a destination queue (a local
instance, or a remote task's queue here) or a peer link as a whole. The set is numbered: ``announce`` gives what changed
since the last announcement, ``whole`` the set itself, which goes out on every connect, with the heartbeat after a
change and with each one while there are causes, so that a change that was missed is repaired within a second
(``PeerProtocol`` says when else). A peer's set goes when its link or its incarnation goes.

A spout is paused exactly when the union of all sets, restricted to its scope, is not empty. Scope ``upstream``: causes
its tuples can come to; scope ``topology``: all, as in the paper. A stream manager that hears of nobody pauses all
of its own spouts; that is a cause it does not tell others.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from heron_runtime.model.causes import Cause, CauseKind
from heron_runtime.model.metrics import keyed
from heron_runtime.wire.control import CauseChange, CauseSet
from stream_manager.core.plan import CurrentPlan, PlanRoutes

TOPOLOGY_SCOPE = "topology"


def is_slow(now_bytes: int, was_slow: bool, high: int, low: int) -> bool:
    """The hysteresis: slow from the high mark up until below the low one."""
    return now_bytes >= high or (was_slow and now_bytes > low)


class BackpressureCauses:
    """All causes this stream manager knows of."""

    def __init__(self, container: int) -> None:
        self.own: dict[Cause, None] = {}
        self.partitioned = False
        self.revision = 0  # of all that is known; grows with each change
        self.started = 0  # own causes so far
        self.initiated_ms = 0  # time with own causes
        self.slow_ms: dict[Cause, int] = {}  # own causes to the time they have lasted in all
        self._partition = Cause(CauseKind.LINK, "", 0, container, 0)
        self._announced: dict[Cause, None] = {}
        self._number = 0
        self._peers: dict[int, tuple[int, dict[Cause, None]]] = {}
        self._timed: frozenset[Cause] = frozenset()

    def set_slow(self, cause: Cause, slow: bool) -> None:
        """This buffer is (no longer) over its mark."""
        if slow and cause not in self.own:
            self.own[cause] = None
            self.started += 1
            self.revision += 1
        elif not slow and cause in self.own:
            del self.own[cause]
            self.revision += 1

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
        self.revision += 1

    def peer_change(self, container: int, message: CauseChange) -> None:
        """A peer's difference; one that does not follow on what is known waits for the next whole set."""
        number, causes = self._peers.get(container, (-1, {}))
        if message.number != number + 1:
            return
        for cause in message.stop:
            causes.pop(cause, None)
        causes.update(dict.fromkeys(message.start))
        self._peers[container] = (message.number, causes)
        self.revision += 1

    def peer_gone(self, container: int) -> None:
        """The link or the incarnation has gone, and its causes with it."""
        self._peers.pop(container, None)
        self.revision += 1

    def union(self) -> tuple[Cause, ...]:
        """Every cause of everyone, own ones first."""
        found = dict(self.own)
        for _, (_, causes) in sorted(self._peers.items()):
            found.update(causes)
        return tuple(found)

    def set_partitioned(self, partitioned: bool) -> None:
        """True from when the lease has passed without a word of the master or a peer, until the next one."""
        if partitioned != self.partitioned:
            self.partitioned = partitioned
            self.revision += 1

    def causes_for(self, spout: str, current: CurrentPlan) -> tuple[Cause, ...]:
        """Why this spout component is paused; empty if it is not."""
        everywhere, routes = current.scope == TOPOLOGY_SCOPE, current.routes
        causes = tuple(cause for cause in self.union() if everywhere or routes.reaches(spout, cause))
        return (*causes, self._partition) if self.partitioned else causes

    def pass_time(self, elapsed_ms: int) -> None:
        """Charge the time since the last call to the own causes that stood then and stand now."""
        self.initiated_ms += elapsed_ms if self.own else 0
        for cause in self.own:
            if cause in self._timed:
                self.slow_ms[cause] = self.slow_ms.get(cause, 0) + elapsed_ms
        self._timed = frozenset(self.own)

    def set_routes(self, routes: PlanRoutes) -> None:
        """A new plan: tasks it no longer has are not timed any more."""
        self.slow_ms = {cause: ms for cause, ms in self.slow_ms.items() if cause.task in routes.where or not cause.task}

    def totals(self, routes: PlanRoutes) -> dict[str, float]:
        """Counters, by metric name."""
        found: dict[str, float] = {
            "__server/__time_spent_back_pressure_initiated": self.initiated_ms,
            "__back_pressure_starts": self.started,
        }
        for cause, slow_ms in self.slow_ms.items():
            task = cause.kind is CauseKind.TASK
            about = routes.instance_name(cause.task) if task else f"stream_manager-{cause.peer}"
            name = keyed("__time_spent_back_pressure_by_compid", about)
            found[name] = found.get(name, 0) + slow_ms
        return found

    def check(self) -> None:
        """Assert every invariant."""
        assert self._announced.keys() == self.own.keys(), "own causes are announced by the end of each event"
        assert self._partition not in self.union(), "a partition is not told to others"


QUIET_MS = 30_000
LONGEST_MS = 300_000
MAX_CAUSES = 8  # of an episode; the time of others is told as that of one without a name
MAX_WAITING = 64


@dataclass(slots=True)
class BackpressureEpisode:
    """Of one spout component. Times are milliseconds of the core's clock; a cause to for how long it stood while the
    spout was paused (None: of those beyond ``MAX_CAUSES``)."""

    spout: str
    began_ms: int
    ended_ms: int  # the end of its last pause
    pauses: int = 0
    paused_ms: int = 0
    causes: dict[Cause | None, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """In words, the longest cause first."""
        times = "once" if self.pauses == 1 else f"{self.pauses} times"
        span = (self.ended_ms - self.began_ms) / 1000
        causes = ", ".join(f"{cause or 'others'} {ms / 1000:.1f} s" for cause, ms in self._ordered())
        return f"paused {times} for {self.paused_ms / 1000:.1f} s of {span:.1f} s: {causes}"

    def detail(self, utc_ms: float) -> str:
        """As JSON. ``utc_ms``: what is added to the core's clock to make it milliseconds since 1970."""
        causes = [
            {**(asdict(cause) if cause is not None else {"kind": "others"}), "ms": ms} for cause, ms in self._ordered()
        ]
        return json.dumps(
            {
                "from_ms": round(utc_ms + self.began_ms), "to_ms": round(utc_ms + self.ended_ms), "pauses": self.pauses,
                "paused_ms": self.paused_ms, "causes": causes,
            }
        )  # fmt: skip

    def _ordered(self) -> list[tuple[Cause | None, int]]:
        return sorted(self.causes.items(), key=lambda pair: -pair[1])


@dataclass(slots=True)
class _Open:
    episode: BackpressureEpisode
    standing: tuple[Cause, ...] = ()  # empty while the spout goes on


class BackpressureEpisodes:
    """Of the spouts of one container."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._over: deque[BackpressureEpisode] = deque(maxlen=MAX_WAITING)
        self._looked_ms = 0

    @property
    def idle(self) -> bool:
        """True if time need not be told: no episode is under way."""
        return not self._open

    def look(self, now_ms: int, paused: Mapping[str, tuple[Cause, ...]]) -> None:
        """The causes of each spout component that is told to pause, from now on."""
        elapsed, self._looked_ms = now_ms - self._looked_ms, now_ms
        for spout in [*self._open]:
            self._pass(self._open[spout], elapsed, now_ms)
            if spout not in paused:
                self._open[spout].standing = ()
            if self._is_over(self._open[spout], now_ms):
                self._over.append(self._open.pop(spout).episode)
        for spout, causes in paused.items():
            found = self._open.setdefault(spout, _Open(BackpressureEpisode(spout, now_ms, now_ms)))
            if not found.standing:
                found.episode.pauses += 1
                found.episode.ended_ms = now_ms
            found.standing = causes

    def take(self) -> list[BackpressureEpisode]:
        """Those that are over since the last call, in the order in which they ended."""
        over, self._over = [*self._over], deque(maxlen=MAX_WAITING)
        return over

    def end(self, now_ms: int) -> None:
        """The process ends, and with it every episode."""
        self.look(now_ms, {})
        self._over.extend(found.episode for found in self._open.values())
        self._open.clear()

    def check(self) -> None:
        """Assert every invariant."""
        for found in self._open.values():
            each = found.episode
            assert each.pauses >= 1
            assert each.paused_ms <= each.ended_ms - each.began_ms
            assert len(each.causes) <= MAX_CAUSES + 1
            assert all(ms <= each.paused_ms for cause, ms in each.causes.items() if cause is not None)

    def _pass(self, found: _Open, elapsed_ms: int, now_ms: int) -> None:
        if not found.standing:
            return
        each = found.episode
        each.paused_ms += elapsed_ms
        each.ended_ms = now_ms
        for cause in found.standing:
            named = cause if cause in each.causes or len(each.causes) < MAX_CAUSES else None
            each.causes[named] = each.causes.get(named, 0) + elapsed_ms

    @staticmethod
    def _is_over(found: _Open, now_ms: int) -> bool:
        each = found.episode
        return now_ms - each.began_ms >= LONGEST_MS or (not found.standing and now_ms - each.ended_ms >= QUIET_MS)
