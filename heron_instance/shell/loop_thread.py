"""The thread of all I/O: one event loop, and what runs on it.

The gateway, the heartbeat, the metrics reporter and the watch over the lifeline live and end with the loop. When the
gateway fails the process ends: without it the instance would be deaf and dumb.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable

from heron_instance.shell.gateway import Gateway
from heron_runtime.liveness import Phase
from heron_runtime.net.loop import run_loop
from heron_runtime.process import ProcessArguments, beat_forever, watch_lifeline
from heron_runtime.process_stats import LoopLag
from heron_runtime.telemetry.reporting import Reporter
from heron_runtime.wire.metrics import ProcessMetrics

log = logging.getLogger(__name__)


class LoopThread:
    """Of one instance. ``phase``, ``report`` and ``doing`` are called on the loop."""

    def __init__(
        self,
        arguments: ProcessArguments,
        gateway: Gateway,
        phase: Callable[[], Phase],
        report: Callable[[], ProcessMetrics],
        doing: Callable[[], str],
    ) -> None:
        self._arguments = arguments
        self._gateway = gateway
        self._phase = phase
        self._report = report
        self._doing = doing
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
        arguments, loop, lag = self._arguments, asyncio.get_running_loop(), LoopLag()
        watch_lifeline(arguments.lifeline, loop)
        reporter = Reporter(arguments.launch, arguments.container, self._report, lag=lag)
        reporter.start()
        beats = loop.create_task(beat_forever(arguments, self._phase, lag, self._doing))
        try:
            await self._gateway.run()
        finally:
            beats.cancel()
            await asyncio.gather(beats, return_exceptions=True)
            await reporter.stop()
