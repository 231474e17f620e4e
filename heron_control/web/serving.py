"""HTTP server of an application: bind a port and serve until SIGTERM or SIGINT, which exit with code 0.

It parses HTTP/1.1 strictly, and offers Prometheus metrics of itself at ``/metrics``.

uvicorn does not limit the time for the head of a request. Here it is HEAD_SECONDS, for every request on every
connection, so that a few slow clients cannot hold all connections. The unread rest of a body has the same limit.
``ConnectionLimits`` bounds the connections of one address and the time in which an answer has to be read.

If a request can be read in two ways, a proxy in front may read it differently and pass a second request that it has not
seen. h11 accepts what older specifications allow: ``Content-Length`` together with ``Transfer-Encoding``, lines that
end without CR, continued header lines. Each of these is refused with 400.

Labels of the metrics are routes and codes, never values sent by clients.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import h11
import uvicorn
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest
from uvicorn.protocols.http.h11_impl import H11Protocol

from heron_runtime.failures import Failure, Unavailable
from heron_runtime.process_stats import GARBAGE, LoopLag
from heronry.version import VERSION

BACKLOG = 256
HEAD_SECONDS = 15.0
UNREAD_SECONDS = 60.0  # a client that reads nothing of an answer for this long is disconnected
MAX_HEAD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of connections. A proxy counts as one address. 0 connections: no limit.

    ``unread_seconds`` bounds the time without progress: the kernel sees a client that acknowledges nothing, the server
    one that reads only drops of an answer.
    """

    per_address: int = 256
    unread_seconds: float = UNREAD_SECONDS


class StartError(Unavailable):
    """Raised if the server cannot start; the message gives cause and remedy."""


def port(text: str) -> int:
    """Parse a port of the command line.

    Raises:
        ArgumentTypeError: The text is not a port.
    """
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"invalid port {text!r}: use 0 to 65535")
    return int(text)


def exit_code(serve: Callable[[], None], who: str) -> int:
    """Serve until the end; log why a server cannot start."""
    try:
        serve()
    except Failure as error:
        logging.getLogger(who).error("%s", f"{error}. {error.cure}" if error.cure else error)
        return error.exit_code
    return 0


def bind(host: str, port: int, who: str, unread_seconds: float = UNREAD_SECONDS) -> socket.socket:
    """Return the listening socket.

    The kernel ends connections, which inherit its options, if the client acknowledges nothing for ``unread_seconds``.

    Raises:
        StartError: The port is taken, perhaps by another ``who``, or the address is invalid.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(unread_seconds * 1000))
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        raise StartError(
            f"cannot listen on {host}:{port}: {error.strerror or error}. Is another {who} running? Try --port 0."
        ) from error
    return listener


def url_of(host: str, listener: socket.socket) -> str:
    """Return the URL of the listener for users."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}/"


class LimitedConfig(uvicorn.Config):
    """Settings of uvicorn with limits of connections."""

    limits = ConnectionLimits()


def config_of(
    app: Any, *, access_log: bool, stop_seconds: int, limits: ConnectionLimits | None = None, **more: Any
) -> LimitedConfig:
    """Return uvicorn's settings, shared by all servers."""
    config = LimitedConfig(
        app, log_config=None, access_log=access_log, server_header=False, timeout_graceful_shutdown=stop_seconds,
        lifespan="on", ws="none", http=ImpatientProtocol, h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        proxy_headers=False, **more,  # a client can set X-Forwarded-For to any value
    )  # fmt: skip
    config.limits = limits or config.limits
    return config


class Server(uvicorn.Server):
    """Server that stops on a signal; ``closing`` is called first to end long-lived responses."""

    def __init__(self, config: uvicorn.Config, closing: Callable[[], None] = lambda: None) -> None:
        super().__init__(config)
        self._closing = closing

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGTERM and SIGINT, without raising them again as uvicorn would."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def serve_on(self, listener: socket.socket, url: str) -> None:
        """Print the address and serve. Signals are handled from before that line on."""
        with self.capture_signals():
            sys.stdout.write(url + "\n")
            sys.stdout.flush()
            self.run(sockets=[listener])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close all connections."""
        self._closing()
        await super().shutdown(sockets)


REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class ImpatientProtocol(H11Protocol):
    """HTTP/1.1 protocol that closes connections of slow clients, and those above the limit of their address."""

    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = StrictConnection(h11.SERVER, MAX_HEAD_BYTES)
        self._limits = self.config.limits if isinstance(self.config, LimitedConfig) else ConnectionLimits()

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request, unless the client's address has too many connections."""
        address = _address(transport)
        others = sum(1 for other in self.connections if _address(other.transport) == address)
        if address and 0 < self._limits.per_address <= others:
            self.transport = transport
            transport.write(REFUSAL)
            transport.close()
            return
        super().connection_made(transport)
        self._wait()

    def pause_writing(self) -> None:
        """Close the connection unless the client reads enough of the answer in time."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self._limits.unread_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop waiting for the client to read."""
        self._has_read()
        super().resume_writing()

    def _has_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def data_received(self, data: bytes) -> None:
        """Stop waiting when a head is complete; wait again when the next one begins."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._enough()
        elif self._late is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._enough()
        self._has_read()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._late = self.loop.call_later(HEAD_SECONDS, self._close)

    def _enough(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _close(self) -> None:
        self._late = None
        if not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()


def _address(transport: Any) -> str:
    """Return the address of the client, "" if it is unknown."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if peer else ""


_LOOSE = re.compile(rb"(?<!\r)\n|\r(?!\n)|\n[ \t]")  # a line that ends by LF or CR alone, or a folded line


class StrictConnection(h11.Connection):
    """Server side of a connection."""

    def next_event(self) -> Any:
        """Return h11's next event.

        Raises:
            RemoteProtocolError: The head of the request is ambiguous.
        """
        if self.their_state is not h11.IDLE:
            return super().next_event()
        before = self.trailing_data[0]
        event = super().next_event()
        if isinstance(event, h11.Request):
            head = before[: len(before) - len(self.trailing_data[0])]
            names = [name for name, _ in event.headers]
            if _LOOSE.search(head):
                raise h11.RemoteProtocolError("header lines end with CR LF, and none goes on in the next")
            if b"transfer-encoding" in names and b"content-length" in names:
                raise h11.RemoteProtocolError("a request has a Content-Length or a Transfer-Encoding, not both")
        return event


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
