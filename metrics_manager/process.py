"""Process of the metrics manager: reads reports from a Unix socket, flushes its sinks, saves its totals.

Each sink runs in its own task, so a slow or failing sink does not delay the others. At each interval every idle sink is
flushed. A sink that is still busy misses the interval, which is counted; no data is
lost, since a sink asks for what is new to it. A failure is counted each time and logged once until the sink works
again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import grpc.aio

from heron_runtime.extensions import METRICS_SINKS, ExtensionError
from heron_runtime.launch import Launch
from heron_runtime.model.settings import Keys, setting
from heron_runtime.net.identity import identity_of
from heron_runtime.net.rpc import METRICS_SERVICE, make_server
from heron_runtime.process import ProcessPhase
from heron_runtime.process_stats import LoopLag
from heron_runtime.telemetry.recorder import Telemetry
from heron_runtime.wire.metrics import MetricsAck, Reports
from metrics_manager.collection import Collection
from metrics_manager.saved_reports import load_reports, save_reports
from metrics_manager.sinks import Sink, SinkContext

SAVE_EVERY_BEATS = 3
HISTORY = "history"  # the sink that heron.history.enabled adds
STOP_GRACE_SECONDS = 0.2

log = logging.getLogger(__name__)


class MetricsManager:
    """Metrics manager of one container."""

    def __init__(self, launch: Launch, container: int) -> None:
        self.launch = launch
        self.container = container
        self.phase = ProcessPhase.STARTING
        self.stopped = asyncio.Event()
        self.collection = Collection()
        self.telemetry = Telemetry("__metricsmgr__", f"metrics_manager-{container}", container, 0, time.time_ns())
        self._interval = setting(launch.settings, Keys.HERON_METRICS_INTERVAL_SECS)
        self._state_file = launch.metrics_dir / f"metrics_manager-{container}.state"
        self._saved_version = 0
        self._refused = 0
        self._lag = LoopLag()
        self._sinks: list[SinkRunner] = []
        self._server: grpc.aio.Server | None = None
        self._beats: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Restore saved totals, listen, and start the sinks.

        Raises:
            OSError: The socket cannot be created.
        """
        self.collection.restore(await asyncio.to_thread(load_reports, self._state_file))
        self._saved_version = self.collection.version
        identity = await asyncio.to_thread(identity_of, self.launch)
        handler = METRICS_SERVICE.handler(Publish=self._publish)
        target = self.launch.metrics_manager_socket(self.container)
        Path(target.removeprefix("unix:")).unlink(missing_ok=True)  # left by one that was killed
        self._server, _ = make_server(identity, target, [handler])
        await self._server.start()
        context = SinkContext(self.launch, self.container, self.collection, self.telemetry, self._saved_version)
        names = [*setting(self.launch.settings, Keys.HERON_METRICS_SINKS)]
        if setting(self.launch.settings, Keys.HERON_HISTORY_ENABLED) and HISTORY not in names:
            names.append(HISTORY)
        self._sinks = [SinkRunner(name, factory, context) for name, factory in find_sinks(names).items()]
        self._lag.start()
        self._beats = asyncio.create_task(self._beat(), name="beats")
        self.phase = ProcessPhase.RUNNING

    async def stop(self) -> None:
        """Read pending reports, flush the sinks a last time, and save. Idempotent."""
        if self._server is not None:
            await self._server.stop(STOP_GRACE_SECONDS)
        if self._beats is not None:
            self._beats.cancel()
            await asyncio.gather(self._beats, return_exceptions=True)
            self._report_itself()
            self._lag.stop()
        sinks, self._sinks = self._sinks, []
        await asyncio.gather(*(sink.stop() for sink in sinks))
        if self._beats is not None:
            await self._save()

    async def _publish(self, reports: Reports, _: Any) -> MetricsAck:
        for report in reports.processes:
            self.collection.take(report)
        return MetricsAck()

    async def _beat(self) -> None:
        number = 0
        while True:
            await asyncio.sleep(self._interval)
            number += 1
            self._report_itself()
            for sink in self._sinks:
                sink.beat()
            if number % SAVE_EVERY_BEATS == 0:
                await self._save()

    def _report_itself(self) -> None:
        self.telemetry.gauge("__processes", len(self.collection))
        self.telemetry.gauge("__event-loop-lag-ms", self._lag.take_ms())
        self.telemetry.count("__reports-refused", self.collection.refused - self._refused)
        self._refused = self.collection.refused
        self.telemetry.count("__reports-received", self.collection.received)
        self.collection.received = 0
        self.collection.take(self.telemetry.report(time.time()))

    async def _save(self) -> None:
        version = self.collection.version
        if version == self._saved_version:
            return
        try:
            await asyncio.to_thread(save_reports, self._state_file, self.container, self.collection.entries())
        except (OSError, ValueError) as error:
            log.warning("all-time totals are not saved: %s", error)
        else:
            self._saved_version = version


LAST_FLUSH_SECONDS = 2.0
FLUSH_SECONDS = 60.0


def find_sinks(names: Iterable[str]) -> dict[str, Callable[[], Sink]]:
    """Return the factories of sinks. A sink that cannot be loaded is logged and left out."""
    sinks: dict[str, Callable[[], Sink]] = {}
    for name in names:
        try:
            sinks[name] = METRICS_SINKS.load(name)
        except ExtensionError as error:
            log.error("heron.metrics.sinks: %s", error.line(), exc_info=error.__cause__)
    return sinks


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
