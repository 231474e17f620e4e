"""Sinks ``graphite`` and ``statsd``: push metrics to a server as lines of text.

Both get the same names, made of parts that are safe in either (letters, digits, ``_`` and ``-``)::

    PREFIX.TOPOLOGY.COMPONENT.INSTANCE.METRIC[.KEY][.p50 | .p90 | .p99 | .count]

Graphite gets totals over all incarnations, so a restart does not lower them and ``perSecond()`` is the rate. StatsD
expects differences, so ``Differences`` remembers what was sent. Latencies are milliseconds.

Graphite gets a TCP connection for each flush. StatsD gets datagrams, which may be lost without notice. Neither sink
queues: the next flush to Graphite carries the same totals, and differences not yet sent to StatsD go with the next one.
"""

from __future__ import annotations

import asyncio
import math
import re
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.sketch import Sketch
from heron_runtime.wire.errors import MalformedMessage
from metrics_manager.sinks import MetricsView, SinkContext

QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
MAX_NAME = 250
_UNSAFE = re.compile(r"[^A-Za-z0-9_\-]+")


@dataclass(frozen=True, slots=True)
class ProcessValues:
    """Metrics of one process: totals over all incarnations and the latest gauges."""

    component: str
    instance: str
    time: float
    counters: Mapping[str, float] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    latencies: Mapping[str, Sketch] = field(default_factory=dict)


def metric_path(prefix: str, topology: str, values: ProcessValues, name: str) -> str:
    """Return the dotted name of a metric, at most ``MAX_NAME`` characters."""
    parts = [*prefix.split("."), topology, values.component, values.instance, *name.split("/")]
    safe = (_UNSAFE.sub("_", part) or "_" for part in parts if part)
    return ".".join(safe)[:MAX_NAME]


def graphite_lines(prefix: str, topology: str, processes: Iterable[ProcessValues]) -> Iterator[str]:
    """Yield ``name value time`` lines. Values that are not finite are left out."""
    for process in processes:
        at = int(process.time)
        for name, value in _plain(process):
            if math.isfinite(value):
                yield f"{metric_path(prefix, topology, process, name)} {value:.12g} {at}\n"


def _plain(process: ProcessValues) -> Iterator[tuple[str, float]]:
    yield from process.counters.items()
    yield from process.gauges.items()
    for name, sketch in process.latencies.items():
        yield f"{name}/count", sketch.count
        for (suffix, _), value in zip(QUANTILES, sketch.quantiles(q for _, q in QUANTILES), strict=True):
            if value is not None:
                yield f"{name}/{suffix}", value


class Differences:
    """Lines for StatsD: growth of counters since the last flush, gauges, and percentiles of new values.

    ``take`` gives the lines; only ``sent`` makes them the past, so what could not be sent comes again.
    """

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str], dict[str, float]] = {}
        self._sketches: dict[tuple[str, str], dict[str, Sketch]] = {}
        self._new_counters = self._counters
        self._new_sketches = self._sketches

    def sent(self) -> None:
        """Confirm that the lines of the last ``take`` were sent."""
        self._counters, self._sketches = self._new_counters, self._new_sketches

    def take(self, prefix: str, topology: str, processes: Iterable[ProcessValues]) -> list[str]:
        """Return the lines to send."""
        lines: list[str] = []
        self._new_counters, self._new_sketches = {}, {}
        for process in processes:
            key = (process.component, process.instance)
            sent = self._new_counters[key] = dict(self._counters.get(key, {}))
            for name, total in process.counters.items():
                growth = total - sent.get(name, 0.0)
                if growth > 0 and math.isfinite(growth):
                    sent[name] = total
                    lines.append(f"{metric_path(prefix, topology, process, name)}:{growth:.12g}|c")
            for name, value in process.gauges.items():
                if math.isfinite(value):
                    path = metric_path(prefix, topology, process, name)
                    # A sign would mean a change of the gauge; nought first makes a negative value absolute.
                    lines += [f"{path}:0|g"] if value < 0 else []
                    lines.append(f"{path}:{value:.12g}|g")
            seen = self._new_sketches[key] = dict(self._sketches.get(key, {}))
            for name, sketch in process.latencies.items():
                new = sketch - seen.get(name, Sketch())
                seen[name] = sketch
                for (suffix, _), quantile in zip(QUANTILES, new.quantiles(q for _, q in QUANTILES), strict=True):
                    if quantile is not None:
                        lines.append(f"{metric_path(prefix, topology, process, f'{name}/{suffix}')}:{quantile:.12g}|g")
        return lines


