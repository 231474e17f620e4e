"""When a spout that had nothing to emit is called again.

A call that emits nothing ends the burst; calls are then spaced by 1, 2, 4, 8, 16 ms, until one emits, an ack or fail
arrives, or something is said on the control stream. From then on calls are made where the clock shows a multiple of
16 ms: the spouts of a machine that have nothing to do wake up together, and all but the first find the caches warm.

What a call emits before the next flush leaves with that flush, so a sooner call gains nothing and costs a wake-up:
calls wait for the flush. But a spout may pace itself by its calls, one tuple each time it finds a moment past. If the
call after such a wait emitted a single tuple the spout is called at the short delays, and only now and then tried so.
"""

from __future__ import annotations

FIRST_DELAY_MS = 1.0
LAST_DELAY_MS = 16.0
TRY_EACH = 16  # bursts of one tuple


class Pacing:
    """Of one spout task. ``at_rest``: it had nothing for long, and time brings nothing but the next call."""

    def __init__(self) -> None:
        self._singles = 0  # bursts of one tuple, since one had more
        self.reset()

    def reset(self) -> None:
        """Something has happened: call at once."""
        self.at_rest = False
        self.next_call_ms = float("-inf")
        self._delay_ms = 0.0

    def had_nothing(self, now_ms: float, emitted: int, flush_ms: float) -> None:
        """A call has emitted nothing; ``emitted`` tuples came before it in the burst. No flush comes before
        ``flush_ms``."""
        self._delay_ms = min(LAST_DELAY_MS, max(FIRST_DELAY_MS, 2 * self._delay_ms))
        self.next_call_ms = now_ms + self._delay_ms
        if emitted:
            self._singles = self._singles + 1 if emitted == 1 else 0
        if self._singles % TRY_EACH == 0:
            self.next_call_ms = max(self.next_call_ms, min(flush_ms, now_ms + LAST_DELAY_MS))

    @property
    def slow(self) -> bool:
        """True once the delay grows no more."""
        return self._delay_ms >= LAST_DELAY_MS

    def rest(self, now_ms: float) -> float:
        """Nothing again, at rest: milliseconds until the next call."""
        wait_ms = LAST_DELAY_MS - now_ms % LAST_DELAY_MS
        self.next_call_ms = now_ms + wait_ms
        return wait_ms
