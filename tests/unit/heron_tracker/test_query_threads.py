"""Query threads of the tracker: the event loop stays responsive, and the queue is bounded."""

from __future__ import annotations

import asyncio
import threading

import pytest

from heron_runtime.failures import Unavailable
from heron_tracker import tracker as tracker_module
from heron_tracker.tracker import Tracker


async def test_query_does_not_block_the_loop_and_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_module, "MAX_QUERIES", 2)
    tracker = Tracker({})
    go = threading.Event()
    waiting = [asyncio.ensure_future(tracker.run_query(lambda: go.wait(30))) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="2 queries"):
        await tracker.run_query(lambda: None)
    go.set()
    assert await asyncio.gather(*waiting) == [True, True]

    def fault() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await tracker.run_query(fault)
    assert await tracker.run_query(lambda: 1) == 1  # the failed query has released its place
    await tracker.stop()
