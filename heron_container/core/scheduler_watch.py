"""Container 0 and the scheduler watch each other: when the scheduler's node is gone, container 0 starts it again.

A single look that finds nothing proves little (the node of a restarted session is away for a moment), so it takes
``PATIENCE`` looks in a row; and a scheduler that keeps dying is started with growing delays.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from heron_runtime.model.backoff import Backoff, BackoffPolicy

PATIENCE = 2


@dataclass(slots=True)
class SchedulerWatch:
    """Decides when to start a scheduler."""

    policy: BackoffPolicy
    _backoff: Backoff = field(init=False)
    _missing: int = 0
    _started_ms: int | None = None
    _not_before_ms: int = 0

    def __post_init__(self) -> None:
        self._backoff = Backoff(self.policy)

    def looked(self, now_ms: int, present: bool) -> bool:
        """One look at the store; True means: start a scheduler now."""
        if present:
            self._missing = 0
            return False
        self._missing += 1
        if self._missing < PATIENCE or now_ms < self._not_before_ms:
            return False
        lived_ms = self.policy.reset_ms if self._started_ms is None else now_ms - self._started_ms
        self._backoff.died(lived_ms)
        # What was started now needs time to show itself; the delay grows while it never does.
        self._not_before_ms = now_ms + max(self.policy.delay_ms(self._backoff.young_deaths + 1), 2000)
        self._started_ms = now_ms
        self._missing = 0
        return True
