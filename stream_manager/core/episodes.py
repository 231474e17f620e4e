"""Pressure for the history: which spouts were told to pause, from when to when, and for what causes.

Theory of operation. Backpressure flaps: a queue fills, its spouts pause, it drains, they go on, several times a second.
So pauses of one spout component are told as one *episode*, which is over when the spout has gone on for
``QUIET_MS``, or has lasted ``LONGEST_MS`` (then the next one begins at once, if it is still paused). An episode has how
many pauses it holds, for how long the spout was paused in all, and for how much of that each cause stood. Whether many
short pauses or one long one: a container tells at most two episodes a minute of a spout component, since each takes
``QUIET_MS`` at least, and one in five minutes while it lasts.

Time is the core's, which goes on in ticks; so durations are to a tick. What is not taken waits, the newest
``MAX_WAITING``.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from heron_runtime.model.causes import Cause

QUIET_MS = 30_000
LONGEST_MS = 300_000
MAX_CAUSES = 8  # of an episode; the time of others is told as that of one without a name
MAX_WAITING = 64


@dataclass(slots=True)
class Episode:
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
    episode: Episode
    standing: tuple[Cause, ...] = ()  # empty while the spout goes on


class Episodes:
    """Of the spouts of one container."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._over: deque[Episode] = deque(maxlen=MAX_WAITING)
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
            found = self._open.setdefault(spout, _Open(Episode(spout, now_ms, now_ms)))
            if not found.standing:
                found.episode.pauses += 1
                found.episode.ended_ms = now_ms
            found.standing = causes

    def take(self) -> list[Episode]:
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
