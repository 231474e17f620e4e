"""Metrics of the API server itself, besides those common to all servers."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from heron_control.web.serving import ServerMetrics


class ApiServerMetrics(ServerMetrics):
    """Metrics of the API server: uploads, topologies, the scheduler's watch."""

    def __init__(self) -> None:
        super().__init__("heron_apiserver")
        self._uploaded = Counter("heron_apiserver_uploaded_bytes_total", "bytes of packages", registry=self.registry)
        self._uploads = Gauge("heron_apiserver_uploads", "uploads under way", registry=self.registry)
        self._topologies = Gauge("heron_apiserver_topologies", "topologies with a folder", registry=self.registry)
        self._ready = Gauge("heron_apiserver_ready", "1 once the state store has been read", registry=self.registry)
        self._watch = Counter(
            "heron_apiserver_watch_failures_total", "how often the scheduler's watch ended", registry=self.registry
        )

    def upload(self, under_way: int) -> None:
        """Set the number of uploads in progress."""
        self._uploads.set(under_way)

    def uploaded(self, size: int) -> None:
        """Count the bytes of a received package."""
        self._uploaded.inc(size)

    def state(self, topologies: int, ready: bool) -> None:
        """Set the number of topologies and the readiness."""
        self._topologies.set(topologies)
        self._ready.set(ready)

    def watch_failed(self) -> None:
        """Count a restart of the scheduler's watch."""
        self._watch.inc()
