"""Stream writes: one in flight at a time, never cancelled by a wake-up or the end of a connection."""

from __future__ import annotations

import asyncio
from typing import Any

from stream_manager.shell.driver import Connection, PacketPump

PATIENCE_SECONDS = 60.0


class Stream:
    """Stream whose writes last until released, and which counts overlapping and cancelled writes."""

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


async def _write_and_end() -> None:
    stream, gone = Stream(), list[str]()
    connection = Connection(1, "x", gone.append)
    waiting = list(range(5))
    pump = connection.data = PacketPump(lambda: waiting.pop(0) if waiting else None)
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


def test_writes_do_not_overlap_and_are_not_cancelled() -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await _write_and_end()

    asyncio.run(bounded())


async def _cancelled_in_the_farewell() -> None:
    stream = Stream()
    connection = Connection(1, "x", lambda reason: None)
    waiting = [0]
    pump = connection.data = PacketPump(lambda: waiting.pop() if waiting else None)
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


def test_cancellation_during_the_farewell_leaves_no_task() -> None:
    asyncio.run(_cancelled_in_the_farewell())
