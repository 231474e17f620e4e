"""ApiServerOptions, home, lock, token files; then binds the port and serves until SIGTERM or SIGINT.

A single api server has its home for itself. With ``--elect`` several share one, and one of them leads (``replica``).
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
from heron_control.schedulers.scheduler import SchedulerContext, SchedulerMaker
from heron_control.submission.submission import ClusterConfig
from heron_control.web.names import hosts_of, is_loopback
from heron_control.web.serving import Server, StartError, bind, config_of, url_of
from heron_runtime.extensions import SCHEDULERS, ExtensionError
from heron_runtime.failures import Failure, Unavailable
from heron_runtime.model.ids import is_safe_name
from heron_runtime.process import set_up_process
from heron_runtime.state import open_address, paths
from heron_runtime.state.fenced import fenced
from heron_runtime.state.local import StoreAddress
from heron_runtime.state.store import StateStore, StoreError

STOP_SECONDS = 10
MAX_CONNECTIONS = 512
LOCAL = "local"
log = logging.getLogger("heron_apiserver")


@dataclass(frozen=True)
class ApiServerOptions:
    """How the api server is started. ``public``: it may listen where other machines reach it."""

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
    bounds: UploadLimits = field(default_factory=UploadLimits)
    quota: Quota = field(default_factory=Quota)
    elect: bool = False
    packages: str = field(default="", repr=False)  # by default a folder in the home; may hold credentials
    packages_options: str = ""
    verbose: bool = False


def serve(options: ApiServerOptions) -> None:
    """Serve until SIGTERM or SIGINT. Raises StartError."""
    set_up_process("heron_apiserver", "INFO")
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    if not is_loopback(options.host) and not options.public:
        raise StartError(
            f"{options.host} can be reached from other machines, and tokens would travel there in clear. Listen on "
            "127.0.0.1 behind a proxy with TLS, or say --public if something else keeps strangers away"
        )
    os.umask(0o077)
    home = prepare_home(options.home)
    lock = HostLock(home / "heron_apiserver.lock")
    if not lock.acquire("heron_apiserver", shared=options.elect):
        raise StartError(
            f"another api server works in {home}; give each a --home of its own, or start all of them with --elect"
        )
    config = cluster_config(options, home)
    store, make = parts_of(options, config)
    place = package_place(options)
    single = None if options.elect else lead(options, config, store, make, place)
    listener = bind(options.host, options.port, "api server")
    url = url_of(options.host, listener)
    app: Any = single[1] if single else replica(options, config, store, make, place, listener.getsockname()[1])
    served = config_of(app, access_log=options.verbose, stop_seconds=STOP_SECONDS, limit_concurrency=MAX_CONNECTIONS)
    log.info("log in with: heron login %s --api %s", config.cluster, url.rstrip("/"))
    Server(served).serve_on(listener, url)


def lead(
    options: ApiServerOptions, config: ClusterConfig, store: StateStore, make: SchedulerMaker, place: PackageLocation
) -> tuple[ApiServer, FastAPI]:
    """What works in the home from now on. Raises StartError, SchedulerError."""
    tokens = TokenBook(config.home)
    scheduler = make(SchedulerContext(config.cluster, store, os.environ, config.homes))
    api = ApiServer(
        config, store, scheduler, options.scheduler, tokens, options.bounds,
        advertise=options.advertise or options.host, package_store=open_package_store(place, config.home, home_id),
    )  # fmt: skip
    _say_how(config.home, made=bool(tokens.made))
    return api, make_app(api, hosts_of(options.host, options.allowed_hosts))


def replica(
    options: ApiServerOptions,
    config: ClusterConfig,
    store: StateStore,
    make: SchedulerMaker,
    place: PackageLocation,
    listens: int,
) -> Replica:
    """One of several. Raises StartError."""
    node = paths.api_server(config.cluster)
    try:
        mine = LeaderRecord.of(config.home, f"{options.advertise or options.host}:{listens}")
    except OSError as error:
        raise StartError(f"{config.home}: {error.strerror}") from error
    return Replica(store, node, mine, partial(lead, options, config, fenced(store, node), make, place), _end)


def _end(why: str) -> None:
    """At once: what is under way in other threads must not go on."""
    log.error("%s; ending", why)
    logging.shutdown()
    os._exit(Unavailable.exit_code)


def prepare_home(home: Path) -> Path:
    """Make the folder (0700). Raises StartError."""
    home = home.expanduser().absolute()
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = home.stat()
        if found.st_uid != os.geteuid():
            raise StartError(f"{home} belongs to another user; give a --home of your own")
        home.chmod(0o700)
    except OSError as error:
        raise StartError(f"{home}: {error.strerror}; give another --home") from error
    return home


def cluster_config(options: ApiServerOptions, home: Path) -> ClusterConfig:
    """Where it works. Raises StartError."""
    cluster = options.cluster or options.scheduler
    if not is_safe_name(cluster):
        raise StartError(f"{cluster!r} is no name of a cluster; use letters, digits, '_', '-' and '.'")
    state_url = options.state_url or (home / "state").as_uri().replace("file:", "files:", 1)
    return ClusterConfig(home, cluster, StoreAddress(state_url, options.state_credential), quota=options.quota)


def parts_of(options: ApiServerOptions, config: ClusterConfig) -> tuple[StateStore, SchedulerMaker]:
    """The state store, not yet open, and what makes the scheduler. Raises StartError."""
    try:
        store = open_address(config.store)
    except StoreError as error:
        raise StartError(str(error)) from error
    try:
        return store, SCHEDULERS.load(options.scheduler)
    except ExtensionError as error:
        raise StartError(error.line()) from error


def package_place(options: ApiServerOptions) -> PackageLocation:
    """Where packages are kept, with the libraries it takes. Raises StartError."""
    try:
        place = load_package_location(options.packages, options.packages_options)
    except Failure as error:
        raise StartError(f"{error}. {error.cure}" if error.cure else str(error)) from None
    if place != PackageLocation():
        log.info("packages are kept in %s", place.shown)
    return place


def _say_how(home: Path, *, made: bool) -> None:
    """Where the token is; the token itself never goes to a log."""
    token = home / INITIAL_TOKEN_FILES[CallerRole.ADMIN]
    if made:
        log.info("drew the first tokens of this api server: %s, and read-token beside it to look only", token)
    if token.exists():
        log.info("the first token is in %s; remove that file once you are logged in: it holds without it", token)
