"""Readiness and background work of an API server: open the store, recover, then look after the topologies.

One of several API servers (``replica``) is paused while it does not know whether it still leads: it answers reads and
refuses changes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from heron_apiserver.audit import AuditLog
from heron_apiserver.recovery import recover
from heron_apiserver.request_log import RequestLog
from heron_apiserver.scheduler_endpoints import SchedulerEndpoints
from heron_apiserver.self_metrics import ApiServerMetrics
from heron_apiserver.topologies import PlacedTopologies
from heron_control.schedulers.known_store import confirm_store
from heron_control.schedulers.scheduler import Scheduler, Watching
from heron_runtime.state.store import StateStore, StoreError, StoreReplaced, with_hint
from heron_runtime.state.topologies import OlderLayout, check_layout

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
            if isinstance(self._scheduler, Watching):
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
            await asyncio.to_thread(self._audit.flush_repeats)
            await asyncio.sleep(LOOK_SECONDS)

    async def _watch(self, scheduler: Watching) -> None:
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
