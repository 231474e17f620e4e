"""The scheduler process of one topology: lock, store node, adoption, gRPC service, watch and end."""

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

import grpc
import grpc.aio

from heron_control.schedulers.containers import SHOWN, ContainerTable
from heron_control.schedulers.identity import HostLock, is_held, last_holder, process_title, scheduler_lock
from heron_control.schedulers.log_files import OwnLog
from heron_control.schedulers.node_registration import NodeRegistration, is_killed
from heron_control.schedulers.runtime import remove_runtime_dir
from heron_control.schedulers.scheduler import ALL, SchedulerError
from heron_control.schedulers.slurm_node import is_replaced
from heron_control.schedulers.slurm_plan import SLURM
from heron_runtime import cgroups
from heron_runtime.failures import Failure
from heron_runtime.launch import Launch
from heron_runtime.model.containers import containers_of
from heron_runtime.model.ids import MASTER_CONTAINER, container_name
from heron_runtime.model.records import SchedulerLocation
from heron_runtime.model.settings import Keys, setting
from heron_runtime.net.identity import identity_of
from heron_runtime.net.rpc import SCHEDULER_SERVICE, make_server
from heron_runtime.process import parse_arguments, set_up_process, stop_on_signals
from heron_runtime.spawn import raise_descriptor_limit
from heron_runtime.state import paths, store_of
from heron_runtime.state.store import StateStore, StoreError, with_hint
from heron_runtime.state.topologies import decoded
from heron_runtime.state.wrappers import CachedStore
from heron_runtime.telemetry.recorder import Telemetry
from heron_runtime.telemetry.reporter import MetricsReporter
from heron_runtime.wire import message_codecs
from heron_runtime.wire.container import (
    ProcessState,
    RestartContainer,
    RestartReply,
    SchedulerStatus,
    SchedulerStatusRequest,
)
from heron_runtime.wire.metrics import ProcessMetrics
from heron_scheduler.container_supervisor import ContainerBackend, ContainerSupervisor, RunningContainer
from heron_scheduler.local_backend import LocalBackend

RESTART_MARGIN_SECONDS = 15.0
OBSERVE_SECONDS = 1.0
LOCK_WAIT_SECONDS = 120.0
AWAY_LOG_EVERY = 30
EXIT_LEFT = 75  # the topology continues: the batch script starts the next scheduler
log = logging.getLogger(__name__)


class SchedulerMetrics:
    """Metrics of the scheduler and its containers, read from the container table for each report."""

    def __init__(self, core: ContainerTable) -> None:
        self._core = core
        self._telemetry = Telemetry("__scheduler__", "heron_scheduler", MASTER_CONTAINER, 0, time.time_ns())
        self._counted: dict[int, int] = {}

    def report(self) -> ProcessMetrics:
        """Return the totals since the start of the scheduler."""
        for row in self._core.rows.values():
            name = container_name(row.number)
            self._telemetry.gauge(f"__process-up/{name}", float(SHOWN[row.stage] is ProcessState.RUNNING))
            restarts = row.restarts - self._counted.get(row.number, 0)
            if restarts > 0:
                self._counted[row.number] = row.restarts
                self._telemetry.count(f"__restarts/{name}", restarts)
        return self._telemetry.report(time.time())


async def serve(launch: Launch, containers: ContainerSupervisor) -> tuple[grpc.aio.Server, int]:
    """Start the authenticated server on a free port and return it with its port.

    Raises:
        OSError: No port is available.
        RuntimeError: The server cannot listen.
    """
    patience = 2 * setting(launch.settings, Keys.HERON_STOP_GRACE_SECS) + RESTART_MARGIN_SECONDS

    async def answer_status(_: SchedulerStatusRequest, __: grpc.aio.ServicerContext) -> SchedulerStatus:
        return containers.status()

    async def restart(request: RestartContainer, context: grpc.aio.ServicerContext) -> RestartReply:
        if containers.core.stopping:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the topology is being killed")
        known = sorted(number for number, row in containers.core.rows.items() if row.wanted)
        numbers = known if request.container == ALL else [request.container]
        if not set(numbers) <= set(known):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"unknown container {request.container}; known: {known}")
        try:
            async with asyncio.timeout(patience):
                return RestartReply(await containers.restart(numbers))
        except TimeoutError:
            await context.abort(
                grpc.StatusCode.DEADLINE_EXCEEDED, f"not all of {numbers} restarted within {patience} s"
            )
            raise

    handler = SCHEDULER_SERVICE.handler(Status=answer_status, Restart=restart)
    server, port = make_server(identity_of(launch), f"{launch.bind_host}:0", [handler])
    await server.start()
    return server, port


