"""The api server: what requests share, and its life: recover once the store answers, then watch until the end.

One of several (``replica``) is held while it does not know whether it still leads: it looks, and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import dataclass, field
from typing import Any

from heron_apiserver.core.challenge import Challenges
from heron_apiserver.shell.audit import Audit
from heron_apiserver.shell.package_store import PackageStore
from heron_apiserver.shell.packages import Packages
from heron_apiserver.shell.recovery import recover
from heron_apiserver.shell.request_files import Requests
from heron_apiserver.shell.scheduler_presence import SchedulerPresence
from heron_apiserver.shell.self_metrics import Counters
from heron_apiserver.shell.service import TopologyService
from heron_apiserver.shell.tokens import TokenBook
from heron_control.packaging.requirements import TargetPlatform, this_interpreter
from heron_control.packaging.shipping import LIMITS
from heron_control.packaging.writer import ArchiveLimits
from heron_control.schedulers.scheduler import Scheduler, Watching
from heron_control.submission.submission import ClusterConfig
from heron_control.web.throttle import Throttle
from heron_runtime.state.store import StateStore, StoreError
from heron_runtime.state.topologies import OlderLayout, check_layout

RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 30.0
LOOK_SECONDS = 2.0
STARTING = "starting"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of uploads: bytes as sent, what they may unpack to, how many at a time, seconds for one."""

    package_bytes: int = 512 << 20
    unpacked: ArchiveLimits = field(default_factory=lambda: LIMITS)
    uploads: int = 4
    upload_seconds: float = 900.0
    idle_seconds: float = 30.0


class Api:
    """``start`` and ``stop`` are called on the loop that serves."""

    def __init__(
        self,
        config: ClusterConfig,
        store: StateStore,
        scheduler: Scheduler,
        scheduler_name: str,
        tokens: TokenBook,
        bounds: Bounds | None = None,
        *,
        target: TargetPlatform | None = None,
        advertise: str = "127.0.0.1",
        package_store: PackageStore | None = None,
    ) -> None:
        self.bounds = bounds or Bounds()
        self.tokens = tokens
        self.scheduler_name = scheduler_name
        self.target = target or this_interpreter()
        self._store = store
        self._scheduler = scheduler
        self.packages = Packages(config.home, self.bounds.unpacked, package_store)
        self.service = TopologyService(config, store, scheduler, self.packages)
        self.requests = Requests(config.home)
        self.audit = Audit(config.home / "audit.jsonl")
        self.throttle = Throttle()
        self.challenges = Challenges(secrets.token_bytes(32))
        self.counters = Counters()
        self.uploads = 0
        self._trouble = STARTING
        self._held = ""
        self._presence = SchedulerPresence(self.service, advertise)
        self._task: asyncio.Task[Any] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._may_watch = asyncio.Event()
        self._may_watch.set()

    @property
    def trouble(self) -> str:
        """Why changes are not taken; "" if they are."""
        return self._held or self._trouble

    @property
    def ready(self) -> bool:
        """True once the state store was read and what was left is settled."""
        return not self.trouble

    @property
    def starting(self) -> bool:
        """True until what an earlier life left is settled, or that has failed once."""
        return self._trouble == STARTING

    def hold(self, why: str) -> None:
        """Take no changes, and start nothing again, until ``release``. Looking goes on."""
        self._held = why
        self._may_watch.clear()
        if self._watching is not None:
            self._watching.cancel()

    def release(self) -> None:
        """All is as before ``hold``."""
        self._held = ""
        self._may_watch.set()

    async def start(self) -> None:
        """Begin; does not wait for the store."""
        self.counters.lag.start()
        self._task = asyncio.create_task(self._live(), name="api-server")

    async def stop(self) -> None:
        """End what runs beside the requests. Topologies run on."""
        self.counters.lag.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._presence.close()
        close = getattr(self._scheduler, "close", None)
        if close is not None:
            await asyncio.to_thread(close)
        await asyncio.to_thread(self._store.close)
        self.audit.close()

    async def _live(self) -> None:
        await self._open()
        async with asyncio.TaskGroup() as tasks:
            if isinstance(self._scheduler, Watching):
                tasks.create_task(self._watch(self._scheduler), name="scheduler-watch")
            tasks.create_task(self._recover_and_keep(), name="keep")

    async def _open(self) -> None:
        delay = RETRY_SECONDS
        while True:
            try:
                await asyncio.to_thread(self._store.open)
                return await asyncio.to_thread(check_layout, self._store)
            except StoreError as error:
                older = isinstance(error, OlderLayout)
                self._trouble = f"{error}. {error.cure}" if older else f"the state store does not answer: {error}"
                log.error("%s", self._trouble)
                await asyncio.sleep(delay)
                delay = min(2 * delay, LONGEST_RETRY_SECONDS)

    async def _recover_and_keep(self) -> None:
        recovered = False
        while True:
            try:
                if not recovered:
                    await asyncio.to_thread(recover, self.service, self.requests, self.audit)
                    log.info("ready: %d topologies", len(self.service.launches))
                    recovered = True
                await self._presence.keep()
                self._trouble = ""
            except StoreError as error:
                self._trouble = f"the state store does not answer: {error}"
                log.warning("%s", self._trouble)
            except Exception as error:
                self._trouble = f"fault in the api server: {type(error).__name__}; its log says more"
                log.exception("fault while looking after the topologies")
            self.counters.state(len(self.service.launches), self.ready)
            await asyncio.to_thread(self.audit.settle)
            await asyncio.sleep(LOOK_SECONDS)

    async def _watch(self, scheduler: Watching) -> None:
        """Run the scheduler's watch for ever: whatever ends it, it begins again after a growing pause."""
        delay = RETRY_SECONDS
        while True:
            await self._may_watch.wait()
            began = asyncio.get_running_loop().time()
            self._watching = asyncio.create_task(scheduler.run(), name="scheduler-run")
            try:
                await asyncio.wait([self._watching])
            finally:
                self._watching.cancel()
            if self._watching.cancelled():
                continue  # held
            log.error("the scheduler's watch failed; again in %g s", delay, exc_info=self._watching.exception())
            self.counters.watch_failed()
            if asyncio.get_running_loop().time() - began > LONGEST_RETRY_SECONDS:
                delay = RETRY_SECONDS
            await asyncio.sleep(delay)
            delay = min(2 * delay, LONGEST_RETRY_SECONDS)
