"""Process of the stream manager: builds core and shell, runs until it is stopped, and removes its files."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import time
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import grpc.aio
import msgspec

from heron_runtime.code_user import TALKED_THROUGH, code_user
from heron_runtime.launch import Launch
from heron_runtime.model.history import PRESSURE
from heron_runtime.model.plan import StreamManagerInfo
from heron_runtime.model.records import MasterLocation
from heron_runtime.model.settings import Keys, setting
from heron_runtime.net.handshake import instance_key
from heron_runtime.net.identity import identity_of
from heron_runtime.process import ProcessPhase
from heron_runtime.telemetry.recorder import Telemetry
from heron_runtime.telemetry.reporter import MetricsReporter
from heron_runtime.wire.errors import UNREADABLE, MalformedMessage
from heron_runtime.wire.master import ToMaster
from heron_runtime.wire.message_codecs import MASTER_LOCATION, PHYSICAL_PLAN
from heron_runtime.wire.metrics import ProcessMetrics
from stream_manager.core.events import Listening, PlanAccepted, PlanLoaded, Tick
from stream_manager.core.stream_manager import StreamManager
from stream_manager.shell.driver import CoreDriver, now_ms
from stream_manager.shell.grpc_links import MasterClient, MasterWatcher, PeerConnector, start_peer_server
from stream_manager.shell.instance_server import InstanceServer

TICK_SECONDS = 0.1
IDLE_TICK_SECONDS = 0.5  # a wake-up costs more than the tick itself
GC_THRESHOLD = 50_000  # reference counting frees packets; cycles are rare

log = logging.getLogger(__name__)


class StreamManagerProcess:
    """One stream manager with its servers and clients.

    ``stopped`` is set when the process should end.
    """

    def __init__(self, launch: Launch, container: int) -> None:
        self.launch = launch
        self.container = container
        self._identity = identity_of(launch)
        self._file = PlanFile(Path(launch.runtime_dir, f"stream_manager-{container}.plan"), launch.topology_id)
        # Incarnations increase, so that peers can distinguish a newer stream manager from an older one.
        self._incarnation = max(time.time_ns() // 1_000_000, self._file.memory.incarnation + 1)
        self._servers: list[grpc.aio.Server] = []
        self._patience_seconds = setting(launch.settings, Keys.HERON_STOP_GRACE_SECS) / 2
        self._tasks: list[asyncio.Task[None]] = []
        self._connectors: dict[int, PeerConnector] = {}
        self._fault: BaseException | None = None
        self._counted: dict[str, float] = {}
        self._keeps_history = setting(launch.settings, Keys.HERON_HISTORY_ENABLED)
        self._telemetry = Telemetry("__stmgr__", f"stream_manager-{container}", container, 0, self._incarnation)
        info = StreamManagerInfo(container, launch.host, 0, self._incarnation, os.getpid())
        self.driver = CoreDriver(StreamManager(launch.topology_id, info, launch.settings, now_ms()), self)
        self._master = MasterClient(self.driver, self._identity)
        key_of = partial(instance_key, launch.secret(), launch.topology_id, container)
        self._instances = InstanceServer(self.driver, key_of)
        self.reporter = MetricsReporter(launch, container, self._collect, self.driver.reports)

    @property
    def core(self) -> StreamManager:
        """The core."""
        return self.driver.core

    @property
    def stopped(self) -> asyncio.Event:
        """Event that is set when the process should end."""
        return self.driver.stop

    @property
    def phase(self) -> ProcessPhase:
        """``RUNNING`` with a plan and links to all registered peers."""
        return ProcessPhase.RUNNING if self._servers and self.core.is_linked() else ProcessPhase.STARTING

    async def start(self) -> None:
        """Listen, load the last plan, and connect to the topology master and the peers.

        Raises:
            OSError: A socket cannot be created.
            RuntimeError: No port is free.
        """
        # The core reports its port, so the server for peers starts first.
        peers, port = await start_peer_server(self.driver, self._identity, self.launch.bind_host)
        self.driver.handle(Listening(port))
        path = self.launch.stream_manager_socket(self.container)
        self._servers = [peers]
        await self._instances.start(path)
        user = code_user(self.launch.settings)
        if user is not None:
            user.share(path, TALKED_THROUGH)
        self._file.update(incarnation=self._incarnation)
        self._recall()
        self._spawn(self._master.run(), "master client")
        self._spawn(MasterWatcher(self.launch, self._follow_master).run(), "master watch")
        self._spawn(self._tick(), "tick")
        self.reporter.start()
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD, 20, 100)
        log.info("listening on %s and %s:%d", path, self.launch.host, port)

    def replaced(self) -> bool:
        """Return, once stopped, whether another stream manager has taken over.

        Raises:
            BaseException: A part of the process has failed with it.
        """
        if self._fault is not None:
            raise self._fault
        return self.driver.replaced

    async def stop(self) -> None:
        """End all connections and stop listening. Idempotent.

        Instances stop at the same time. Their streams end first, so that their last messages are read.
        """
        await self._instances.stop(0.0 if self.driver.replaced else self._patience_seconds)
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self.driver.connections.values()):
            connection.end("the stream manager is stopping")
        servers, self._servers = self._servers, []
        await asyncio.gather(*(server.stop(0.2) for server in servers))
        if self._keeps_history:
            self.core.instances.episodes.end(self.core.instances.clock_ms)
            self._tell_pressure()
            self._telemetry.settle(time.time())
        await self.reporter.stop()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.launch.stream_manager_socket(self.container))

    def _recall(self) -> None:
        memory = self._file.memory
        try:
            if memory.master:
                self._master.set_location(MASTER_LOCATION.decode(memory.master))
            if memory.plan:
                plan = PHYSICAL_PLAN.decode(memory.plan)
                log.info("loading plan %s from disk", plan.version)
                self.driver.handle(PlanLoaded(plan, memory.epoch))
        except MalformedMessage as error:
            log.warning("stream_manager-%d.plan: ignored, cannot be decoded: %s", self.container, error)

    def _follow_master(self, location: MasterLocation, data: bytes) -> None:
        self._file.update(master=data)
        self._master.set_location(location)

    # Effects of the core (``DriverSurroundings``).

    def accept_plan(self, effect: PlanAccepted) -> None:
        """Store a plan, and connect to the peers that this stream manager calls."""
        plan, epoch = effect.plan, effect.epoch
        log.info("plan %s of epoch %d, generation %d", plan.version, epoch, plan.generation.number)
        self._file.update(plan=PHYSICAL_PLAN.encode(plan), epoch=epoch)
        for container in effect.call:
            if container not in self._connectors:
                connector = self._connectors[container] = PeerConnector(self.driver, self._identity, container)
                self._spawn(connector.run(), f"connector to {container}")
        for connector in self._connectors.values():
            connector.set_plan(plan)

    def save_epoch(self, epoch: int) -> None:
        """Store an epoch."""
        self._file.update(epoch=epoch)

    def send_to_master(self, message: ToMaster) -> None:
        """Send a message to the topology master if it is connected."""
        self._master.send(message)

    def leave_master(self, reason: str) -> None:
        """Disconnect from the topology master if it is connected."""
        self._master.leave(reason)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._part_ended)
        self._tasks.append(task)

    def _part_ended(self, task: asyncio.Task[None]) -> None:
        """Stop the process if one of its parts has failed. Parts run until they are cancelled."""
        if not task.cancelled() and task.exception() is not None:
            self._fault = task.exception()
            self.driver.stop.set()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(IDLE_TICK_SECONDS if self.core.is_idle() else TICK_SECONDS)
            await asyncio.sleep(0)  # messages that have arrived are read first
            self.driver.handle(Tick(now_ms()))

    def _collect(self) -> ProcessMetrics:
        for name, total in self.core.totals().items():
            before = self._counted.get(name)
            if before is None or total > before:  # 0 is reported once, so that a counter exists before its first event
                self._telemetry.count(name, total - (before or 0.0))
                self._counted[name] = total
        for name, value in self.core.gauges().items():
            self._telemetry.gauge(name, value)
        if self._keeps_history:
            self._tell_pressure()
        return self._telemetry.report(time.time())

    def _tell_pressure(self) -> None:
        """Record the finished backpressure episodes in the history."""
        local = self.core.instances
        utc_ms = time.time() * 1000 - local.clock_ms
        for each in local.episodes.take():
            self._telemetry.happened(
                PRESSURE, each.text, (utc_ms + each.ended_ms) / 1000, each.detail(utc_ms), component=each.spout
            )


class SavedPlan(msgspec.Struct, omit_defaults=True):
    """Content of the plan file. ``plan`` and ``master`` are encoded as in the state store; empty if unknown."""

    topology_id: str = ""
    incarnation: int = 0
    epoch: int = 0
    plan: bytes = b""
    master: bytes = b""


class PlanFile:
    """File ``<runtime folder>/stream_manager-<N>.plan``, which user code cannot read. Each change replaces it.

    It holds the newest plan and its epoch, the location of the topology master, and the last incarnation, so that a
    restarted stream manager works without state store and topology master.
    """

    def __init__(self, path: Path, topology_id: str) -> None:
        self._path = path
        self.memory = self._read(topology_id)

    def update(self, **fields: object) -> None:
        """Change fields and write the file. A write error is logged and does not stop the process."""
        changed = msgspec.structs.replace(self.memory, **fields)
        if changed == self.memory:
            return
        self.memory = changed
        temporary = self._path.with_suffix(".plan.tmp")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.msgpack.encode(changed))
            os.replace(temporary, self._path)
        except OSError as error:
            log.error("%s: cannot be written: %s", self._path, error)

    def _read(self, topology_id: str) -> SavedPlan:
        try:
            memory = msgspec.msgpack.decode(self._path.read_bytes(), type=SavedPlan)
        except FileNotFoundError:
            return SavedPlan(topology_id)
        except (OSError, *UNREADABLE) as error:
            log.warning("%s: ignored, cannot be read: %s", self._path, error)
            return SavedPlan(topology_id)
        return memory if memory.topology_id == topology_id else SavedPlan(topology_id)