def main() -> None:
    """Run ``python -m heron_scheduler --launch FILE``."""
    arguments, _ = parse_arguments("heron_scheduler")
    launch = arguments.launch
    cgroups.leave()  # that of container 0, or of the topology whose user code submitted this one
    own_log = OwnLog.of(launch, "heron_scheduler")
    own_log.take()
    title = process_title(launch.topology, "heron_scheduler")
    set_up_process(title, setting(launch.settings, Keys.HERON_LOGGING_LEVEL))
    raise_descriptor_limit()
    backend: Callable[[], ContainerBackend] = partial(LocalBackend, launch, arguments.launch_file.resolve())
    if setting(launch.settings, Keys.HERON_SCHEDULER) == SLURM:
        from heron_scheduler import slurm_backend  # imported here because the local cluster does not need it

        if is_replaced(launch):
            sys.exit(0)  # the job was restarted elsewhere; the rest of this run ends as well
        try:
            launch = slurm_backend.prepare_scheduler_launch(launch)
        except (Failure, OSError) as error:
            log.error("cannot run on this node: %s", error)
            sys.exit(1)
        backend = partial(slurm_backend.SlurmBackend, launch, arguments.launch_file.resolve())
    elif not acquire_scheduler_lock(launch):
        sys.exit(0)
    sys.exit(asyncio.run(SchedulerProcess(launch, backend(), own_log).run()))


def acquire_scheduler_lock(launch: Launch) -> bool:
    """Become the only scheduler of this topology on this host; return False if it has one.

    Waits for the scheduler of an earlier submission of the same name, which may still be cleaning up.
    """
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    path = scheduler_lock(launch.runtime_dir)
    while time.monotonic() < deadline:
        os.makedirs(launch.runtime_dir, mode=0o700, exist_ok=True)
        try:
            if HostLock(path).acquire(launch.topology_id):
                return True
        except FileNotFoundError:
            continue  # the folder was just removed
        holder = last_holder(path)
        if holder is not None and holder.topology_id == launch.topology_id and is_held(path):
            log.info("%s already has a scheduler: process %d", launch.topology, holder.pid)
            return False
        time.sleep(0.05)
    log.error("lock %s: held by an earlier submission for %d s", path, LOCK_WAIT_SECONDS)
    return False


@dataclass(frozen=True, slots=True)
class StoreObservation:
    """State of the store: the killed state and the wanted containers (None without a plan)."""

    killed: bool
    numbers: tuple[int, ...] | None = None


