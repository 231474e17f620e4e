"""Writes to streams: spaced packets, one write in flight, and peers that cannot be reached."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import grpc.aio
import pytest

from heron_runtime.model.plan import StreamManagerInfo
from heron_runtime.wire.control import PeerHello
from stream_manager.shell import grpc_links as peer_links
from stream_manager.shell.driver import ENOUGH_BYTES, Connection, PacketPump, SpacedPump, Spacing
from stream_manager.shell.grpc_links import PeerConnector, PeerTarget

GAP_SECONDS = 0.05


class World:
    """Queue of numbers whose packets are lists of all waiting numbers."""

    def __init__(self) -> None:
        self.queue: list[int] = []
        self.size = 1  # bytes of each number
        self.written: list[tuple[float, list[int]]] = []
        self.pump = SpacedPump(self.take, Spacing(lambda: GAP_SECONDS, lambda: self.size * len(self.queue)))

    def take(self) -> list[int] | None:
        taken, self.queue = self.queue, []
        return taken or None

    def put(self, number: int) -> None:
        self.queue.append(number)
        self.pump.wake()

    async def write(self, message: list[int]) -> None:
        self.written.append((asyncio.get_running_loop().time(), message))
        await asyncio.sleep(0)

    def numbers(self) -> list[int]:
        return [number for _, message in self.written for number in message]


async def run(scene: Callable[[World], object]) -> World:
    """Run the pump while ``scene`` adds numbers, then close it."""
    world = World()
    pumping = asyncio.ensure_future(world.pump.run(world.write))
    await scene(world)  # type: ignore[misc]
    world.pump.close()
    await asyncio.wait_for(pumping, 30)
    return world


async def few(world: World) -> None:
    for number in range(200):
        world.put(number)
        await asyncio.sleep(0.001)


def test_slow_input_is_batched_without_loss() -> None:
    world = asyncio.run(run(few))
    assert world.numbers() == list(range(200))
    times = [at for at, _ in world.written[:-1]]  # the last one leaves because of the close
    assert all(later - sooner >= GAP_SECONDS - 0.002 for sooner, later in itertools.pairwise(times))


def test_large_input_leaves_at_once() -> None:
    async def much(world: World) -> None:
        world.size = ENOUGH_BYTES
        for number in range(50):
            world.put(number)
            await asyncio.sleep(0.001)
        world.size = 1

    world = asyncio.run(run(much))
    assert world.numbers() == list(range(50))
    assert len(world.written) >= 40


def test_first_input_leaves_at_once_and_later_input_within_the_gap() -> None:
    async def lone(world: World) -> None:
        world.put(1)
        world.put(2)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert world.numbers() == [1, 2]
        world.put(3)  # within the gap, without another wake
        await asyncio.sleep(0)
        assert world.numbers() == [1, 2]
        while world.numbers() != [1, 2, 3]:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(lone), 30))


def test_input_during_a_write_leaves_without_a_wake() -> None:
    async def scene(world: World) -> None:
        real = world.write

        async def slow(message: list[int]) -> None:
            if message == [1]:
                world.queue.append(2)  # its wake came while the write was in flight
                world.pump.wake()
                world.pump._work.clear()
            await real(message)

        pump = asyncio.ensure_future(world.pump.run(slow))
        world.put(1)
        while world.numbers() != [1, 2]:
            await asyncio.sleep(0.01)
        world.pump.close()
        await pump

    async def main() -> None:
        await scene(World())

    asyncio.run(asyncio.wait_for(main(), 30))


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


class Broken:
    """Stand-in for a stream and for its service, core, identity and channel."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.core = self

    def call(self, *_: Any) -> Any:
        return lambda **_: self

    async def write(self, _: Any) -> None:
        raise self._error

    def peer_hello(self) -> PeerHello:
        return PeerHello(1, "t-1", 1, 5, 0)

    def metadata(self, *_: Any) -> tuple[()]:
        return ()


@pytest.mark.parametrize(
    "error",
    [grpc.aio.InternalError("a batch was refused"), grpc.aio.UsageError("the call is over"), TimeoutError("late")],
    ids=lambda error: type(error).__name__,
)
async def test_unreachable_peer_is_logged(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    around: Any = Broken(error)
    monkeypatch.setattr(peer_links, "PEER_SERVICE", around)
    monkeypatch.setattr(peer_links, "make_channel", lambda *_: contextlib.nullcontext())
    connector = PeerConnector(around, around, 2)
    assert not await connector._connect(PeerTarget(StreamManagerInfo(2, "127.0.0.1", 1, 7), 0))
    assert "container 2: cannot be reached" in caplog.text
