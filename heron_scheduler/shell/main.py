"""Start of heron_scheduler: lock, node in the store, adoption, plan; then the watch; and the end after a kill."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from heron_control.schedulers.identity import HostLock, is_held, last_holder, process_title, scheduler_lock
from heron_control.schedulers.killed import is_killed
from heron_control.schedulers.log_files import OwnLog
from heron_control.schedulers.presence import Presence
from heron_control.schedulers.runtime import remove_runtime_dir
from heron_control.schedulers.scheduler import SchedulerError
from heron_control.schedulers.slurm_node import is_replaced
from heron_control.schedulers.slurm_plan import SLURM
from heron_runtime import cgroups
from heron_runtime.commands import raise_descriptor_limit
from heron_runtime.failures import Failure
from heron_runtime.launch import Launch
from heron_runtime.model.containers import containers_of
from heron_runtime.model.ids import MASTER_CONTAINER
from heron_runtime.model.records import SchedulerLocation
from heron_runtime.model.settings import Keys, setting
from heron_runtime.process import parse_arguments, set_up_process, stop_on_signals
from heron_runtime.state import paths, store_of
from heron_runtime.state.readings import decoded
from heron_runtime.state.remembering import RememberingStore
from heron_runtime.state.store import StateStore, StoreError
from heron_runtime.telemetry.reporter import Reporter
from heron_runtime.wire import message_codecs
from heron_scheduler.shell.adoption import Found
from heron_scheduler.shell.ground import Ground, LocalGround
from heron_scheduler.shell.metrics import SchedulerMetrics
from heron_scheduler.shell.scheduler import ContainersShell
from heron_scheduler.shell.service import serve

OBSERVE_SECONDS = 1.0
LOCK_WAIT_SECONDS = 120.0
AWAY_LOG_EVERY = 30
EXIT_LEFT = 75  # the topology goes on: whoever started us starts the next one
log = logging.getLogger(__name__)


def main() -> None:
    """``python -m heron_scheduler --launch FILE``."""
    arguments, _ = parse_arguments("heron_scheduler")
    launch = arguments.launch
    cgroups.leave()  # of container 0, or of the topology whose user code has submitted this one
    own_log = OwnLog.of(launch, "heron_scheduler")
    own_log.take()
    title = process_title(launch.topology, "heron_scheduler")
    set_up_process(title, setting(launch.settings, Keys.HERON_LOGGING_LEVEL))
    raise_descriptor_limit()
    ground: Callable[[], Ground] = partial(LocalGround, launch, arguments.launch_file.resolve())
    if setting(launch.settings, Keys.HERON_SCHEDULER) == SLURM:
        from heron_scheduler.shell import slurm_ground  # here, since the local cluster needs none of it

        if is_replaced(launch):
            sys.exit(0)  # the job runs anew elsewhere, and whoever is left of this run ends, too
        try:
            launch = slurm_ground.settle_scheduler(launch)
        except (Failure, OSError) as error:
            log.error("cannot work on this node: %s", error)
            sys.exit(1)
        ground = partial(slurm_ground.SlurmGround, launch, arguments.launch_file.resolve())
    elif not take_lock(launch):
        sys.exit(0)
    sys.exit(asyncio.run(Scheduler(launch, ground(), own_log).run()))


def take_lock(launch: Launch) -> bool:
    """Be the only scheduler of this topology on this host; False if it has one already.

    The scheduler of an earlier submission of the same name may still be clearing up: it is waited for.
    """
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    path = scheduler_lock(launch.runtime_dir)
    while time.monotonic() < deadline:
        os.makedirs(launch.runtime_dir, mode=0o700, exist_ok=True)
        try:
            if HostLock(path).acquire(launch.topology_id):
                return True
        except FileNotFoundError:
            continue  # the folder was removed at this moment
        holder = last_holder(path)
        if holder is not None and holder.topology_id == launch.topology_id and is_held(path):
            log.info("%s has a scheduler already: process %d", launch.topology, holder.pid)
            return False
        time.sleep(0.05)
    log.error("the lock %s was held for %d s by an earlier submission", path, LOCK_WAIT_SECONDS)
    return False


@dataclass(frozen=True, slots=True)
class Observation:
    """What the store says at one moment: the killed state, and the containers wanted (None: no plan to read)."""

    killed: bool
    numbers: tuple[int, ...] | None = None


class Scheduler:
    """Joins the containers, the state store and the gRPC server."""

    def __init__(self, launch: Launch, ground: Ground, own_log: OwnLog) -> None:
        self._launch = launch
        self._ground = ground
        self._own_log = own_log
        self._store: StateStore | None = None
        self._presence: Presence | None = None
        self._config: Mapping[str, Any] | None = None  # what of it says how many containers there are never changes
        self._wake = asyncio.Event()
        self._leave = False

    async def run(self) -> int:
        """Until the topology is killed and gone (then 0), or a signal asks us alone to leave (then ``EXIT_LEFT``)."""
        loop = asyncio.get_running_loop()
        stop_on_signals(loop, self._asked_to_leave)
        containers = ContainersShell(self._launch, self._ground)
        server, port = await serve(self._launch, containers)
        # It lives in no container; the metrics manager beside the topology master speaks for it.
        reporter = Reporter(self._ground.beside_master(), MASTER_CONTAINER, SchedulerMetrics(containers.core).report)
        reporter.start()
        try:
            adopted = await self._begin(loop, port)
            if adopted is not None:
                containers.adopt(adopted)
                await self._watch(containers)
        finally:
            await server.stop(0.2)
            await reporter.stop()
        if not self._leave:
            if self._launch.runtime_dir:
                remove_runtime_dir(self._launch)
            log.info("%s is over; nothing of it runs any more", self._launch.topology)
        if self._store is not None:
            await asyncio.to_thread(self._store.close)
        return EXIT_LEFT if self._leave else 0

    async def _begin(self, loop: asyncio.AbstractEventLoop, port: int) -> list[Found] | None:
        """Open the store, take the node, find what runs. None if a signal came first."""
        location = SchedulerLocation(self._launch.topology_id, self._launch.host, port, os.getpid())

        def wake(_: str) -> None:
            loop.call_soon_threadsafe(self._wake.set)

        failures = 0
        while not self._leave:
            try:
                return await asyncio.to_thread(self._open, location, wake)
            except (StoreError, SchedulerError) as error:
                if failures % AWAY_LOG_EVERY == 0:
                    log.warning("cannot begin yet (state store %s); trying on: %s", self._launch.store_url, error)
                failures += 1
            await self._pause()
        return None

    def _open(self, location: SchedulerLocation, wake: Callable[[str], None]) -> list[Found]:
        launch = self._launch
        if self._store is None:
            name = launch.topology
            looked_at = paths.execution_state(name), paths.scheduler(name), paths.packing_plan(name)
            store = RememberingStore(store_of(launch), looked_at)
            store.open()
            self._store = store
            data = message_codecs.SCHEDULER_LOCATION.encode(location)
            self._presence = Presence(store, paths.scheduler(name), data)
            for path in (paths.execution_state(name), paths.packing_plan(name)):
                store.watch(path, wake)
        assert self._presence is not None
        holder = self._presence.keep()
        if holder != self._presence.data and not is_killed(self._store, launch.topology, launch.topology_id):
            # We hold the lock of this host, so this is the node of a dead one whose session is not over yet.
            raise StoreError(f"{self._presence.path} is still held by an earlier scheduler")
        return self._ground.find(self._store)

    async def _watch(self, containers: ContainersShell) -> None:
        over = asyncio.ensure_future(containers.over.wait())
        failures = 0
        try:
            while not over.done() and not self._leave:
                if await asyncio.to_thread(is_replaced, self._launch):
                    log.warning(
                        "the job of %s runs anew; what is left of this run ends by itself", self._launch.topology
                    )
                    self._leave = True  # and touches nothing: job and steps are called the same there
                    return
                try:
                    observed = await asyncio.to_thread(self._observe)
                except StoreError as error:
                    if failures % AWAY_LOG_EVERY == 0:
                        log.warning("the state store does not answer; going on without it: %s", error)
                    failures += 1
                else:
                    failures = 0
                    self._reconcile(containers, observed)
                await self._pause(over)
                self._own_log.rotate_if_large()
        finally:
            over.cancel()

    @staticmethod
    def _reconcile(containers: ContainersShell, observed: Observation) -> None:
        if observed.killed:
            if not containers.core.stopping:
                log.info("the topology was killed: stopping its containers")
            containers.stop()
        elif observed.numbers is not None:
            containers.want(observed.numbers)

    def _observe(self) -> Observation:
        launch, store = self._launch, self._store
        assert store is not None
        assert self._presence is not None
        if is_killed(store, launch.topology, launch.topology_id):
            return Observation(True)
        self._presence.keep()
        path, defined = paths.packing_plan(launch.topology), paths.topology(launch.topology)
        packing = decoded(path, store.get(path), message_codecs.PACKING_PLAN)
        if self._config is None:
            definition = decoded(defined, store.get(defined), message_codecs.TOPOLOGY)
            self._config = None if definition is None else definition.config
        if packing is None or self._config is None:
            return Observation(False)  # it is being killed at this moment
        return Observation(False, containers_of(packing, self._config))

    async def _pause(self, over: asyncio.Future[Any] | None = None) -> None:
        """Until a watch fires, a second has passed, or all is over."""
        waits: set[asyncio.Future[Any]] = {asyncio.ensure_future(self._wake.wait())}
        if over is not None:
            waits.add(over)
        await asyncio.wait(waits, timeout=OBSERVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits - {over}:
            wait.cancel()
        self._wake.clear()

    def _asked_to_leave(self) -> None:
        log.info("asked to leave; the containers go on")
        self._leave = True
        self._wake.set()
