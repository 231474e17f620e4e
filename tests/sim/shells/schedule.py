"""One schedule of production shells: emit under faults for some simulated seconds, then come to rest.

At rest every link is up and knows the living stream manager, nothing is queued, and a gateway or a stream manager has
counted each missing tuple. If a process has died, its losses are not counted, so counts are not compared.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from dataclasses import dataclass

from ..simulation import Violation
from .container import Container
from .loop import VirtualLoop

FAULTLESS, DEATHS = 4, 3  # one seed in this many has no faults; of the others one in this many has deaths
REST_SECONDS = 120.0


@dataclass(frozen=True)
class Outcome:
    """Outcome of a schedule."""

    received: int
    missing: int
    counted: int
    faults: int
    pieces: int
    seconds: float


class _Errors(logging.Handler):
    """Log handler that treats an error logged by a shell as a fault of the shell."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(logging.ERROR)
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        """Store the first error."""
        self._loop.note(record.exc_info[1] if record.exc_info else None, record.getMessage())


def run(seed: int) -> Outcome:
    """Run one schedule. Raises Violation."""
    loop = VirtualLoop(random.Random(f"shells {seed}"))
    errors = _Errors(loop)
    logging.getLogger().addHandler(errors)
    try:
        main = loop.create_task(_run(loop, seed))
        try:
            outcome = loop.run_until_complete(main)
        except RuntimeError:  # stopped by a violation elsewhere
            if loop.broken is None:
                raise
            raise loop.broken from None
        gc.collect()  # a task dropped while waiting is reported here, not in a later schedule
        if loop.broken is not None:
            raise loop.broken
        return outcome
    finally:
        logging.getLogger().removeHandler(errors)
        _end(loop)


def _end(loop: VirtualLoop) -> None:
    loop.broken = Violation("over")  # errors while closing down do not count
    rest = asyncio.all_tasks(loop)
    for task in rest:
        task.cancel()
    over = asyncio.gather(*rest, return_exceptions=True)
    while not over.done():
        try:
            loop.run_until_complete(over)
        except RuntimeError:  # the cause of the stop also stops the loop here
            pass
    loop.close()


async def _run(loop: VirtualLoop, seed: int) -> Outcome:
    container = Container(loop)
    await container.start()
    faults = await _strike(container, seed) if seed % FAULTLESS else await asyncio.sleep(2.0, 0)
    container.emitting = False
    loop.slowest = 0.003
    until = loop.now + REST_SECONDS
    while (reasons := container.unsettled()) and loop.now < until:
        await asyncio.sleep(0.25)
    if reasons:
        loop.break_law(f"after {REST_SECONDS:.0f} quiet seconds: {'; '.join(reasons[:4])}")
    missing, counted = container.missing(), container.counted + container.manager.lost()
    if missing < 0 or (missing > counted and not container.died):
        loop.break_law(f"{missing} tuples are missing, and {counted} were counted as lost")
    if not faults and (missing or counted):
        loop.break_law(f"nothing broke: {missing} tuples are missing, {counted} counted as lost")
    return Outcome(container.received.total(), missing, counted, faults, loop.pieces, loop.now)


async def _strike(container: Container, seed: int) -> int:
    """Inject faults for a while; return how many."""
    loop, rng = container.loop, container.loop.rng
    until, rate, faults = rng.choice((2.0, 5.0)), rng.choice((0.05, 0.2, 1.0)), 0
    kinds = ["cut", "cut", "garble", "stall", "slow"]
    if seed % DEATHS == 0:
        kinds += ["manager", "task", "task"]
    while loop.now < until:
        await asyncio.sleep(rng.uniform(0.2, 1.8) * rate)
        faults += 1
        kind = rng.choice(kinds)
        if kind == "manager":
            await container.kill_manager(rng.uniform(0, 1.0))
        elif kind == "task":
            await container.kill_task(rng.choice(list(container.tasks)))
        elif kind == "slow":
            loop.slowest = rng.choice((0.0005, 0.003, 0.05))
        elif loop.transports:
            near = rng.choice(list(loop.transports))
            end = rng.choice((near, near.far))
            if kind == "cut":
                near.cut()
            elif kind == "stall":
                end.out.stall(rng.uniform(0, 4.0))
            else:
                container.garbled += 1
                end.out.garble()
    return faults
