"""Process of the metrics manager: reads reports from a Unix socket, flushes its sinks, saves its totals."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import grpc.aio

from heron_runtime.launch import Launch
from heron_runtime.model.settings import Keys, setting
from heron_runtime.net.identity import identity_of
from heron_runtime.net.rpc import METRICS_SERVICE, make_server
from heron_runtime.process import ProcessPhase
from heron_runtime.process_stats import LoopLag
from heron_runtime.telemetry.recorder import Telemetry
from heron_runtime.wire.metrics import MetricsAck, Reports
from metrics_manager.collection import Collection
from metrics_manager.runner import SinkRunner, find_sinks
from metrics_manager.saved_reports import load_reports, save_reports
from metrics_manager.sinks import SinkContext

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
