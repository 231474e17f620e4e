"""Backpressure: the tasks and links that cause it, and the spouts that pause (Kulkarni et al. 2015, section 5.4).

Causes are a set, not events. A stream manager *owns* the causes of its own buffers: a destination queue (of a local
instance or of a remote task) or the link of a peer as a whole. The set is numbered. ``take_change`` returns the
difference to the last announcement. ``announced`` returns the whole set, which is sent on every connect, with the
heartbeat after a change, and with every heartbeat while there are causes, so that a missed change is repaired within a
second. The set of a peer is removed with its link or its incarnation.

A spout is paused exactly while the union of all sets, restricted to its scope, is not empty. Scope ``upstream``
contains the causes that tuples of the spout can reach; scope ``topology`` contains all, as in the paper. A stream
manager without contact to any other process pauses its own spouts; it does not announce that cause.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from heron_runtime.model.dataflow import Cause, CauseKind
from heron_runtime.model.metrics import keyed
from heron_runtime.wire.control import CauseChange, CauseSet
from stream_manager.core.plan import CurrentPlan, PlanRoutes

TOPOLOGY_SCOPE = "topology"


def is_slow(now_bytes: int, was_slow: bool, high: int, low: int) -> bool:
    """Return True from the high mark until the value falls below the low mark."""
    return now_bytes >= high or (was_slow and now_bytes > low)


class BackpressureCauses:
    """Causes of this stream manager and of its peers."""

    def __init__(self, container: int) -> None:
        self.own: dict[Cause, None] = {}
        self.partitioned = False
        self.revision = 0  # increases with each change
        self.started = 0  # number of own causes so far
        self.initiated_ms = 0  # time during which there were own causes
        self.slow_ms: dict[Cause, int] = {}  # own cause to its total duration
        self._partition = Cause(CauseKind.LINK, "", 0, container, 0)
        self._announced: dict[Cause, None] = {}
        self._number = 0
        self._peers: dict[int, tuple[int, dict[Cause, None]]] = {}
        self._timed: frozenset[Cause] = frozenset()

    def set_slow(self, cause: Cause, slow: bool) -> None:
        """Add or remove an own cause."""
        if slow and cause not in self.own:
            self.own[cause] = None
            self.started += 1
            self.revision += 1
        elif not slow and cause in self.own:
            del self.own[cause]
            self.revision += 1

    def take_change(self) -> CauseChange | None:
        """Return the own causes that began and ended since the last call, or None."""
        if self.own == self._announced:
            return None
        start = tuple(cause for cause in self.own if cause not in self._announced)
        stop = tuple(cause for cause in self._announced if cause not in self.own)
        self._announced = dict(self.own)
        self._number += 1
        return CauseChange(self._number, start, stop)

    def announced(self) -> CauseSet:
        """Return the own causes as last announced."""
        return CauseSet(self._number, tuple(self._announced))

    def peer_set(self, container: int, message: CauseSet) -> None:
        """Replace the causes of a peer."""
        self._peers[container] = (message.number, dict.fromkeys(message.causes))
        self.revision += 1

    def peer_change(self, container: int, message: CauseChange) -> None:
        """Apply a change to the causes of a peer. A change that does not follow the last number is ignored."""
        number, causes = self._peers.get(container, (-1, {}))
        if message.number != number + 1:
            return
        for cause in message.stop:
            causes.pop(cause, None)
        causes.update(dict.fromkeys(message.start))
        self._peers[container] = (message.number, causes)
        self.revision += 1

    def remove_peer(self, container: int) -> None:
        """Remove the causes of a peer whose link or incarnation has ended."""
        self._peers.pop(container, None)
        self.revision += 1

    def union(self) -> tuple[Cause, ...]:
        """Return all causes, own causes first."""
        union = dict(self.own)
        for _, (_, causes) in sorted(self._peers.items()):
            union.update(causes)
        return tuple(union)

    def set_partitioned(self, partitioned: bool) -> None:
        """Set whether the lease has passed without a message from the topology master or a peer."""
        if partitioned != self.partitioned:
            self.partitioned = partitioned
            self.revision += 1

    def causes_for(self, spout: str, current: CurrentPlan) -> tuple[Cause, ...]:
        """Return the causes that pause a spout component; empty if it is not paused."""
        everywhere, routes = current.scope == TOPOLOGY_SCOPE, current.routes
        causes = tuple(cause for cause in self.union() if everywhere or routes.reaches(spout, cause))
        return (*causes, self._partition) if self.partitioned else causes

    def pass_time(self, elapsed_ms: int) -> None:
        """Add the time since the last call to the own causes that existed throughout."""
        self.initiated_ms += elapsed_ms if self.own else 0
        for cause in self.own:
            if cause in self._timed:
                self.slow_ms[cause] = self.slow_ms.get(cause, 0) + elapsed_ms
        self._timed = frozenset(self.own)

    def set_routes(self, routes: PlanRoutes) -> None:
        """Forget the durations of tasks that have left the plan."""
        self.slow_ms = {cause: ms for cause, ms in self.slow_ms.items() if cause.task in routes.where or not cause.task}

    def totals(self, routes: PlanRoutes) -> dict[str, float]:
        """Return counters by metric name."""
        totals: dict[str, float] = {
            "__server/__time_spent_back_pressure_initiated": self.initiated_ms,
            "__back_pressure_starts": self.started,
        }
        for cause, slow_ms in self.slow_ms.items():
            task = cause.kind is CauseKind.TASK
            about = routes.instance_name(cause.task) if task else f"stream_manager-{cause.peer}"
            name = keyed("__time_spent_back_pressure_by_compid", about)
            totals[name] = totals.get(name, 0) + slow_ms
        return totals

    def check(self) -> None:
        """Assert every invariant."""
        assert self._announced.keys() == self.own.keys(), "own causes are announced by the end of each event"
        assert self._partition not in self.union(), "a partition is not announced"


QUIET_MS = 30_000
LONGEST_MS = 300_000
MAX_CAUSES = 8  # named per episode; the time of further causes is added up without a name
MAX_WAITING = 64


@dataclass(slots=True)
class BackpressureEpisode:
    """Pauses of one spout component that lie close together. Times are milliseconds of the core's clock.

    Attributes:
        spout: The component.
        began_ms: Start of its first pause.
        ended_ms: End of its last pause.
        pauses: Number of pauses.
        paused_ms: Total duration of the pauses.
        causes: Cause to its duration within the pauses. None stands for the causes beyond ``MAX_CAUSES``.
    """

    spout: str
    began_ms: int
    ended_ms: int
    pauses: int = 0
    paused_ms: int = 0
    causes: dict[Cause | None, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return a description, the longest cause first."""
        times = "once" if self.pauses == 1 else f"{self.pauses} times"
        span = (self.ended_ms - self.began_ms) / 1000
        causes = ", ".join(f"{cause or 'others'} {ms / 1000:.1f} s" for cause, ms in self._ordered())
        return f"paused {times} for {self.paused_ms / 1000:.1f} s of {span:.1f} s: {causes}"

    def detail(self, utc_ms: float) -> str:
        """Return the episode as JSON. ``utc_ms`` is added to the core's clock to get milliseconds since 1970."""
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
    standing: tuple[Cause, ...] = ()  # empty while the spout is not paused


