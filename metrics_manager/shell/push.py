"""The ``graphite`` and ``statsd`` sinks: metrics pushed to a server as lines of text (``core/line_protocols``).

Graphite gets a TCP connection for each flush; StatsD gets datagrams, of which nobody knows whether they arrive. Neither
queues: Graphite's values are totals and gauges, so the next flush tells what a lost one did, and what
StatsD was not told comes with the next.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator

from heron_runtime.model.settings import Keys, setting
from heron_runtime.wire.errors import MalformedMessage
from metrics_manager.core.line_protocols import Differences, ProcessValues, datagrams, graphite_lines
from metrics_manager.sinks import MetricsView, SinkContext

CONNECT_SECONDS = 5.0
WRITE_SECONDS = 20.0
GAUGE_FRESH_SECONDS = 60.0
DATAGRAM_BYTES = 1400  # fits in an Ethernet frame


def parse_address(text: str) -> tuple[str, int]:
    """``host:port``, ``[::1]:port``. Raises ValueError."""
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isdecimal() or not 0 < int(port) <= 65_535:
        raise ValueError(f"{text!r} is no address; write host:port")
    return host.strip("[]"), int(port)


def process_values(metrics: MetricsView, now: float) -> Iterator[ProcessValues]:
    """Every process: totals over all incarnations, and gauges unless the process is gone."""
    for report, totals in metrics.all_time():
        try:
            latencies = totals.sketches()
        except MalformedMessage:  # one bad report must not hold back the others
            latencies = {}
        gauges = report.gauges if now - report.time <= GAUGE_FRESH_SECONDS else {}
        yield ProcessValues(report.component, report.instance, now, totals.counters(), gauges, latencies)


class GraphiteSink:
    """Plaintext protocol over TCP."""

    async def open(self, context: SinkContext) -> None:
        """Read the settings; the connection is made by the first flush. Raises ValueError."""
        settings = context.launch.settings
        self._context = context
        self._address = parse_address(setting(settings, Keys.HERON_METRICS_GRAPHITE_ADDRESS))
        self._prefix = setting(settings, Keys.HERON_METRICS_PREFIX)

    async def flush(self) -> None:
        """Send everything there is. Raises OSError, TimeoutError."""
        processes = process_values(self._context.metrics, time.time())
        lines = graphite_lines(self._prefix, self._context.launch.topology, processes)
        data = "".join(lines).encode()
        if not data:
            return
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(*self._address)
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                writer.write(data)
                writer.close()
                await writer.wait_closed()  # what is not written yet goes first
        except (TimeoutError, asyncio.CancelledError):
            writer.transport.abort()
            raise

    async def close(self) -> None:
        """Nothing stays open between flushes."""


class StatsdSink:
    """Datagrams over UDP."""

    async def open(self, context: SinkContext) -> None:
        """Make the socket; what an earlier metrics manager had saved was told by it. Raises ValueError, OSError."""
        settings = context.launch.settings
        self._context = context
        self._prefix = setting(settings, Keys.HERON_METRICS_PREFIX)
        host, port = parse_address(setting(settings, Keys.HERON_METRICS_STATSD_ADDRESS))
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = found[0]
        self._socket = socket.socket(family, kind, protocol)
        self._socket.setblocking(False)
        self._socket.connect(address)
        self._differences = Differences()
        if context.restored:
            self._lines()
            self._differences.sent()

    async def flush(self) -> None:
        """Send what is new. Raises OSError."""
        lines = self._lines()
        loop = asyncio.get_running_loop()
        for data in datagrams(lines, DATAGRAM_BYTES):
            await loop.sock_sendall(self._socket, data)
        self._differences.sent()

    async def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _lines(self) -> list[str]:
        processes = process_values(self._context.metrics, time.time())
        return self._differences.take(self._prefix, self._context.launch.topology, processes)
