"""Start of the tracker: bind the port and serve until SIGTERM or SIGINT."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

from heron_control.web.guard import ALWAYS_ALLOWED
from heron_control.web.names import hosts_of
from heron_control.web.serving import ConnectionLimits, Server, StartError, bind, config_of, url_of
from heron_runtime.process import set_up_process
from heron_runtime.state import StoreAddress, local_store
from heron_runtime.state.store import StoreError
from heron_runtime.user_home import home_of_user
from heron_tracker.application import make_app
from heron_tracker.login import TokenFile
from heron_tracker.tracker import Tracker

__all__ = ["StartError", "TrackerOptions", "serve"]

STOP_SECONDS = 3
MAX_CONNECTIONS = 512
log = logging.getLogger("heron_tracker")


@dataclass(frozen=True)
class TrackerOptions:
    """Options of the tracker. Without ``clusters`` it follows ``local`` in the home.

    ``home`` also has the folders of the topologies of every cluster.
    """

    host: str = "127.0.0.1"
    port: int = 8888
    clusters: tuple[tuple[str, str], ...] = ()  # name and URL of the store
    credentials: tuple[tuple[str, str], ...] = ()  # name and file of the store's credential
    home: Path | None = None
    allowed_hosts: tuple[str, ...] = ()
    verbose: bool = False
    token_file: Path | None = None
    history: Path | None = None  # folder of histories, if not in the home
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)


def stores(options: TrackerOptions) -> dict[str, StoreAddress]:
    """Return the store address of each cluster. Raises StartError."""
    files = {name: str(Path(file).expanduser().absolute()) for name, file in options.credentials}
    if options.clusters:
        urls = dict(options.clusters)
        if len(urls) < len(options.clusters):
            raise StartError("two clusters have the same name")
        if strangers := sorted(files.keys() - urls.keys()):
            raise StartError(f"store credential for unknown cluster {strangers[0]}; see --cluster")
        return {name: StoreAddress(url, files.get(name, "")) for name, url in urls.items()}
    if files:
        raise StartError("a store credential requires a cluster given with --cluster; that of local is in config.yaml")
    try:
        return {"local": local_store((options.home or home_of_user()).absolute())}
    except StoreError as error:
        raise StartError(str(error)) from error


def serve(options: TrackerOptions) -> None:
    """Serve until SIGTERM or SIGINT. Raises StartError."""
    set_up_process("heron_tracker", "INFO")
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    clusters = stores(options)
    home = (options.home or home_of_user()).absolute()
    tracker = Tracker(clusters, home, history=None if options.history is None else options.history.absolute())
    listener = bind(options.host, options.port, "tracker", options.connections.unread_seconds)
    hosts = hosts_of(options.host, options.allowed_hosts)
    tokens = None if options.token_file is None else TokenFile(options.token_file)
    if options.host not in ALWAYS_ALLOWED and tokens is None:
        log.warning("listening beyond this machine without tokens: every client can read everything, including logs")
    for name, address in clusters.items():
        log.info("cluster %s: %s", name, address.url)
    config = config_of(
        make_app(tracker, hosts, tokens), access_log=options.verbose, stop_seconds=STOP_SECONDS,
        limits=options.connections, limit_concurrency=MAX_CONNECTIONS,
    )  # fmt: skip
    # uvicorn waits for every response, and event streams are endless, so they are ended first.
    server = Server(config, tracker.events.close)
    server.serve_on(listener, url_of(options.host, listener))
