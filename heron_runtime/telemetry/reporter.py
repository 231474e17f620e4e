"""Delivery of reports to the metrics manager of the container: a snapshot every `heron.metrics.interval.secs`.

Delivery errors are logged once and do not reach the owner. Instances do not use a `MetricsReporter`: the stream manager
relays their reports together with its own in one message (`others`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio

from heron_runtime.launch import Launch
from heron_runtime.model.settings import Keys, setting
from heron_runtime.net.identity import identity_of
from heron_runtime.net.rpc import METRICS_SERVICE, make_channel
from heron_runtime.process_stats import LoopLag
from heron_runtime.wire.metrics import ProcessMetrics, Reports

LAST_REPORT_SECONDS = 1.0
GATHER_SECONDS = 0.25
MAX_WAITING = 4096

log = logging.getLogger(__name__)


class ReportRelay:
    """Reports of other processes that wait to be relayed.

    Holds the newest report of each incarnation. Beyond 4 096 reports, the oldest is dropped.
    """

    def __init__(self) -> None:
        self.news = asyncio.Event()  # a new process has reported
        self._seen: dict[str, int] = {}
        self._reports: dict[tuple[str, int], ProcessMetrics] = {}

    def put(self, report: ProcessMetrics) -> None:
        """Add a report to relay."""
        key = (report.instance, report.incarnation)
        self._reports.pop(key, None)
        self._reports[key] = report
        if len(self._reports) > MAX_WAITING:
            del self._reports[next(iter(self._reports))]
        if self._seen.get(report.instance) != report.incarnation and len(self._seen) < MAX_WAITING:
            self._seen[report.instance] = report.incarnation
            self.news.set()

    def all(self) -> tuple[ProcessMetrics, ...]:
        """Return the reports that wait."""
        return tuple(self._reports.values())

    def handed_on(self, reports: tuple[ProcessMetrics, ...]) -> None:
        """Remove reports that have arrived."""
        for report in reports:
            key = (report.instance, report.incarnation)
            if self._reports.get(key) is report:
                del self._reports[key]


class MetricsReporter:
    """Periodic sender of ``collect()`` to the container's metrics manager. It never blocks or fails its owner.

    ``collect`` runs on the loop and must be quick. Call ``start`` and ``stop`` on that loop. The lag of the loop is
    added to each report. The reports in ``others`` are sent along, and sooner if one is of a new process.
    """

    def __init__(
        self, launch: Launch, container: int, collect: Callable[[], ProcessMetrics], others: ReportRelay | None = None
    ) -> None:
        self._launch = launch
        self._container = container
        self._collect = collect
        self._interval = setting(launch.settings, Keys.HERON_METRICS_INTERVAL_SECS)
        self._channel: grpc.aio.Channel | None = None
        self._publish: Callable[..., Any] | None = None
        self._metadata: tuple[tuple[str, str], ...] = ()
        self._task: asyncio.Task[None] | None = None
        self._failing = False
        self._lag = LoopLag()
        self._others = others or ReportRelay()

    def start(self) -> None:
        """Start reporting. The first report is sent at once."""
        if self._task is None:
            self._lag.start()
            self._task = asyncio.get_running_loop().create_task(self._run(), name="metrics reporter")

    async def stop(self) -> None:
        """Send a last report within a second and stop. Idempotent. Does not raise."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await self._send(LAST_REPORT_SECONDS)
        self._lag.stop()
        if self._channel is not None:
            with contextlib.suppress(Exception):
                await self._channel.close()
            self._channel = None

    async def _run(self) -> None:
        while True:
            await self._send(self._interval)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._others.news.wait()
                    await asyncio.sleep(GATHER_SECONDS)
            self._others.news.clear()

    async def _send(self, timeout: float) -> None:
        try:
            if self._publish is None:
                identity = identity_of(self._launch)
                self._metadata = identity.metadata()
                self._channel = make_channel(self._launch.metrics_manager_socket(self._container), identity)
                self._publish = METRICS_SERVICE.call(self._channel, "Publish")
            report = self._collect()
            report = replace(report, gauges={**report.gauges, "__event-loop-lag-ms": self._lag.take_ms()})
            others = self._others.all()
            await self._publish(Reports((report, *others)), timeout=timeout, metadata=self._metadata)
            self._others.handed_on(others)
        except Exception as error:
            # Metrics are auxiliary: a fault here must not stop the process that reports.
            if not self._failing:
                self._failing = True
                text = error.details() if isinstance(error, grpc.aio.AioRpcError) else repr(error)
                log.warning("metrics are not reported until the metrics manager answers: %s", text)
        else:
            if self._failing:
                self._failing = False
                log.info("metrics are reported again")
