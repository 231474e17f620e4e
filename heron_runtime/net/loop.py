"""The event loop of the processes that tuples pass through: uvloop, which takes a fifth off the price of a message."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run until ``main`` is done, as ``asyncio.run`` does; its result. On any thread. Raises what ``main`` raises."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
