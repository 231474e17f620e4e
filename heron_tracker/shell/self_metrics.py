"""What the tracker counts about itself, for Prometheus at ``/metrics``. Labels are routes, never what clients send."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest

from heronry.process_stats import GARBAGE, LoopLag
from heronry.version import VERSION


class Counters:
    """One registry per tracker, so that several may live in one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "heron_tracker_requests_total", "requests answered", ("route", "code"), registry=self._registry
        )
        self._seconds = Histogram(
            "heron_tracker_request_seconds", "time to answer a request", ("route",), registry=self._registry
        )
        self._failed_calls = Counter(
            "heron_tracker_failed_calls_total", "calls to processes of topologies that got no answer",
            ("service", "method"), registry=self._registry,
        )  # fmt: skip
        self._topologies = Gauge(
            "heron_tracker_topologies", "topologies in the state store", ("cluster",), registry=self._registry
        )
        self._stale = Gauge(
            "heron_tracker_cluster_stale", "1 while the state store does not answer", ("cluster",),
            registry=self._registry,
        )  # fmt: skip
        self._listeners = Gauge("heron_tracker_event_listeners", "open event streams", registry=self._registry)
        self.lag = LoopLag()
        self._lag_seconds = Gauge(
            "heron_tracker_event_loop_lag_seconds", "how late the loop came to a timer, at most, since the last scrape",
            registry=self._registry,
        )  # fmt: skip
        garbage = Gauge(
            "heron_tracker_gc_seconds", "time the garbage collector has taken", registry=self._registry
        )  # fmt: skip
        garbage.set_function(lambda: GARBAGE.total_ms / 1000)
        GARBAGE.start()
        ProcessCollector("heron_tracker", registry=self._registry)  # CPU, memory, descriptors
        Info("heron_tracker", "version of the tracker", registry=self._registry).info({"version": VERSION})

    def request(self, route: str, code: int, seconds: float) -> None:
        """A request was answered."""
        self._requests.labels(route, str(code)).inc()
        self._seconds.labels(route).observe(seconds)

    def call_failed(self, service: str, method: str) -> None:
        """A process did not answer."""
        self._failed_calls.labels(service, method).inc()

    def cluster(self, name: str, topologies: int, stale: bool) -> None:
        """What is known of a cluster."""
        self._topologies.labels(name).set(topologies)
        self._stale.labels(name).set(stale)

    def listeners(self, count: int) -> None:
        """How many event streams are open."""
        self._listeners.set(count)

    def text(self) -> bytes:
        """The exposition. To be called on the loop, once the tracker has started."""
        self._lag_seconds.set(self.lag.take_ms() / 1000)
        return generate_latest(self._registry)
