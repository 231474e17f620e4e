"""Batching of packets to a peer: spaced by the gap, early when large, and complete."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from stream_manager.shell.driver import ENOUGH_BYTES, SpacedPump, Spacing

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
