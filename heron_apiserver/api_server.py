"""Resources that all requests of an API server share, its readiness and background work, and its own metrics.

One of several API servers (``replica``) is paused while it does not know whether it still leads: it answers reads and
refuses changes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import Counter, Gauge

from heron_apiserver.access import DownloadNonces
from heron_apiserver.audit import AuditLog
from heron_apiserver.package_store import PackageStore
from heron_apiserver.packages import PackageRepository
from heron_apiserver.recovery import recover
from heron_apiserver.request_log import RequestLog
from heron_apiserver.scheduler_endpoints import SchedulerEndpoints
from heron_apiserver.tokens import TokenBook
from heron_apiserver.topologies import PlacedTopologies
from heron_control.packaging.requirements import TargetPlatform, this_interpreter
from heron_control.packaging.shipping import LIMITS
from heron_control.packaging.writer import ArchiveLimits
from heron_control.schedulers.known_store import confirm_store
from heron_control.schedulers.scheduler import Scheduler, WatchingScheduler
from heron_control.submission.submission import ClusterConfig
from heron_control.web.serving import ServerMetrics
from heron_control.web.tokens import Throttle
from heron_runtime.state.store import StateStore, StoreError, StoreReplaced, with_hint
from heron_runtime.state.topologies import OlderLayout, check_layout


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """Limits of uploads.

    Attributes:
        package_bytes: largest package as sent, compressed.
        unpacked: limits of the unpacked package.
        uploads: uploads at a time.
        upload_seconds: longest duration of one upload.
        idle_seconds: longest pause within an upload.
    """

    package_bytes: int = 512 << 20
    unpacked: ArchiveLimits = field(default_factory=lambda: LIMITS)
    uploads: int = 4
    upload_seconds: float = 900.0
    idle_seconds: float = 30.0


class ApiServer:
    """Resources of an API server. ``start`` and ``stop`` run on the event loop that serves."""

    def __init__(
        self,
        config: ClusterConfig,
        store: StateStore,
        scheduler: Scheduler,
        scheduler_name: str,
        tokens: TokenBook,
        upload_limits: UploadLimits | None = None,
        *,
        target: TargetPlatform | None = None,
        advertise: str = "127.0.0.1",
        package_store: PackageStore | None = None,
    ) -> None:
        self.upload_limits = upload_limits or UploadLimits()
        self.tokens = tokens
        self.scheduler_name = scheduler_name
        self.target = target or this_interpreter()
        self.packages = PackageRepository(config.home, self.upload_limits.unpacked, package_store)
        self.topologies = PlacedTopologies(config, store, scheduler, self.packages)
        self.request_log = RequestLog(config.home)
        self.audit = AuditLog(config.home / "audit.jsonl")
        self.throttle = Throttle()
        self.download_nonces = DownloadNonces(secrets.token_bytes(32))
        self.metrics = ApiServerMetrics()
        self.uploads = 0
        self.maintenance = Maintenance(
            store, scheduler, self.topologies, self.request_log, self.audit, self.metrics, advertise
        )

    async def start(self) -> None:
        """Start the background tasks without waiting for the store."""
        self.metrics.lag.start()
        await self.maintenance.start()

    async def stop(self) -> None:
        """Stop the background tasks. Topologies keep running."""
        self.metrics.lag.stop()
        await self.maintenance.stop()
        self.audit.close()


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


RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 30.0
LOOK_SECONDS = 2.0
STARTING = "starting"
log = logging.getLogger(__name__)


class Maintenance:
    """Background tasks and readiness of an API server. ``start`` and ``stop`` run on the event loop that serves.

    Args:
        store: state store, opened by ``start``.
        scheduler: scheduler of the containers, which may have a watch to run.
        topologies: topologies of the cluster.
        request_log: answers of earlier requests, settled by the recovery.
        audit: audit log, flushed periodically.
        metrics: metrics of the server.
        advertise: host under which other processes reach this one.
    """

    def __init__(
        self,
        store: StateStore,
        scheduler: Scheduler,
        topologies: PlacedTopologies,
        request_log: RequestLog,
        audit: AuditLog,
        metrics: ApiServerMetrics,
        advertise: str,
    ) -> None:
        self._store = store
        self._scheduler = scheduler
        self._topologies = topologies
        self._request_log = request_log
        self._audit = audit
        self._metrics = metrics
        self._endpoints = SchedulerEndpoints(topologies, advertise)
        self._trouble = STARTING
        self._paused = ""
        self._task: asyncio.Task[Any] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._watch_allowed = asyncio.Event()
        self._watch_allowed.set()

    @property
    def trouble(self) -> str:
        """Return the reason why changes are refused, or an empty string."""
        return self._paused or self._trouble

    @property
    def ready(self) -> bool:
        """Return True once the store has been read and recovery has finished."""
        return not self.trouble

    @property
    def starting(self) -> bool:
        """Return True until recovery has finished or failed once."""
        return self._trouble == STARTING

    def pause(self, why: str) -> None:
        """Refuse changes and start no containers until ``resume``. Reads are still answered."""
        self._paused = why
        self._watch_allowed.clear()
        if self._watching is not None:
            self._watching.cancel()

    def resume(self) -> None:
        """End a pause."""
        self._paused = ""
        self._watch_allowed.set()

    async def start(self) -> None:
        """Start the background tasks without waiting for the store."""
        self._task = asyncio.create_task(self._live(), name="api-server")

    async def stop(self) -> None:
        """Stop the background tasks, the scheduler and the store. Topologies keep running."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._endpoints.close()
        close = getattr(self._scheduler, "close", None)
        if close is not None:
            await asyncio.to_thread(close)
        await asyncio.to_thread(self._store.close)

    async def _live(self) -> None:
        await self._open()
        async with asyncio.TaskGroup() as tasks:
            if isinstance(self._scheduler, WatchingScheduler):
                tasks.create_task(self._watch(self._scheduler), name="scheduler-watch")
            tasks.create_task(self._recover_and_maintain(), name="maintain")

    async def _open(self) -> None:
        delay = RETRY_SECONDS
        while True:
            try:
                await asyncio.to_thread(self._store.open)
                await asyncio.to_thread(check_layout, self._store)
                return await self._confirm_store()
            except StoreError as error:
                self._trouble = _describe(error)
                log.error("%s", self._trouble)
                await asyncio.sleep(delay)
                delay = min(2 * delay, LONGEST_RETRY_SECONDS)

    async def _confirm_store(self) -> None:
        await asyncio.to_thread(confirm_store, self._store, self._topologies.config.home)

    async def _recover_and_maintain(self) -> None:
        recovered = False
        while True:
            try:
                await self._confirm_store()
                if not recovered:
                    await asyncio.to_thread(recover, self._topologies, self._request_log, self._audit)
                    log.info("ready: %d topologies", len(self._topologies.launches))
                    recovered = True
                await self._endpoints.refresh()
                self._trouble = ""
            except StoreError as error:
                self._trouble = _describe(error)
                log.warning("%s", self._trouble)
            except Exception as error:
                self._trouble = f"internal error of the API server: {type(error).__name__}; see its log"
                log.exception("failure while maintaining the topologies")
            self._metrics.state(len(self._topologies.launches), self.ready)
            await asyncio.to_thread(self._topologies.forget_expired)
            await asyncio.to_thread(self._audit.flush_repeats)
            await asyncio.sleep(LOOK_SECONDS)

    async def _watch(self, scheduler: WatchingScheduler) -> None:
        """Run the scheduler's watch indefinitely and restart it after a growing delay when it ends."""
        delay = RETRY_SECONDS
        while True:
            await self._watch_allowed.wait()
            began = asyncio.get_running_loop().time()
            self._watching = asyncio.create_task(scheduler.run(), name="scheduler-run")
            try:
                await asyncio.wait([self._watching])
            finally:
                self._watching.cancel()
            if self._watching.cancelled():
                continue  # paused
            log.error("the scheduler's watch failed; restarting in %g s", delay, exc_info=self._watching.exception())
            self._metrics.watch_failed()
            if asyncio.get_running_loop().time() - began > LONGEST_RETRY_SECONDS:
                delay = RETRY_SECONDS
            await asyncio.sleep(delay)
            delay = min(2 * delay, LONGEST_RETRY_SECONDS)


def _describe(error: StoreError) -> str:
    """Return the reason why changes are refused."""
    if isinstance(error, (OlderLayout, StoreReplaced)):
        return with_hint(error)
    return f"the state store does not answer: {error}"
