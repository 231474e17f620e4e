"""One write in flight on each stream, which nobody cancels: neither a wake-up nor the end of the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stream_manager.shell import streams
from stream_manager.shell.streams import Connection, Pump

PATIENCE_SECONDS = 60.0


class Stream:
    """A stream whose writes last until they are let go, and which counts what overlaps or is cancelled."""

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.in_flight = self.most = self.cancelled = 0
        self.go = asyncio.Event()
        self.begun = asyncio.Event()

    async def write(self, message: Any) -> None:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        self.begun.set()
        try:
            await self.go.wait()
            self.written.append(message)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.in_flight -= 1

    async def read(self) -> Any:
        await asyncio.Event().wait()


async def _law() -> None:
    stream, gone = Stream(), list[str]()
    connection = Connection(1, "x", gone.append)
    waiting = list(range(5))
    pump = connection.data = Pump(lambda: waiting.pop(0) if waiting else None)
    task = asyncio.get_running_loop().create_task(connection.converse(stream, lambda message: None, pump))
    await stream.begun.wait()
    for _ in range(5):
        pump.wake()
        await asyncio.sleep(0)
    assert stream.most == 1
    connection.end("told to")
    for _ in range(5):
        await asyncio.sleep(0)
    stream.go.set()
    await task
    assert gone == ["told to"]
    assert (stream.written, stream.cancelled, stream.most) == ([0, 1, 2, 3, 4], 0, 1)


def law_a_write_is_alone_and_is_not_cancelled() -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await _law()

    asyncio.run(bounded())


def test_a_write_is_alone_and_is_not_cancelled() -> None:
    law_a_write_is_alone_and_is_not_cancelled()


async def _cancelled_in_the_farewell() -> None:
    stream = Stream()
    connection = Connection(1, "x", lambda reason: None)
    waiting = [0]
    pump = connection.data = Pump(lambda: waiting.pop() if waiting else None)
    before = asyncio.all_tasks()
    task = asyncio.get_running_loop().create_task(connection.converse(stream, lambda message: None, pump))
    await stream.begun.wait()
    connection.end("told to")
    for _ in range(5):
        await asyncio.sleep(0)  # the farewell waits for the write
    assert not task.done()
    task.cancel()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.wait({task})
    assert asyncio.all_tasks() == before, "nobody waits any more for what will not come"


def test_who_is_cancelled_in_the_farewell_leaves_nobody_behind() -> None:
    asyncio.run(_cancelled_in_the_farewell())


def the_end_cancels_the_write(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(streams, "FAREWELL_SECONDS", 0.0)


def each_wake_writes(patch: pytest.MonkeyPatch) -> None:
    async def run(self: Pump, write: Any) -> None:
        writes = set()
        while True:
            message = self._take()
            if message is not None:
                writes.add(asyncio.ensure_future(write(message)))
                await asyncio.sleep(0)
            elif self._closing:
                await asyncio.gather(*writes)
                return
            else:
                self._work.clear()
                await self._work.wait()

    patch.setattr(Pump, "run", run)


@pytest.mark.parametrize("mutation", [the_end_cancels_the_write, each_wake_writes])
def test_the_law_notices(mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutation(monkeypatch)
    with pytest.raises(AssertionError):
        law_a_write_is_alone_and_is_not_cancelled()
