"""heron_container and the state store: a look now and then, and nothing else.

A look keeps the container's ephemeral node, reads the packing plan when it has changed, and asks whether the
topology was killed and whether its scheduler lives. While nothing happens the store is not asked
(``heron_runtime.state.remembering``). While it is away nothing changes: the container goes on with what it has, and one
that is started meanwhile takes the plan that the last container of this number left on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from heron_control.schedulers.killed import is_killed
from heron_control.schedulers.presence import Presence
from heron_control.schedulers.slurm_node import is_replaced
from heron_runtime.files import replace_file
from heron_runtime.launch import Launch
from heron_runtime.model.plan import PackingPlan, Phase
from heron_runtime.model.records import ContainerLocation
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.state import paths, store_of
from heron_runtime.state.readings import decoded
from heron_runtime.state.remembering import RememberingStore
from heron_runtime.state.store import Node, StateStore, StoreError
from heron_runtime.wire import message_codecs
from heron_runtime.wire.errors import MalformedMessage

LOOK_SECONDS = 1.5
AWAY_LOG_EVERY = 30
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plans:
    """What a container runs by. ``settled``: the topology runs by this packing plan, so what it leaves out may end; an
    update that does not come so far is taken back."""

    packing: PackingPlan
    topology: TopologyDefinition
    settled: bool = True


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the store found. ``plans`` only when they are new."""

    killed: bool
    plans: Plans | None = None
    holder: ContainerLocation | None = None  # who holds this container's node
    scheduler: bool = True
    replaced: bool = False  # this container is of a job that runs anew elsewhere


class StoreLoop:
    """Runs on the event loop; each look is made on a thread."""

    def __init__(self, launch: Launch, container: int, location: ContainerLocation) -> None:
        self._launch = launch
        self._container = container
        self._location = location
        self._store: StateStore | None = None
        self._presence: Presence | None = None
        self._packing: bytes | None = None
        self._settled = True
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()  # the packing plan

    async def run(self, looked: Callable[[Look], None]) -> None:
        """Until cancelled: ``looked`` is called after each look that succeeded, or once with the saved plans."""
        failures = 0
        self._loop = asyncio.get_running_loop()
        while True:
            try:
                look = await asyncio.to_thread(self._look)
            except StoreError as error:
                failures += 1
                if failures % AWAY_LOG_EVERY == 1:
                    log.warning("the state store does not answer; going on without it: %s", error)
                if failures == 1 and self._packing is None:
                    saved = await asyncio.to_thread(self._load)
                    if saved is not None:
                        log.warning("starting by the plan that was saved on disk")
                        looked(Look(False, saved))
            else:
                if failures:
                    log.info("the state store answers again")
                failures = 0
                looked(look)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._changed.wait()
            self._changed.clear()

    async def close(self) -> None:
        """End the session: the node goes at once."""
        store, self._store = self._store, None
        if store is not None:
            await asyncio.to_thread(store.close)

    def _look(self) -> Look:
        launch = self._launch
        if self._store is None:
            store: StateStore = RememberingStore(store_of(launch), self._looked_at())
            store.open()
            self._store = store
            data = message_codecs.CONTAINER_LOCATION.encode(self._location)
            self._presence = Presence(store, paths.container(launch.topology, self._container), data)
            store.watch(paths.packing_plan(launch.topology), self._wake)
        store = self._store
        assert self._presence is not None
        if is_killed(store, launch.topology, launch.topology_id):
            # The scheduler's node still counts: without it somebody has to clean up behind us.
            return Look(True, scheduler=self._has_scheduler(store))
        location = replace(self._location, metrics_port=self._metrics_port())
        self._presence.data = message_codecs.CONTAINER_LOCATION.encode(location)
        if is_replaced(launch):
            return Look(False, replaced=True)
        data = self._presence.keep()
        holder = message_codecs.CONTAINER_LOCATION.decode(data) if data else None
        return Look(False, self._read_plans(store), holder, self._has_scheduler(store))

    def _looked_at(self) -> list[str]:
        """The nodes of each look."""
        name = self._launch.topology
        own = [paths.execution_state(name), paths.container(name, self._container), paths.packing_plan(name)]
        return [*own, paths.scheduler(name)] if self._looks_after_scheduler() else own

    def _looks_after_scheduler(self) -> bool:
        """False if it is the control plane's: that is none of a container's concern, and may not be looked at."""
        return bool(setting(self._launch.settings, Keys.HERON_SCHEDULER) == "local")

    def _has_scheduler(self, store: StateStore) -> bool:
        """False if this container should look after a scheduler that is gone."""
        return not self._looks_after_scheduler() or store.get(paths.scheduler(self._launch.topology)) is not None

    def _metrics_port(self) -> int:
        """Where Prometheus finds this container's metrics; 0 as long as nobody serves them."""
        try:
            text = self._launch.prometheus_port_file(self._container).read_text().strip()
        except OSError:
            return 0
        return int(text) if text.isdecimal() and int(text) <= 65_535 else 0

    def _read_plans(self, store: StateStore) -> Plans | None:
        places = paths.packing_plan(self._launch.topology), paths.topology(self._launch.topology)
        packing = store.get(places[0])
        if packing is None or (packing.data == self._packing and self._settled):
            return None
        first, known, settled = self._packing is None, packing.data == self._packing, self._is_settled(store, packing)
        if known and not settled:
            return None
        topology = store.get(places[1])
        if topology is None:
            return None  # it is being killed at this moment
        plan = decoded(places[0], packing, message_codecs.PACKING_PLAN)
        plans = Plans(plan, decoded(places[1], topology, message_codecs.TOPOLOGY), first or settled)
        self._packing, self._settled = packing.data, settled
        self._save("packing", packing.data)
        self._save("topology", topology.data)
        return plans

    def _wake(self, _: str) -> None:
        """On a thread of the store's."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: this process ends
                self._loop.call_soon_threadsafe(self._changed.set)

    def _is_settled(self, store: StateStore, packing: Node) -> bool:
        """Whether the topology runs by this packing plan."""
        path = paths.physical_plan(self._launch.topology)
        plan = decoded(path, store.get(path), message_codecs.PHYSICAL_PLAN)
        if plan is None:
            return False
        runs = plan.generation.number == 0 or plan.generation.phase is Phase.RUNNING
        return runs and message_codecs.PACKING_PLAN.encode(plan.packing) == packing.data

    def _saved(self, what: str) -> Path:
        return Path(self._launch.runtime_dir, f"{what}{self._container}.saved")

    def _save(self, what: str, data: bytes) -> None:
        path = self._saved(what)
        try:
            replace_file(path, data)
        except OSError as error:
            log.warning("cannot save the %s in %s: %s", what, path, error)

    def _load(self) -> Plans | None:
        try:
            packing = message_codecs.PACKING_PLAN.decode(self._saved("packing").read_bytes())
            topology = message_codecs.TOPOLOGY.decode(self._saved("topology").read_bytes())
        except (OSError, MalformedMessage):
            return None
        if topology.id != self._launch.topology_id:
            return None
        return Plans(packing, topology)
