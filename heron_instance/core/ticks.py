"""When a bolt's next tick is due. Ticks that were missed are not made up for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heron_runtime.model.settings import Keys, setting


class Ticks:
    """Of one bolt task, by ``topology.tick.tuple.freq.secs`` or ``.ms``. The first comes an interval after ``due``
    was asked first."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        seconds = setting(config, Keys.TOPOLOGY_TICK_TUPLE_FREQ_SECS)
        milliseconds: float | None = setting(config, Keys.TOPOLOGY_TICK_TUPLE_FREQ_MS)
        if milliseconds is None and seconds is not None:
            milliseconds = 1000.0 * seconds
        self._each_ms = milliseconds
        self.next_ms: float | None = None
        self.count = 0

    def due(self, now_ms: float) -> bool:
        """True if it is time; the tick counts as given then."""
        if self._each_ms is None:
            return False
        if self.next_ms is None:
            self.next_ms = now_ms + self._each_ms
            return False
        if now_ms < self.next_ms:
            return False
        self.next_ms = max(self.next_ms + self._each_ms, now_ms)
        self.count += 1
        return True
