"""Binds the port and runs the application until SIGTERM or SIGINT."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs
import uvicorn

from heron_tracker.shell.app import make_app
from heron_tracker.shell.guard import ALWAYS_ALLOWED
from heron_tracker.shell.tracker import Tracker
from heronry.process import set_up_process

STOP_SECONDS = 3
BACKLOG = 256
log = logging.getLogger("heron_tracker")


class StartError(Exception):
    """The tracker cannot begin; the message says why and what to do."""


@dataclass(frozen=True)
class Options:
    """How the tracker is started. Without ``clusters`` it follows ``local`` in the home."""

    host: str = "127.0.0.1"
    port: int = 8888
    clusters: tuple[tuple[str, str], ...] = ()
    home: Path | None = None
    allowed_hosts: tuple[str, ...] = ()
    verbose: bool = False


def store_urls(options: Options) -> dict[str, str]:
    """Cluster → URL of its store. Raises StartError."""
    if options.clusters:
        urls = dict(options.clusters)
        if len(urls) < len(options.clusters):
            raise StartError("two clusters have the same name")
        return urls
    given = os.environ.get("HERONRY_HOME")
    home = options.home or (Path(given).expanduser() if given else Path(platformdirs.user_data_dir("heronry")))
    return {"local": (home.absolute() / "state").as_uri().replace("file:", "files:", 1)}


def bind(host: str, port: int) -> socket.socket:
    """The listening socket. Raises StartError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        raise StartError(
            f"cannot listen on {host}:{port}: {error.strerror or error}. Is another tracker running? Try --port 0."
        ) from error
    return listener


def hosts_of(options: Options) -> list[str]:
    """The host names to answer to: what was given, and the address it listens on unless that is every address."""
    try:
        everywhere = ipaddress.ip_address(options.host).is_unspecified
    except ValueError:
        everywhere = False
    return [*options.allowed_hosts, *([] if everywhere else [options.host])]


def serve(options: Options) -> None:
    """Serve until SIGTERM or SIGINT. Raises StartError."""
    set_up_process("heron_tracker", "INFO")
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    tracker = Tracker(store_urls(options))
    listener = bind(options.host, options.port)
    port = listener.getsockname()[1]
    hosts = hosts_of(options)
    if options.host not in ALWAYS_ALLOWED:
        log.warning("listening beyond this machine: whoever reaches the port reads everything, logs included")
    for name, url in store_urls(options).items():
        log.info("cluster %s: %s", name, url)
    config = uvicorn.Config(
        make_app(tracker, hosts), log_config=None, access_log=options.verbose, server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS, lifespan="on", ws="none", h11_max_incomplete_event_size=64 * 1024,
    )  # fmt: skip
    server = _Server(config, tracker)
    shown = f"[{options.host}]" if ":" in options.host else options.host
    sys.stdout.write(f"http://{shown}:{port}/\n")
    sys.stdout.flush()
    server.run(sockets=[listener])


class _Server(uvicorn.Server):
    """Ends the event streams first, since uvicorn waits for every answer to be complete; a signal is a wish to end,
    after which the process ends by itself, with exit code 0."""

    def __init__(self, config: uvicorn.Config, tracker: Tracker) -> None:
        super().__init__(config)
        self._tracker = tracker

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT stop the server, and are not raised again as uvicorn would."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close what is open."""
        self._tracker.events.close()
        await super().shutdown(sockets)
