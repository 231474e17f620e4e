"""Metrics of the tracker itself, besides those common to all servers."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from heron_control.web.serving import ServerMetrics


class TrackerMetrics(ServerMetrics):
    """Metrics of clusters, calls to processes of topologies, and event streams."""

    def __init__(self) -> None:
        super().__init__("heron_tracker")
        self._failed_calls = Counter(
            "heron_tracker_failed_calls_total", "calls to processes of topologies that got no answer",
            ("service", "method"), registry=self.registry,
        )  # fmt: skip
        self._topologies = Gauge(
            "heron_tracker_topologies", "topologies in the state store", ("cluster",), registry=self.registry
        )
        self._stale = Gauge(
            "heron_tracker_cluster_stale", "1 while the state store does not answer", ("cluster",),
            registry=self.registry,
        )  # fmt: skip
        self._listeners = Gauge("heron_tracker_event_listeners", "open event streams", registry=self.registry)

    def call_failed(self, service: str, method: str) -> None:
        """Count a call without an answer."""
        self._failed_calls.labels(service, method).inc()

    def cluster(self, name: str, topologies: int, stale: bool) -> None:
        """Set the state of a cluster."""
        self._topologies.labels(name).set(topologies)
        self._stale.labels(name).set(stale)

    def listeners(self, count: int) -> None:
        """Set the number of open event streams."""
        self._listeners.set(count)
