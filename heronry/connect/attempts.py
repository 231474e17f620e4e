"""How often sinks try again when nobody answers, and how long they wait between: the same for all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

FIRST_PAUSE_SECS, LONGEST_PAUSE_SECS = 0.25, 10.0


@dataclass(slots=True)
class Attempt:
    """``last``: no other will follow. ``asked_secs``: what the other side has asked to wait."""

    last: bool
    asked_secs: float = 0.0


def attempts(number: int) -> Iterator[Attempt]:
    """So many, with pauses that double; who goes on from one has failed with it."""
    pause = FIRST_PAUSE_SECS
    for left in reversed(range(number)):
        attempt = Attempt(left == 0)
        yield attempt
        if not attempt.last:
            time.sleep(min(max(pause, attempt.asked_secs), LONGEST_PAUSE_SECS))
            pause = min(2 * pause, LONGEST_PAUSE_SECS)
