"""Containers and the scheduler watch each other: when the scheduler's node is gone, a container starts it again.

A single look that finds nothing proves little (the node of a restarted session is away for a moment), so it takes
``PATIENCE`` looks in a row; and a scheduler that keeps dying is started with growing delays. Container 0 comes first.
The others wait longer, each number a little more: they act only where scheduler and container 0 have died together,
since neither could bring back the other then. Two who act at once do no harm: a second scheduler ends at the lock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from heron_runtime.model.backoff import Backoff, BackoffPolicy

PATIENCE = 2
LATER = 2  # looks more, in every container but 0
LAST = 10  # numbers beyond it are no more patient


def patience_of(container: int) -> int:
    """Looks in vain after which this container starts a scheduler."""
    return PATIENCE + (LATER + min(container, LAST) if container else 0)


@dataclass(slots=True)
class SchedulerWatch:
    """Decides when to start a scheduler."""

    policy: BackoffPolicy
    patience: int = PATIENCE  # looks
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
        if self._missing < self.patience or now_ms < self._not_before_ms:
            return False
        lived_ms = self.policy.reset_ms if self._started_ms is None else now_ms - self._started_ms
        self._backoff.died(lived_ms)
        # What was started now needs time to show itself; the delay grows while it never does.
        self._not_before_ms = now_ms + max(self.policy.delay_ms(self._backoff.young_deaths + 1), 2000)
        self._started_ms = now_ms
        self._missing = 0
        return True
