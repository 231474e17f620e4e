"""Runs each metrics sink in its own task, so a slow or failing sink does not delay the others.

At each interval every idle sink is flushed. A sink that is still busy misses the interval, which is counted; no data is
lost, since a sink asks for what is new to it. A failure is counted each time and logged once until the sink works
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from heron_runtime.extensions import METRICS_SINKS, ExtensionError
from metrics_manager.sinks import Sink, SinkContext

LAST_FLUSH_SECONDS = 2.0
FLUSH_SECONDS = 60.0

log = logging.getLogger(__name__)


def find_sinks(names: Iterable[str]) -> dict[str, Callable[[], Sink]]:
    """Return the factories of sinks. A sink that cannot be loaded is logged and left out."""
    found: dict[str, Callable[[], Sink]] = {}
    for name in names:
        try:
            found[name] = METRICS_SINKS.load(name)
        except ExtensionError as error:
            log.error("heron.metrics.sinks: %s", error.line(), exc_info=error.__cause__)
    return found


class SinkRunner:
    """One metrics sink and its task."""

    def __init__(self, name: str, factory: Callable[[], Sink], context: SinkContext) -> None:
        self._name = name
        self._factory = factory
        self._context = context
        self._beat = asyncio.Event()
        self._busy = False
        self._failing = False
        self._sink: Sink | None = None
        self._task = asyncio.create_task(self._run(), name=f"sink {name}")

    def beat(self) -> None:
        """Request a flush."""
        if self._busy:
            self._context.telemetry.count(f"__sink-dropped/{self._name}")
        self._beat.set()

    async def stop(self) -> None:
        """Flush a last time within a time limit, then close. Never raises."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._sink is not None:
            try:
                async with asyncio.timeout(LAST_FLUSH_SECONDS):
                    await self._sink.flush()
            except Exception as error:
                log.info("last flush of sink %s: %r", self._name, error)
            try:
                async with asyncio.timeout(LAST_FLUSH_SECONDS):
                    await self._sink.close()
            except Exception as error:
                log.info("closing sink %s: %r", self._name, error)

    async def _run(self) -> None:
        while True:
            self._busy = True
            try:
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self._work()
            except Exception as error:
                self._context.telemetry.count(f"__sink-failures/{self._name}")
                if not self._failing:
                    self._failing = True
                    log.warning("the metrics sink %s fails, it is tried again each interval: %r", self._name, error)
            else:
                self._context.telemetry.count(f"__sink-records/{self._name}")
                if self._failing:
                    self._failing = False
                    log.info("the metrics sink %s works again", self._name)
            self._busy = False
            await self._beat.wait()
            self._beat.clear()

    async def _work(self) -> None:
        if self._sink is None:
            sink = self._factory()
            await sink.open(self._context)
            self._sink = sink
        await self._sink.flush()
