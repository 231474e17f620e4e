"""Retry policy shared by all sinks: attempts with exponential backoff."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

FIRST_PAUSE_SECS, LONGEST_PAUSE_SECS = 0.25, 10.0


@dataclass(slots=True)
class Attempt:
    """One attempt of an operation.

    Attributes:
        last: Whether no other attempt follows.
        asked_secs: Pause in seconds that the other side has requested, set by the caller.
    """

    last: bool
    asked_secs: float = 0.0


def attempts(number: int) -> Iterator[Attempt]:
    """Yield up to ``number`` attempts, with pauses between them that double.

    Iterating further means that the attempt has failed.
    """
    pause = FIRST_PAUSE_SECS
    for left in reversed(range(number)):
        attempt = Attempt(left == 0)
        yield attempt
        if not attempt.last:
            time.sleep(min(max(pause, attempt.asked_secs), LONGEST_PAUSE_SECS))
            pause = min(2 * pause, LONGEST_PAUSE_SECS)
