"""Start of the API server: options, home, lock and tokens, then serve until SIGTERM or SIGINT.

A single API server owns its home exclusively. With ``--elect`` several share one, and one of them leads
(``replica``).
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from heron_apiserver.access import CallerRole
from heron_apiserver.api_server import ApiServer, UploadLimits
from heron_apiserver.application import make_app
from heron_apiserver.package_store import PackageLocation, load_package_location, open_package_store
from heron_apiserver.replica import LeaderRecord, Replica, home_id
from heron_apiserver.tokens import INITIAL_TOKEN_FILES, TokenBook
from heron_control.schedulers.grants import Quota
from heron_control.schedulers.identity import HostLock
from heron_control.schedulers.known_store import known_store_id
from heron_control.schedulers.scheduler import SchedulerContext, SchedulerFactory
from heron_control.submission.submission import ClusterConfig
from heron_control.web.names import hosts_of, is_loopback
from heron_control.web.serving import ConnectionLimits, Server, StartError, bind, config_of, url_of
from heron_runtime.extensions import SCHEDULERS, ExtensionError
from heron_runtime.failures import Failure, Unavailable
from heron_runtime.model.ids import is_safe_name
from heron_runtime.process import set_up_process
from heron_runtime.state import StoreAddress, open_address, paths
from heron_runtime.state.store import StateStore, StoreError
from heron_runtime.state.wrappers import fenced

STOP_SECONDS = 10
MAX_CONNECTIONS = 512
LOCAL = "local"
log = logging.getLogger("heron_apiserver")


@dataclass(frozen=True)
class ApiServerOptions:
    """Command-line options. ``public`` allows an address that other machines reach."""

    home: Path
    host: str = "127.0.0.1"
    port: int = 9000
    scheduler: str = LOCAL
    cluster: str = ""  # by default named after the scheduler
    state_url: str = ""  # by default the files store in the home
    state_credential: str = ""
    public: bool = False
    allowed_hosts: tuple[str, ...] = ()
    advertise: str = ""
    upload_limits: UploadLimits = field(default_factory=UploadLimits)
    quota: Quota = field(default_factory=Quota)
    elect: bool = False
    packages: str = field(default="", repr=False)  # by default a folder in the home; may hold credentials
    packages_options: str = ""
    verbose: bool = False
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)


def serve(options: ApiServerOptions) -> None:
    """Serve until SIGTERM or SIGINT. Raises StartError."""
    set_up_process("heron_apiserver", "INFO")
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    if not is_loopback(options.host) and not options.public:
        raise StartError(
            f"{options.host} can be reached from other machines, which would send tokens in clear text. Listen on "
            "127.0.0.1 behind a TLS proxy, or pass --public if access is restricted by other means"
        )
    os.umask(0o077)
    home = prepare_home(options.home)
    lock = HostLock(home / "heron_apiserver.lock")
    if not lock.acquire("heron_apiserver", shared=options.elect):
        raise StartError(
            f"{home} is in use by another API server; give each its own --home, or start all of them with --elect"
        )
    config = cluster_config(options, home)
    store, make = store_and_scheduler(options, config)
    place = package_location(options)
    single = None if options.elect else make_server(options, config, store, make, place)
    listener = bind(options.host, options.port, "API server", options.connections.unread_seconds)
    url = url_of(options.host, listener)
    app: Any = single[1] if single else make_replica(options, config, store, make, place, listener.getsockname()[1])
    served = config_of(
        app, access_log=options.verbose, stop_seconds=STOP_SECONDS, limits=options.connections,
        limit_concurrency=MAX_CONNECTIONS,
    )  # fmt: skip
    log.info("log in with: heron login %s --api %s", config.cluster, url.rstrip("/"))
    Server(served).serve_on(listener, url)


def make_server(
    options: ApiServerOptions, config: ClusterConfig, store: StateStore, make: SchedulerFactory, place: PackageLocation
) -> tuple[ApiServer, FastAPI]:
    """Return the API server that owns the home from now on. Raises StartError, SchedulerError."""
    tokens = TokenBook(config.home)
    scheduler = make(SchedulerContext(config.cluster, store, os.environ, config.homes))
    api = ApiServer(
        config, store, scheduler, options.scheduler, tokens, options.upload_limits,
        advertise=options.advertise or options.host, package_store=open_package_store(place, config.home, home_id),
    )  # fmt: skip
    _log_token_files(config.home, made=bool(tokens.created_files))
    return api, make_app(api, hosts_of(options.host, options.allowed_hosts))


def make_replica(
    options: ApiServerOptions,
    config: ClusterConfig,
    store: StateStore,
    make: SchedulerFactory,
    place: PackageLocation,
    listens: int,
) -> Replica:
    """Return one of several API servers. Raises StartError."""
    node = paths.api_server(config.cluster)
    try:
        mine = LeaderRecord.create(config.home, f"{options.advertise or options.host}:{listens}")
    except OSError as error:
        raise StartError(f"{config.home}: {error.strerror}") from error
    return Replica(store, node, mine, partial(make_server, options, config, fenced(store, node), make, place), _end)


def _end(why: str) -> None:
    """End the process immediately, so that no other thread continues."""
    log.error("%s; ending", why)
    logging.shutdown()
    os._exit(Unavailable.exit_code)


def prepare_home(home: Path) -> Path:
    """Create the home folder with mode 0700. Raises StartError."""
    home = home.expanduser().absolute()
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = home.stat()
        if status.st_uid != os.geteuid():
            raise StartError(f"{home} belongs to another user; choose another --home")
        home.chmod(0o700)
    except OSError as error:
        raise StartError(f"{home}: {error.strerror}; choose another --home") from error
    return home


def cluster_config(options: ApiServerOptions, home: Path) -> ClusterConfig:
    """Return the configuration of the cluster. Raises StartError."""
    cluster = options.cluster or options.scheduler
    if not is_safe_name(cluster):
        raise StartError(f"invalid cluster name {cluster!r}: use letters, digits, '_', '-' and '.'")
    state_url = options.state_url or (home / "state").as_uri().replace("file:", "files:", 1)
    return ClusterConfig(home, cluster, StoreAddress(state_url, options.state_credential), quota=options.quota)


def store_and_scheduler(options: ApiServerOptions, config: ClusterConfig) -> tuple[StateStore, SchedulerFactory]:
    """Return the unopened state store and the factory of the scheduler. Raises StartError."""
    try:
        store = open_address(config.store, create=not known_store_id(config.home))
    except StoreError as error:
        raise StartError(str(error)) from error
    try:
        return store, SCHEDULERS.load(options.scheduler)
    except ExtensionError as error:
        raise StartError(error.line()) from error


def package_location(options: ApiServerOptions) -> PackageLocation:
    """Return the package location and check its libraries. Raises StartError."""
    try:
        place = load_package_location(options.packages, options.packages_options)
    except Failure as error:
        raise StartError(f"{error}. {error.cure}" if error.cure else str(error)) from None
    if place != PackageLocation():
        log.info("packages are stored in %s", place.display_name)
    return place


def _log_token_files(home: Path, *, made: bool) -> None:
    """Log where the initial token is. The token itself is never logged."""
    token = home / INITIAL_TOKEN_FILES[CallerRole.ADMIN]
    if made:
        log.info("created the initial tokens: %s, and read-token beside it for read access", token)
    if token.exists():
        log.info("the initial token is in %s; delete the file after login, the token stays valid", token)
