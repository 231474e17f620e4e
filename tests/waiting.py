"""Waiting for what comes about by itself, with a generous bound: no test sleeps and hopes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_SECONDS = 240.0  # where images are loaded, and the machine is busy with other things
POLL_SECONDS = 0.1
T = TypeVar("T")


def eventually(
    condition: Callable[[], T | None], what: str, seconds: float = PATIENCE_SECONDS, poll: float = POLL_SECONDS
) -> T:
    """What ``condition`` answers, as soon as that is true. Raises AssertionError, which says ``what`` did not come."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(poll)
    return found