def datagrams(lines: Iterable[str], max_bytes: int) -> Iterator[bytes]:
    """Yield lines joined to datagrams of at most ``max_bytes``. Longer lines are left out."""
    waiting: list[bytes] = []
    size = 0
    for line in lines:
        data = line.encode()
        if len(data) > max_bytes:
            continue
        if waiting and size + len(data) + 1 > max_bytes:
            yield b"\n".join(waiting)
            waiting, size = [], 0
        waiting.append(data)
        size += len(data) + 1
    if waiting:
        yield b"\n".join(waiting)


CONNECT_SECONDS = 5.0
WRITE_SECONDS = 20.0
GAUGE_FRESH_SECONDS = 60.0
DATAGRAM_BYTES = 1400  # fits in an Ethernet frame


def parse_address(text: str) -> tuple[str, int]:
    """Parse ``host:port`` or ``[::1]:port``.

    Raises:
        ValueError: The text has another form.
    """
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isdecimal() or not 0 < int(port) <= 65_535:
        raise ValueError(f"invalid address {text!r}: use host:port")
    return host.strip("[]"), int(port)


def process_values(metrics: MetricsView, now: float) -> Iterator[ProcessValues]:
    """Return the metrics of every process; gauges only of running ones."""
    for report, totals in metrics.all_time():
        try:
            latencies = totals.sketches()
        except MalformedMessage:  # one bad report must not hold back the others
            latencies = {}
        gauges = report.gauges if now - report.time <= GAUGE_FRESH_SECONDS else {}
        yield ProcessValues(report.component, report.instance, now, totals.counters(), gauges, latencies)


class GraphiteSink:
    """Graphite sink: plaintext protocol over TCP."""

    async def open(self, context: SinkContext) -> None:
        """Read the settings. The first flush connects.

        Raises:
            ValueError: A setting is invalid.
        """
        settings = context.launch.settings
        self._context = context
        self._address = parse_address(setting(settings, Keys.HERON_METRICS_GRAPHITE_ADDRESS))
        self._prefix = setting(settings, Keys.HERON_METRICS_PREFIX)

    async def flush(self) -> None:
        """Send all metrics.

        Raises:
            OSError: The server cannot be reached.
            TimeoutError: The server does not accept the data in time.
        """
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
        """Do nothing: no connection stays open."""


class StatsdSink:
    """StatsD sink: datagrams over UDP."""

    async def open(self, context: SinkContext) -> None:
        """Create the socket. Metrics saved by an earlier metrics manager were sent by it.

        Raises:
            ValueError: A setting is invalid.
            OSError: The socket cannot be created.
        """
        settings = context.launch.settings
        self._context = context
        self._prefix = setting(settings, Keys.HERON_METRICS_PREFIX)
        host, port = parse_address(setting(settings, Keys.HERON_METRICS_STATSD_ADDRESS))
        addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = addresses[0]
        self._socket = socket.socket(family, kind, protocol)
        self._socket.setblocking(False)
        self._socket.connect(address)
        self._differences = Differences()
        if context.restored:
            self._lines()
            self._differences.sent()

    async def flush(self) -> None:
        """Send what is new.

        Raises:
            OSError: The datagrams cannot be sent.
        """
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
