"""Prometheus metrics of an HTTP server at ``/metrics``: requests, event loop, process.

Labels are routes and codes, never values sent by clients.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest

from heron_runtime.process_stats import GARBAGE, LoopLag
from heronry.version import VERSION


class ServerMetrics:
    """Metrics whose names begin with ``prefix``. One registry per server, so several can share a process."""

    def __init__(self, prefix: str) -> None:
        self.registry = CollectorRegistry()
        self.lag = LoopLag()  # must be started and stopped on the serving loop
        self._requests = Counter(
            f"{prefix}_requests_total", "requests answered", ("route", "code"), registry=self.registry
        )
        self._seconds = Histogram(
            f"{prefix}_request_seconds", "time to answer a request", ("route",), registry=self.registry
        )
        self._lag_seconds = Gauge(
            f"{prefix}_event_loop_lag_seconds", "how late the loop came to a timer, at most, since the last scrape",
            registry=self.registry,
        )  # fmt: skip
        garbage = Gauge(f"{prefix}_gc_seconds", "time the garbage collector has taken", registry=self.registry)
        garbage.set_function(lambda: GARBAGE.total_ms / 1000)
        GARBAGE.start()
        ProcessCollector(prefix, registry=self.registry)  # CPU, memory, descriptors
        Info(prefix, "version", registry=self.registry).info({"version": VERSION})

    def request(self, route: str, code: int, seconds: float) -> None:
        """Count a response."""
        self._requests.labels(route, str(code)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """Return the exposition. Called on the loop that serves."""
        self._lag_seconds.set(self.lag.take_ms() / 1000)
        return generate_latest(self.registry)