class BackpressureEpisodes:
    """Record of backpressure for the history: pauses of spouts, combined into episodes.

    Backpressure flaps: a queue fills, its spouts pause, it drains, and they resume, several times a second. So the
    pauses of one spout component are combined into an *episode*. It ends when the spout has not been paused for
    ``QUIET_MS``, or after ``LONGEST_MS``; then the next one begins if the spout is still paused. A container thus
    records at most two episodes per minute and spout component.

    Durations are precise to one tick. At most ``MAX_WAITING`` finished episodes are kept until ``take``; older ones are
    dropped.
    """

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._over: deque[BackpressureEpisode] = deque(maxlen=MAX_WAITING)
        self._looked_ms = 0

    @property
    def idle(self) -> bool:
        """True if no episode is open, so ``observe`` may be skipped."""
        return not self._open

    def observe(self, now_ms: int, paused: Mapping[str, tuple[Cause, ...]]) -> None:
        """Record the causes of each spout component that is paused from now on."""
        elapsed, self._looked_ms = now_ms - self._looked_ms, now_ms
        for spout in [*self._open]:
            self._pass(self._open[spout], elapsed, now_ms)
            if spout not in paused:
                self._open[spout].standing = ()
            if self._is_over(self._open[spout], now_ms):
                self._over.append(self._open.pop(spout).episode)
        for spout, causes in paused.items():
            entry = self._open.setdefault(spout, _Open(BackpressureEpisode(spout, now_ms, now_ms)))
            if not entry.standing:
                entry.episode.pauses += 1
                entry.episode.ended_ms = now_ms
            entry.standing = causes

    def take(self) -> list[BackpressureEpisode]:
        """Return the episodes that have ended since the last call, in the order of their end."""
        over, self._over = [*self._over], deque(maxlen=MAX_WAITING)
        return over

    def end(self, now_ms: int) -> None:
        """End all episodes: the process stops."""
        self.observe(now_ms, {})
        self._over.extend(entry.episode for entry in self._open.values())
        self._open.clear()

    def check(self) -> None:
        """Assert every invariant."""
        for entry in self._open.values():
            each = entry.episode
            assert each.pauses >= 1
            assert each.paused_ms <= each.ended_ms - each.began_ms
            assert len(each.causes) <= MAX_CAUSES + 1
            assert all(ms <= each.paused_ms for cause, ms in each.causes.items() if cause is not None)

    def _pass(self, entry: _Open, elapsed_ms: int, now_ms: int) -> None:
        if not entry.standing:
            return
        each = entry.episode
        each.paused_ms += elapsed_ms
        each.ended_ms = now_ms
        for cause in entry.standing:
            named = cause if cause in each.causes or len(each.causes) < MAX_CAUSES else None
            each.causes[named] = each.causes.get(named, 0) + elapsed_ms

    @staticmethod
    def _is_over(entry: _Open, now_ms: int) -> bool:
        each = entry.episode
        return now_ms - each.began_ms >= LONGEST_MS or (not entry.standing and now_ms - each.ended_ms >= QUIET_MS)
