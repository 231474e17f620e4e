"""For how long each place has said nothing, by the master's own ticks, which are of bounded length: a master that stood
still itself takes nobody for silent."""

from __future__ import annotations

from dataclasses import dataclass, field

from heron_runtime.model.generations import Place
from topology_master.core.membership import MAX_STEP_MS


@dataclass
class Silence:
    """Of all places. ``clock_ms`` is the time that counts."""

    now_ms: int | None = None
    clock_ms: int = 0
    since_ms: int = 0
    heard_ms: dict[Place, int] = field(default_factory=dict)

    def heard(self, place: Place) -> None:
        """It has said something."""
        self.heard_ms[place] = self.clock_ms

    def begin(self) -> None:
        """Of everybody it is counted anew."""
        self.heard_ms.clear()
        self.since_ms = self.clock_ms

    def advance(self, now_ms: int) -> None:
        """Time passes."""
        self.clock_ms += 0 if self.now_ms is None else min(now_ms - self.now_ms, MAX_STEP_MS)
        self.now_ms = now_ms

    def of(self, place: Place) -> int:
        """For how long it has said nothing, in milliseconds."""
        return self.clock_ms - self.heard_ms.get(place, self.since_ms)
