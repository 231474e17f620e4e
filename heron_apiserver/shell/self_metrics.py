"""What the api server counts about itself, for Prometheus. Labels are routes and codes, never what clients send."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from heronry.version import VERSION


class Counters:
    """One registry per api server, so that several may live in one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "heron_apiserver_requests_total", "requests answered", ("route", "code"), registry=self._registry
        )
        self._seconds = Histogram(
            "heron_apiserver_request_seconds", "time to answer a request", ("route",), registry=self._registry
        )
        self._uploaded = Counter("heron_apiserver_uploaded_bytes_total", "bytes of packages", registry=self._registry)
        self._uploads = Gauge("heron_apiserver_uploads", "uploads under way", registry=self._registry)
        self._topologies = Gauge("heron_apiserver_topologies", "topologies with a folder", registry=self._registry)
        self._ready = Gauge("heron_apiserver_ready", "1 once the state store has been read", registry=self._registry)
        self._watch = Counter(
            "heron_apiserver_watch_failures_total", "how often the scheduler's watch ended", registry=self._registry
        )
        Info("heron_apiserver", "version", registry=self._registry).info({"version": VERSION})

    def request(self, route: str, code: int, seconds: float) -> None:
        """A request was answered."""
        self._requests.labels(route, str(code)).inc()
        self._seconds.labels(route).observe(seconds)

    def upload(self, under_way: int) -> None:
        """How many uploads are under way."""
        self._uploads.set(under_way)

    def uploaded(self, size: int) -> None:
        """A package of so many bytes came."""
        self._uploaded.inc(size)

    def state(self, topologies: int, ready: bool) -> None:
        """What there is."""
        self._topologies.set(topologies)
        self._ready.set(ready)

    def watch_failed(self) -> None:
        """The scheduler's watch ended and is started again."""
        self._watch.inc()

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self._registry)
