"""The thread of all I/O: one event loop, and what runs on it.

The gateway, the heartbeat, the timer of reports and the watch over the lifeline live and end with the loop. When the
gateway fails the process ends: without it the instance would be deaf and dumb.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace

from heron_instance.shell.gateway import Gateway
from heron_runtime.liveness import ProcessPhase
from heron_runtime.model.settings import Keys, setting
from heron_runtime.process import ProcessArguments, beat_forever, run_loop, watch_lifeline
from heron_runtime.process_stats import LoopLag
from heron_runtime.wire.metrics import ProcessMetrics

log = logging.getLogger(__name__)


class LoopThread:
    """Of one instance. ``phase``, ``report`` and ``doing`` are called on the loop."""

    def __init__(
        self,
        arguments: ProcessArguments,
        gateway: Gateway,
        phase: Callable[[], ProcessPhase],
        report: Callable[[], ProcessMetrics],
        doing: Callable[[], str],
    ) -> None:
        self._arguments = arguments
        self._gateway = gateway
        self._phase = phase
        self._collect = report
        self._doing = doing
        self._interval = setting(arguments.launch.settings, Keys.HERON_METRICS_INTERVAL_SECS)
        self._lag = LoopLag()
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout_seconds: float) -> None:
        """Have the gateway send what waits, then end the thread; give up after ``timeout_seconds``."""
        self._gateway.close()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        try:
            run_loop(self._main())
        except BaseException:
            log.exception("the gateway has failed")
            os._exit(1)

    async def _main(self) -> None:
        arguments, loop = self._arguments, asyncio.get_running_loop()
        watch_lifeline(arguments.lifeline, loop)
        timers = (
            loop.create_task(beat_forever(arguments, self._beat, self._lag, self._doing)),
            loop.create_task(self._report_forever()),
        )
        try:
            await self._gateway.run(self._report)
        finally:
            for timer in timers:
                timer.cancel()
            await asyncio.gather(*timers, return_exceptions=True)

    def _beat(self) -> ProcessPhase:
        self._gateway.tell_taken()  # it needs no timer of its own
        return self._phase()

    async def _report_forever(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            self._gateway.ask_for_report()

    def _report(self) -> ProcessMetrics:
        report = self._collect()
        return replace(report, gauges={**report.gauges, "__event-loop-lag-ms": self._lag.take_ms()})
