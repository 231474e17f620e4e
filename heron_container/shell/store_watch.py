"""Observation of the state store by heron_container.

Each observation keeps the container's ephemeral node, reads the packing plan if it has changed, and checks whether the
topology was killed and whether its scheduler lives. Unchanged nodes are not requested
(``heron_runtime.state.wrappers``). While the store is unavailable nothing changes: the container continues with its
plan, and one that starts meanwhile uses the plan that the last container of this number saved on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from heron_control.schedulers.node_registration import NodeRegistration, is_killed
from heron_control.schedulers.slurm_node import is_replaced
from heron_runtime.files import replace_file
from heron_runtime.launch import Launch
from heron_runtime.model.plan import GenerationPhase, PackingPlan
from heron_runtime.model.records import ContainerLocation
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.state import paths, store_of
from heron_runtime.state.store import Node, StateStore, StoreError, with_hint
from heron_runtime.state.topologies import decoded
from heron_runtime.state.wrappers import CachedStore
from heron_runtime.wire import message_codecs
from heron_runtime.wire.errors import MalformedMessage

OBSERVE_SECONDS = 1.5
AWAY_LOG_EVERY = 30
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ContainerPlans:
    """Packing plan and definition that a container runs by.

    If ``settled``, the topology runs by this packing plan, so processes that it leaves out may end. An update that does
    not reach this state is rolled back.
    """

    packing: PackingPlan
    topology: TopologyDefinition
    settled: bool = True


@dataclass(frozen=True, slots=True)
class StoreObservation:
    """Result of one observation. ``plans`` is set only if they are new."""

    killed: bool
    plans: ContainerPlans | None = None
    holder: ContainerLocation | None = None  # process that holds this container's node
    scheduler: bool = True
    replaced: bool = False  # the Slurm job of this container was restarted elsewhere


class StoreWatch:
    """Loop of observations on the event loop. Each observation is made on a thread."""

    def __init__(self, launch: Launch, container: int, location: ContainerLocation) -> None:
        self._launch = launch
        self._container = container
        self._location = location
        self._store: StateStore | None = None
        self._presence: NodeRegistration | None = None
        self._packing: bytes | None = None
        self._settled = True
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()  # set when the packing plan has changed

    async def run(self, on_observation: Callable[[StoreObservation], None]) -> None:
        """Observe until cancelled.

        Calls ``on_observation`` after each successful observation, or once with the saved plans.
        """
        failures = 0
        self._loop = asyncio.get_running_loop()
        while True:
            try:
                observed = await asyncio.to_thread(self._observe)
            except StoreError as error:
                failures += 1
                if failures % AWAY_LOG_EVERY == 1:
                    log.warning("state store unavailable; continuing without it: %s", with_hint(error))
                if failures == 1 and self._packing is None:
                    saved = await asyncio.to_thread(self._load)
                    if saved is not None:
                        log.warning("starting with the plan saved on disk")
                        on_observation(StoreObservation(False, saved))
            else:
                if failures:
                    log.info("state store available again")
                failures = 0
                on_observation(observed)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(OBSERVE_SECONDS):
                    await self._changed.wait()
            self._changed.clear()

    async def close(self) -> None:
        """End the session, which removes the node at once."""
        store, self._store = self._store, None
        if store is not None:
            await asyncio.to_thread(store.close)

    def _observe(self) -> StoreObservation:
        launch = self._launch
        if self._store is None:
            store: StateStore = CachedStore(store_of(launch), self._watched_paths())
            store.open()
            self._store = store
            data = message_codecs.CONTAINER_LOCATION.encode(self._location)
            self._presence = NodeRegistration(store, paths.container(launch.topology, self._container), data)
            store.watch(paths.packing_plan(launch.topology), self._wake)
        store = self._store
        assert self._presence is not None
        if is_killed(store, launch.topology, launch.topology_id, launch.store_id):
            # The scheduler's node still counts: if it is missing, this container has to arrange the clean-up.
            return StoreObservation(True, scheduler=self._has_scheduler(store))
        location = replace(self._location, metrics_port=self._metrics_port())
        self._presence.data = message_codecs.CONTAINER_LOCATION.encode(location)
        if is_replaced(launch):
            return StoreObservation(False, replaced=True)
        data = self._presence.keep()
        holder = message_codecs.CONTAINER_LOCATION.decode(data) if data else None
        return StoreObservation(False, self._read_plans(store), holder, self._has_scheduler(store))

    def _watched_paths(self) -> list[str]:
        """Return the nodes read by each observation."""
        name = self._launch.topology
        own = [paths.execution_state(name), paths.container(name, self._container), paths.packing_plan(name)]
        return [*own, paths.scheduler(name)] if self._watches_scheduler() else own

    def _watches_scheduler(self) -> bool:
        """Return False if the scheduler belongs to the control plane.

        Containers do not watch such a scheduler, and may not read its node.
        """
        return bool(setting(self._launch.settings, Keys.HERON_SCHEDULER) == "local")

    def _has_scheduler(self, store: StateStore) -> bool:
        """Return False if this container must restart a scheduler."""
        return not self._watches_scheduler() or store.get(paths.scheduler(self._launch.topology)) is not None

    def _metrics_port(self) -> int:
        """Return the port of this container's Prometheus metrics; 0 if they are not served."""
        try:
            text = self._launch.prometheus_port_file(self._container).read_text().strip()
        except OSError:
            return 0
        return int(text) if text.isdecimal() and int(text) <= 65_535 else 0

    def _read_plans(self, store: StateStore) -> ContainerPlans | None:
        places = paths.packing_plan(self._launch.topology), paths.topology(self._launch.topology)
        packing = store.get(places[0])
        if packing is None or (packing.data == self._packing and self._settled):
            return None
        first, known, settled = self._packing is None, packing.data == self._packing, self._is_settled(store, packing)
        if known and not settled:
            return None
        topology = store.get(places[1])
        if topology is None:
            return None  # the topology is being killed
        plan = decoded(places[0], packing, message_codecs.PACKING_PLAN)
        plans = ContainerPlans(plan, decoded(places[1], topology, message_codecs.TOPOLOGY), first or settled)
        self._packing, self._settled = packing.data, settled
        self._save("packing", packing.data)
        self._save("topology", topology.data)
        return plans

    def _wake(self, _: str) -> None:
        """Wake the loop. Called on a thread of the store."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed because this process ends
                self._loop.call_soon_threadsafe(self._changed.set)

    def _is_settled(self, store: StateStore, packing: Node) -> bool:
        """Return True if the topology runs by this packing plan."""
        path = paths.physical_plan(self._launch.topology)
        plan = decoded(path, store.get(path), message_codecs.PHYSICAL_PLAN)
        if plan is None:
            return False
        runs = plan.generation.number == 0 or plan.generation.phase is GenerationPhase.RUNNING
        return runs and message_codecs.PACKING_PLAN.encode(plan.packing) == packing.data

    def _saved(self, what: str) -> Path:
        return Path(self._launch.runtime_dir, f"{what}{self._container}.saved")

    def _save(self, what: str, data: bytes) -> None:
        path = self._saved(what)
        try:
            replace_file(path, data)
        except OSError as error:
            log.warning("cannot save the %s in %s: %s", what, path, error)

    def _load(self) -> ContainerPlans | None:
        try:
            packing = message_codecs.PACKING_PLAN.decode(self._saved("packing").read_bytes())
            topology = message_codecs.TOPOLOGY.decode(self._saved("topology").read_bytes())
        except (OSError, MalformedMessage):
            return None
        if topology.id != self._launch.topology_id:
            return None
        return ContainerPlans(packing, topology)
