"""Poll a condition until it holds or a time limit passes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

DEFAULT_LIMIT_SECONDS = 240.0  # enough for a busy machine and for images that have to be loaded first
POLL_SECONDS = 0.1
POLL_SECONDS_OF_A_LOOP = 0.02  # polling in an event loop is cheap
T = TypeVar("T")


def wait_until(
    condition: Callable[[], T | None],
    what: str = "the condition holds",
    seconds: float = DEFAULT_LIMIT_SECONDS,
    poll: float = POLL_SECONDS,
    retry_on: type[Exception] | tuple[type[Exception], ...] = (),
) -> T:
    """Poll ``condition`` until it returns a true value.

    Args:
        condition: Called every ``poll`` seconds.
        what: The state that is waited for, as a clause for the failure message ("the tracker answers").
        seconds: The time limit.
        poll: Seconds between two calls.
        retry_on: Exceptions of ``condition`` that count as a false value.

    Returns:
        The first true value.

    Raises:
        AssertionError: The limit has passed. The message quotes ``what`` and the last value.
    """
    deadline = time.monotonic() + seconds
    while True:
        last: object
        try:
            value = condition()
            if value:
                return value
            last = value
        except retry_on as error:
            last = error
        if time.monotonic() >= deadline:
            raise AssertionError(_timeout_message(seconds, what, last))
        time.sleep(poll)


def wait_until_equal(
    condition: Callable[[], T], wanted: T, what: str, seconds: float = DEFAULT_LIMIT_SECONDS, poll: float = POLL_SECONDS
) -> None:
    """Poll ``condition`` until it returns ``wanted``; the failure message shows the last value and ``wanted``."""
    deadline = time.monotonic() + seconds
    while (value := condition()) != wanted:
        if time.monotonic() >= deadline:
            raise AssertionError(f"{_timeout_message(seconds, what, value)}, not {wanted!r}")
        time.sleep(poll)


async def wait_until_async(
    condition: Callable[[], Any | Awaitable[Any]],
    what: str = "the condition holds",
    seconds: float = DEFAULT_LIMIT_SECONDS,
    poll: float = POLL_SECONDS_OF_A_LOOP,
) -> Any:
    """Do what ``wait_until`` does without blocking the event loop; ``condition`` may be a coroutine function."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(_timeout_message(seconds, what, value))
        await asyncio.sleep(poll)


def _timeout_message(seconds: float, what: str, value: object) -> str:
    return f"Timed out after {seconds:g} s; expected: {what}; last value: {value!r}"
