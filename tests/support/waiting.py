"""Poll a condition until it holds or a time limit passes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

DEFAULT_LIMIT_SECONDS = 240.0  # enough for a busy machine and for images that have to be loaded first
POLL_SECONDS = 0.1
T = TypeVar("T")


def wait_until(
    condition: Callable[[], T | None],
    what: str,
    seconds: float = DEFAULT_LIMIT_SECONDS,
    poll: float = POLL_SECONDS,
) -> T:
    """Poll ``condition`` until it returns a true value.

    Args:
        condition: Called every ``poll`` seconds.
        what: The state that is waited for, for the failure message ("the tracker to answer").
        seconds: The time limit.
        poll: Seconds between two calls.

    Returns:
        The first true value.

    Raises:
        AssertionError: The limit has passed. The message quotes ``what`` and the last value.
    """
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() >= deadline:
            raise AssertionError(_timeout_message(seconds, what, value))
        time.sleep(poll)
    return value


def _timeout_message(seconds: float, what: str, value: object) -> str:
    return f"Timed out after {seconds:g} s waiting for {what}; last value: {value!r}"
