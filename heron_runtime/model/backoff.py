"""Delays before a process or container that has died is restarted.

The first restart is immediate, since most deaths are isolated. Then the delay doubles from the minimum to the maximum
while the process keeps dying soon after its start. A lifetime of ``reset_ms`` or more resets the delay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heron_runtime.model.settings import Keys, setting


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """Parameters of the backoff, in milliseconds."""

    min_ms: int = 100
    max_ms: int = 10_000
    reset_ms: int = 60_000

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> BackoffPolicy:
        """Return the policy of the settings ``heron.restart.*``. A maximum below the minimum counts as the minimum."""
        low = setting(settings, Keys.HERON_RESTART_BACKOFF_MIN_MS)
        high = setting(settings, Keys.HERON_RESTART_BACKOFF_MAX_MS)
        return cls(low, max(low, high), int(setting(settings, Keys.HERON_RESTART_RESET_SECS) * 1000))

    def delay_ms(self, young_deaths: int) -> int:
        """Return the delay after this many consecutive early deaths, from 1 up: 0, min, 2 min, 4 min … max."""
        if young_deaths <= 1:
            return 0
        # The shift is bounded, so that a process that keeps dying for years does not produce huge numbers.
        return min(self.max_ms, self.min_ms << min(young_deaths - 2, 32))


@dataclass(slots=True)
class Backoff:
    """Counter of the early deaths of one process."""

    policy: BackoffPolicy
    young_deaths: int = 0

    def died(self, lived_ms: int) -> int:
        """Record a death after this lifetime. Return the delay before the next start, in milliseconds."""
        self.young_deaths = 1 if lived_ms >= self.policy.reset_ms else self.young_deaths + 1
        return self.policy.delay_ms(self.young_deaths)

    def forget(self) -> None:
        """Forget past deaths after a restart by the user, who may have fixed the cause."""
        self.young_deaths = 0
