"""Sink ``prometheus``: serves ``GET /metrics`` to a Prometheus server.

The text is generated for each scrape from totals over all incarnations, so counters do not fall when an instance
restarts. Names come from ``heron_runtime.model.metrics``; labels are topology, component, instance, stream and
container and nothing else. Latencies become histograms in seconds. The port is free to choose (0) and stands in
``prometheus-N.port`` in the topology's metrics folder and in the gauge ``__prometheus-port``.

The server is a few lines of asyncio: one request per connection, at most 32 connections, 8 KiB of request, 10 seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from heron_runtime.files import replace_file
from heron_runtime.model.metrics import MetricKind, PrometheusName, prometheus_name
from heron_runtime.model.sketch import Sketch
from heron_runtime.wire.errors import MalformedMessage
from heron_runtime.wire.metrics import ProcessMetrics
from metrics_manager.sinks import MetricsView, SinkContext

LABELS = ("topology", "component", "instance", "stream", "container")
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
GAUGE_FRESH_SECONDS = 60.0
MAX_CONNECTIONS = 32
MAX_REQUEST_BYTES = 8 * 1024
REQUEST_SECONDS = 10.0
CLASSES = {MetricKind.COUNTER: CounterMetricFamily, MetricKind.GAUGE: GaugeMetricFamily,
           MetricKind.LATENCY: HistogramMetricFamily}  # fmt: skip


class HeronCollector(Collector):
    """Converts the metrics to Prometheus families. If names of user metrics collide, the later one is dropped."""

    def __init__(self, metrics: MetricsView, topology: str) -> None:
        self._metrics = metrics
        self._topology = topology

    def collect(self) -> Iterable[Family]:
        """Return all families with their samples."""
        families: dict[str, tuple[MetricKind, Family]] = {}
        seen: set[tuple[str, tuple[str, ...]]] = set()
        for report, name, kind, value in self._values():
            prometheus = prometheus_name(name, kind)
            text = prometheus.name
            kind_there, family = families.setdefault(text, (kind, self._family(text, kind, prometheus.help)))
            labels = self._labels(report, prometheus.labels)
            if kind_there is not kind or (text, labels) in seen:
                continue
            seen.add((text, labels))
            _add(family, labels, value, prometheus)
        return [family for _, family in families.values()]

    def _values(self) -> Iterator[tuple[ProcessMetrics, str, MetricKind, float | Sketch]]:
        for report, totals in self._metrics.all_time():
            for name, value in totals.counters().items():
                yield report, name, MetricKind.COUNTER, value
            if time.time() - report.time <= GAUGE_FRESH_SECONDS:  # a process that is gone has no state
                for name, value in report.gauges.items():
                    yield report, name, MetricKind.GAUGE, value
            with contextlib.suppress(MalformedMessage):  # one bad report must not spoil the scrape
                for name, sketch in totals.sketches().items():
                    yield report, name, MetricKind.LATENCY, sketch

    @staticmethod
    def _family(name: str, kind: MetricKind, meaning: str) -> Family:
        made: Family = CLASSES[kind](name.removesuffix("_total"), meaning, labels=LABELS)
        return made

    def _labels(self, report: ProcessMetrics, special: Mapping[str, str]) -> tuple[str, ...]:
        values = {
            "topology": self._topology,
            "component": report.component,
            "instance": report.instance,
            "stream": "",
            "container": str(report.container),
            **special,
        }
        return tuple(values[label] for label in LABELS)


def _add(family: Family, labels: tuple[str, ...], value: float | Sketch, name: PrometheusName) -> None:
    if isinstance(value, Sketch):
        buckets = [(repr(b), value.count_up_to(b / name.scale)) for b in BUCKETS]
        family.add_metric(labels, [*buckets, ("+Inf", value.count)], value.sum * name.scale)  # type: ignore[attr-defined]  # every family has it
    else:
        family.add_metric(labels, value * name.scale)  # type: ignore[attr-defined]  # every family has it


class PrometheusSink:
    """HTTP server for scrapes."""

    async def open(self, context: SinkContext) -> None:
        """Listen, and publish the port.

        Raises:
            OSError: The port is in use, or its file cannot be written.
        """
        self._registry = CollectorRegistry()
        self._registry.register(HeronCollector(context.metrics, context.launch.topology))
        self._connections: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(
            self._serve, context.launch.bind_host, 0, limit=MAX_REQUEST_BYTES, reuse_address=True
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._port_file = context.launch.prometheus_port_file(context.container)
        await asyncio.to_thread(self._port_file.parent.mkdir, parents=True, exist_ok=True)
        await asyncio.to_thread(replace_file, self._port_file, f"{self.port}\n")
        context.telemetry.gauge("__prometheus-port", self.port)

    async def flush(self) -> None:
        """Do nothing: Prometheus scrapes at its own interval."""

    async def close(self) -> None:
        """Stop the server."""
        self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await asyncio.to_thread(self._port_file.unlink, missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.close()
            return
        self._connections.add(task)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(request.split(b"\r\n", 1)[0].decode("latin-1")))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the other side is gone, slow or not HTTP
        finally:
            self._connections.discard(task)
            writer.close()

    def _answer(self, request_line: str) -> bytes:
        method, _, rest = request_line.partition(" ")
        path = rest.split(" ", 1)[0].split("?", 1)[0]
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", "text/plain", b"only GET\n")
        if path != "/metrics":
            return _response("404 Not Found", "text/plain", b"see /metrics\n")
        body = generate_latest(self._registry)
        return _response("200 OK", CONTENT_TYPE_LATEST, body, with_body=method == "GET")


def _response(status: str, content_type: str, body: bytes, with_body: bool = True) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join([*head, "", ""]).encode() + (body if with_body else b"")
