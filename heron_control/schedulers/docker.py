"""Scheduler of the ``docker`` cluster: each container of a topology is a Docker container on this machine's engine.

The API server owns the only DockerScheduler. ``run`` is its watch: it observes the engine, then reads the topologies
from the state store, and each topology reconciles the two (``topology_reconciler``). The plan granted at submission is
carried out (``grants``), not the one in the store, which a topology may be able to write. The watch wakes up at engine
events, at deadlines and every OBSERVE_SECONDS.

The order matters: a container that the engine shows and a *later* read of the store does not know belongs to a killed
topology, and is removed. While the store is unavailable the last plans hold. While the engine is unavailable ``status``
reports it. While this process is down, containers continue, and dead ones are not restarted.

All methods except ``run`` block and may be called from any thread. Engine calls may take a minute. ``run`` and
``status`` do not wait for them, so the API server's loop continues meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import tarfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from heron_control.progress import Progress, silent
from heron_control.schedulers import container_spec, docker_logs
from heron_control.schedulers.docker_engine import DockerEngine
from heron_control.schedulers.engine import ClusterService, ContainerEngine, EngineContainer, EngineError, TopologyOwner
from heron_control.schedulers.grants import Granted, read_granted
from heron_control.schedulers.known_store import known_store_id
from heron_control.schedulers.node_registration import is_killed
from heron_control.schedulers.scheduler import SchedulerContext, SchedulerError
from heron_control.schedulers.timers import now_ms
from heron_control.schedulers.topology_folder import LOG_FILES, Homes, load_launch
from heron_control.schedulers.topology_reconciler import TopologyReconciler
from heron_runtime.checkpoint_files import CHECKPOINTS
from heron_runtime.failures import NotAllowed
from heron_runtime.launch import Launch
from heron_runtime.model.records import ExecutionState
from heron_runtime.model.settings import Keys, setting
from heron_runtime.state import topologies
from heron_runtime.state.store import StateStore, StoreError, StoreUnavailable
from heron_runtime.state.topologies import DamagedNode
from heron_runtime.wire.container import ProcessState, ProcessStatus, SchedulerStatus

OBSERVE_SECONDS = 2.0
POLL_SECONDS = 0.1
SHORTEST_SECONDS = 0.02
EVENT_SECONDS = 30
KILL_MARGIN_SECONDS = 30.0
STARTS_AT_ONCE = 8
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DockerOptions:
    """Options of the scheduler. ``project`` is part of every name and label."""

    project: str = "heronry"
    image: str = "heronry:latest"
    api_url: str = "http://api:9000"
    address: str = ""

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> DockerOptions:
        """Read HERONRY_PROJECT, HERONRY_IMAGE, HERONRY_API_URL and DOCKER_HOST."""
        return cls(
            environment.get("HERONRY_PROJECT") or cls().project,
            environment.get("HERONRY_IMAGE") or cls().image,
            environment.get("HERONRY_API_URL") or cls().api_url,
            environment.get("DOCKER_HOST", ""),
        )


@dataclass(slots=True)
class WatchedTopology:
    """State that the scheduler keeps of one submission.

    Attributes:
        reconciler: Its containers; None until its launch is known.
        is_start_pending: It has a volume, and is not in the store yet.
        retains_logs: Its volume must be kept for its logs.
        record_differs: Its record in the store differed from the grant at the last read.
        has_warning: A warning about its record was logged.
    """

    reconciler: TopologyReconciler | None = None
    is_start_pending: bool = False
    retains_logs: bool = False
    record_differs: bool = False
    has_warning: bool = False


class DockerScheduler:
    """Implementation of ``heron_control.schedulers.scheduler.Scheduler`` and ``WatchingScheduler``."""

    kind = "docker"  # value of ``heron.scheduler`` for the topologies' processes

    def __init__(
        self, store: StateStore, homes: Homes, options: DockerOptions, engine: ContainerEngine | None = None
    ) -> None:
        self._store = store
        self._homes = homes
        self._options = options
        self._engine = engine or DockerEngine(options.project, options.address)
        self._pool = ThreadPoolExecutor(STARTS_AT_ONCE, "docker-start")
        self._watched: dict[str, WatchedTopology] = {}  # by topology id
        self._lock = threading.Lock()  # for additions to and removals from ``_watched``
        self._wake = threading.Event()
        self._started = time.time()
        self._trouble = ""

    # Scheduler protocol.

    def prepare(self, launch: Launch, folder: Path, package: Path) -> Launch:
        """Check engine and image before the submission is written. Creates nothing."""
        given = setting(launch.settings, Keys.HERON_USER_CODE_USER)
        if given not in (None, container_spec.CODE_USER):
            name = Keys.HERON_USER_CODE_USER.name
            raise NotAllowed(
                f"{name}: user code runs as {container_spec.CODE_USER} here, not as {given}", f"Leave out {name}."
            )
        self._engine.require_image(self._options.image)
        return container_spec.launch_inside(launch, self._options.api_url, self.kind)

    def place_checkpoint(self, launch: Launch, folder: Path) -> None:
        """Copy a checkpoint into the topology's volume, which is created for it.

        Until ``start`` the watch must not remove the volume as the rest of an ended topology.
        """
        project = self._options.project
        self._entry(launch.topology_id).is_start_pending = True
        self._engine.make_volume(
            container_spec.shared_name(project, launch), container_spec.owner_labels(project, launch)
        )
        writer = container_spec.volume_access_spec(project, launch, self._options.image, writes=True)
        self._engine.write_folder(writer, folder / CHECKPOINTS, f"{container_spec.HOME}/{CHECKPOINTS}")
        shutil.rmtree(folder / CHECKPOINTS)

    def start(self, launch: Launch, launch_file: Path) -> int:
        """Let the watch start the topology at once."""
        self._engine.require_image(self._options.image)
        # Containers started from now on use this launch's address of the store.
        self._known(launch, launch_file.parent).launch = launch
        self._entry(launch.topology_id).is_start_pending = False
        self._wake.set()
        return 0

    def restart(self, launch: Launch, container: int, timeout_seconds: float) -> tuple[int, ...]:
        """Restart one container, or all (-1)."""
        topology = self._reconciler(launch.topology_id)
        if topology is None:
            raise SchedulerError(f"the scheduler does not know {launch.topology} yet; try again in a few seconds")
        try:
            before = topology.restart(container)
        except KeyError:
            raise SchedulerError(f"{launch.topology} has no container {container}") from None
        deadline = time.monotonic() + timeout_seconds
        while not topology.restarted(before):
            if time.monotonic() > deadline:
                raise SchedulerError(f"not all containers restarted within {timeout_seconds:g} s; see heron status")
            self._observe_one(topology)
            time.sleep(POLL_SECONDS)
        return tuple(sorted(before))

    def kill(self, launch: Launch, progress: Progress = silent, *, untold: bool = False) -> None:
        """Stop all containers, kill the rest after the grace period, and wait for their end."""
        progress("waiting for its containers to stop")
        topology = self._known(launch, Path())
        patience = 2 * setting(launch.settings, Keys.HERON_STOP_GRACE_SECS) + KILL_MARGIN_SECONDS
        deadline = time.monotonic() + patience
        while self._observe_one(topology, stop=True) or not topology.view.over:
            if time.monotonic() > deadline:
                raise SchedulerError(f"{launch.topology} is killed, but something of it still stops", "Kill it again.")
            time.sleep(POLL_SECONDS)

    def hold(self, launch: Launch) -> None:
        """Keep the topology's volume when the watch cleans up."""
        self._entry(launch.topology_id).retains_logs = True

    def save_logs(self, launch: Launch, folder: Path) -> None:
        """Copy the logs out of the topology's volume before it is removed."""
        project = self._options.project
        if container_spec.shared_name(project, launch) not in self._engine.volumes():
            return
        reader = container_spec.volume_access_spec(project, launch, self._options.image)
        try:
            pieces = self._engine.read_folder(reader, f"{container_spec.HOME}/{LOG_FILES}")
            with contextlib.closing(pieces):
                saved = docker_logs.save(pieces, folder / LOG_FILES)
        except (OSError, tarfile.TarError) as error:
            raise SchedulerError(
                f"the logs of {launch.topology} cannot be kept: {error}; kill it again, or without --keep-logs"
            ) from error
        log.info("kept %d log files of %s in %s", saved, launch.topology, folder / LOG_FILES)

    def remove(self, launch: Launch) -> None:
        """Remove remaining containers, the network and the volume."""
        for helper in (container_spec.reader_name, container_spec.writer_name):
            self._engine.remove(helper(self._options.project, launch))
        for container in self._engine.containers():
            if container.topology_id == launch.topology_id:
                self._engine.remove(container.id)
        name = container_spec.shared_name(self._options.project, launch)
        self._engine.remove_network(name)
        self._engine.remove_volume(name)
        with self._lock:
            self._watched.pop(launch.topology_id, None)

    def status(self, launch: Launch) -> SchedulerStatus:
        """Return the status of the last observation."""
        topology = self._reconciler(launch.topology_id)
        state = ProcessState.RESTARTING if self._trouble else ProcessState.RUNNING
        own = ProcessStatus(
            "heron_scheduler", "heron_scheduler", -1, "", 0, os.getpid(), state, self._started, 0, self._trouble
        )
        return SchedulerStatus(own, topology.view.statuses if topology else ())

    # Watch.

    async def run(self) -> None:
        """Watch until cancelled."""
        stop = threading.Event()
        threading.Thread(target=self._listen, args=(stop,), name="docker-events", daemon=True).start()
        try:
            while True:
                self._wake.clear()
                pause_seconds = await asyncio.to_thread(self.observe)
                await asyncio.to_thread(self._wake.wait, pause_seconds)
        finally:
            stop.set()
            self._wake.set()  # end the wait of the thread

    def close(self) -> None:
        """Close the connection to the engine. The containers continue."""
        self._pool.shutdown(wait=True)
        self._engine.close()

    def observe(self) -> float:
        """Observe and reconcile once; ``status`` reports errors, and the next round retries.

        Returns:
            Seconds until the next round.
        """
        troubles: list[str] = []
        try:
            taken_ms = now_ms()
            seen, networks, volumes = self._engine.containers(), self._engine.networks(), self._engine.volumes()
            shown = {TopologyOwner(t.launch.topology, t.launch.topology_id) for t in self._reconcilers()}
            shown |= {TopologyOwner(container.topology, container.topology_id) for container in seen}
            over = self._read_store(shown | {*networks.values(), *volumes.values()})
            for topology in self._reconcilers():
                try:
                    topology.reconcile(seen, taken_ms, stop=topology.launch.topology_id in over)
                except EngineError as error:  # perhaps only this topology is affected
                    troubles.append(str(error))
            self._clear_up(over, seen, networks, volumes)
            self._join(self._engine.joiners(), self._engine.networks())
        except EngineError as error:
            troubles.append(str(error))
        trouble = troubles[0] if troubles else ""
        if trouble != self._trouble:
            (log.error if trouble else log.info)("%s", trouble or "the engine carries out requests again")
        self._trouble = trouble
        deadlines = [d for t in self._reconcilers() if (d := t.view.deadline_ms) is not None]
        return min([OBSERVE_SECONDS, *(max(SHORTEST_SECONDS, (d - now_ms()) / 1000) for d in deadlines)])

    def _read_store(self, shown: set[TopologyOwner]) -> set[str]:
        """Read plans and new topologies; return the ids in ``shown`` that have certainly ended.

        A topology has ended when the store says so. One with a damaged record or an unavailable store has not, and
        neither has one that has a volume and is about to be written to the store.
        """
        with self._lock:  # before the store is read, which then has all topologies that have started meanwhile
            pending = {topology_id for topology_id, entry in self._watched.items() if entry.is_start_pending}
        try:
            for state in topologies.list_topologies(self._store):
                if state.cluster == self._homes.cluster:
                    self._learn(state)
            return {owner.topology_id for owner in shown if owner.topology_id not in pending and self._is_over(owner)}
        except StoreError as error:
            log.warning("the state store does not answer; continuing with what is known: %s", error)
            return set()

    def _learn(self, state: ExecutionState) -> None:
        try:
            definition, packing = topologies.read_plans(self._store, state.topology)
        except StoreUnavailable:
            raise
        except StoreError as error:  # killed at this moment, or damaged
            log.warning("%s", error)
            return
        try:
            folder = self._homes.of(state)
        except NotAllowed as error:
            log.warning("%s", error)
            return
        topology = self._reconciler(state.topology_id)
        if topology is None and (launch := load_launch(folder)) is not None and launch.topology_id == state.topology_id:
            topology = self._known(launch, folder)
        if topology is None or definition.id != state.topology_id:
            return
        granted = read_granted(folder)
        if granted is None or granted.definition.id != state.topology_id:
            self._warn_once(state, "its record of granted resources is missing; submit it again")
            return
        entry = self._entry(state.topology_id)
        record_differs = granted != Granted(definition, packing)
        if record_differs and entry.record_differs:  # twice: an update writes record and grant one after the other
            self._warn_once(state, "its record differs from the submitted one, which takes precedence")
        entry.record_differs = record_differs
        topology.plans(granted.definition, granted.packing)

    def _warn_once(self, state: ExecutionState, warning: str) -> None:
        entry = self._entry(state.topology_id)
        if not entry.has_warning:
            entry.has_warning = True
            log.warning("%s: %s", state.topology, warning)

    def _is_over(self, owner: TopologyOwner) -> bool:
        try:
            return is_killed(self._store, owner.topology, owner.topology_id, known_store_id(self._homes.root))
        except DamagedNode:
            return False

    def _known(self, launch: Launch, folder: Path) -> TopologyReconciler:
        with self._lock:
            entry = self._watched.setdefault(launch.topology_id, WatchedTopology())
            if entry.reconciler is None:
                entry.reconciler = TopologyReconciler(self._engine, self._options.image, launch, folder, self._pool)
            return entry.reconciler

    def _entry(self, topology_id: str) -> WatchedTopology:
        """Return the entry of a topology, which is added if it does not exist."""
        with self._lock:
            return self._watched.setdefault(topology_id, WatchedTopology())

    def _reconciler(self, topology_id: str) -> TopologyReconciler | None:
        entry = self._watched.get(topology_id)
        return entry.reconciler if entry is not None else None

    def _reconcilers(self) -> list[TopologyReconciler]:
        with self._lock:
            return [entry.reconciler for entry in self._watched.values() if entry.reconciler is not None]

    def _observe_one(self, topology: TopologyReconciler, *, stop: bool = False) -> list[EngineContainer]:
        """Observe and reconcile one topology; return its remaining containers."""
        taken_ms = now_ms()
        seen = [s for s in self._engine.containers() if s.topology_id == topology.launch.topology_id]
        topology.reconcile(seen, taken_ms, stop=stop, wait_seconds=POLL_SECONDS)
        return seen

    def _clear_up(
        self,
        over: set[str],
        seen: Sequence[EngineContainer],
        networks: Mapping[str, TopologyOwner],
        volumes: Mapping[str, TopologyOwner],
    ) -> None:
        """Remove the rest of topologies that were killed while no process watched or whose kill failed."""
        for container in seen:
            if container.topology_id in over and self._reconciler(container.topology_id) is None:
                log.warning("removing %s: its topology no longer exists", container.name)
                self._engine.remove(container.id)
        running = {container.topology_id for container in seen}
        for topology_id in over - running:
            entry = self._watched.get(topology_id, WatchedTopology())
            if entry.is_start_pending or entry.retains_logs:
                continue
            if entry.reconciler is not None and not entry.reconciler.view.over:
                continue
            with self._lock:
                self._watched.pop(topology_id, None)
            for name in [name for name, owner in networks.items() if owner.topology_id == topology_id]:
                self._engine.remove_network(name)
            for name in [name for name, owner in volumes.items() if owner.topology_id == topology_id]:
                self._engine.remove_volume(name)

    def _join(self, joiners: Sequence[ClusterService], networks: Mapping[str, TopologyOwner]) -> None:
        """Connect restarted services to the topologies' networks."""
        for network, owner in networks.items():
            topology = self._reconciler(owner.topology_id)
            for joiner in joiners:
                if topology is not None and not topology.view.stopping and network not in joiner.networks:
                    log.info("%s joins %s", joiner.alias or joiner.id[:12], network)
                    self._engine.connect(joiner, network)

    def _listen(self, stop: threading.Event) -> None:
        """Wake the watch at each container event. Runs on a thread."""
        since = int(time.time())
        while not stop.is_set():
            until = int(time.time()) + EVENT_SECONDS
            try:
                for _ in self._engine.events(since, until):
                    if stop.is_set():
                        return
                    self._wake.set()
                since = until
            except EngineError:
                stop.wait(OBSERVE_SECONDS)  # the watch reports the error
                since = int(time.time())


def scheduler_of(context: SchedulerContext) -> DockerScheduler:
    """Return the scheduler for an API server."""
    options = DockerOptions.of_environment(context.environment)
    return DockerScheduler(context.store, context.homes, options)