class SchedulerProcess:
    """Connection of the containers, the state store and the gRPC server."""

    def __init__(self, launch: Launch, backend: ContainerBackend, own_log: OwnLog) -> None:
        self._launch = launch
        self._backend = backend
        self._own_log = own_log
        self._store: StateStore | None = None
        self._presence: NodeRegistration | None = None
        self._config: Mapping[str, Any] | None = None  # the settings read here never change
        self._wake = asyncio.Event()
        self._leaving = False

    async def run(self) -> int:
        """Run until the topology is killed and has ended, or until a signal.

        Returns:
            0 after the end of the topology, ``EXIT_LEFT`` after a signal to this process alone.
        """
        loop = asyncio.get_running_loop()
        stop_on_signals(loop, self._on_signal)
        containers = ContainerSupervisor(self._launch, self._backend)
        server, port = await serve(self._launch, containers)
        # It runs outside of all containers; the metrics manager of container 0 reports for it.
        reporter = MetricsReporter(
            self._backend.metrics_launch(), MASTER_CONTAINER, SchedulerMetrics(containers.core).report
        )
        reporter.start()
        try:
            adopted = await self._open_and_find(loop, port)
            if adopted is not None:
                containers.adopt(adopted)
                await self._watch(containers)
        finally:
            await server.stop(0.2)
            await reporter.stop()
        if not self._leaving:
            if self._launch.runtime_dir:
                remove_runtime_dir(self._launch)
            log.info("all processes of %s have ended", self._launch.topology)
        if self._store is not None:
            await asyncio.to_thread(self._store.close)
        return EXIT_LEFT if self._leaving else 0

    async def _open_and_find(self, loop: asyncio.AbstractEventLoop, port: int) -> list[RunningContainer] | None:
        """Open the store, create the node and find running containers. Return None after a signal."""
        location = SchedulerLocation(self._launch.topology_id, self._launch.host, port, os.getpid())

        def wake(_: str) -> None:
            loop.call_soon_threadsafe(self._wake.set)

        failures = 0
        while not self._leaving:
            try:
                return await asyncio.to_thread(self._open, location, wake)
            except (StoreError, SchedulerError) as error:
                if failures % AWAY_LOG_EVERY == 0:
                    log.warning("cannot start yet (state store %s); retrying: %s", self._launch.store_url, error)
                failures += 1
            await self._pause()
        return None

    def _open(self, location: SchedulerLocation, wake: Callable[[str], None]) -> list[RunningContainer]:
        launch = self._launch
        if self._store is None:
            name = launch.topology
            looked_at = paths.execution_state(name), paths.scheduler(name), paths.packing_plan(name)
            store = CachedStore(store_of(launch), looked_at)
            store.open()
            self._store = store
            data = message_codecs.SCHEDULER_LOCATION.encode(location)
            self._presence = NodeRegistration(store, paths.scheduler(name), data)
            for path in (paths.execution_state(name), paths.packing_plan(name)):
                store.watch(path, wake)
        assert self._presence is not None
        holder = self._presence.keep()
        owner = launch.topology, launch.topology_id, launch.store_id
        if holder != self._presence.data and not is_killed(self._store, *owner):
            # This process holds the lock, so the node belongs to a dead scheduler whose session has not expired.
            raise StoreError(f"{self._presence.path}: still held by an earlier scheduler")
        return self._backend.find(self._store)

    async def _watch(self, containers: ContainerSupervisor) -> None:
        done = asyncio.ensure_future(containers.done.wait())
        failures = 0
        try:
            while not done.done() and not self._leaving:
                if await asyncio.to_thread(is_replaced, self._launch):
                    log.warning("the job of %s was restarted; leaving", self._launch.topology)
                    self._leaving = True  # touches nothing: job and steps of the new run have the same names
                    return
                try:
                    observed = await asyncio.to_thread(self._observe)
                except StoreError as error:
                    if failures % AWAY_LOG_EVERY == 0:
                        log.warning("state store unavailable; continuing without it: %s", with_hint(error))
                    failures += 1
                else:
                    failures = 0
                    self._reconcile(containers, observed)
                await self._pause(done)
                self._own_log.rotate_if_large()
        finally:
            done.cancel()

    @staticmethod
    def _reconcile(containers: ContainerSupervisor, observed: StoreObservation) -> None:
        if observed.killed:
            if not containers.core.stopping:
                log.info("the topology was killed: stopping its containers")
            containers.stop()
        elif observed.numbers is not None:
            containers.want(observed.numbers)

    def _observe(self) -> StoreObservation:
        launch, store = self._launch, self._store
        assert store is not None
        assert self._presence is not None
        if is_killed(store, launch.topology, launch.topology_id, launch.store_id):
            return StoreObservation(True)
        self._presence.keep()
        path, defined = paths.packing_plan(launch.topology), paths.topology(launch.topology)
        packing = decoded(path, store.get(path), message_codecs.PACKING_PLAN)
        if self._config is None:
            definition = decoded(defined, store.get(defined), message_codecs.TOPOLOGY)
            self._config = None if definition is None else definition.config
        if packing is None or self._config is None:
            return StoreObservation(False)  # the topology is being killed
        return StoreObservation(False, containers_of(packing, self._config))

    async def _pause(self, done: asyncio.Future[Any] | None = None) -> None:
        """Wait until a watch fires, a second has passed, or everything has ended."""
        waits: set[asyncio.Future[Any]] = {asyncio.ensure_future(self._wake.wait())}
        if done is not None:
            waits.add(done)
        await asyncio.wait(waits, timeout=OBSERVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits - {done}:
            wait.cancel()
        self._wake.clear()

    def _on_signal(self) -> None:
        log.info("received a signal: leaving; the containers continue")
        self._leaving = True
        self._wake.set()
