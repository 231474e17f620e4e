"""Containers of one topology on an engine: feeds the container table with observations and carries out its orders.

``reconcile`` is the only entry for facts: it compares the containers that the engine shows with the table. One that ran
and is missing was removed by another program. For one that has exited the reason is requested, then it is removed and
may be restarted. Containers found at the first observation, of an earlier scheduler, are adopted. Starts, which take
long, run concurrently. One lock guards the table and is held during engine calls. Others read a
``TopologySnapshot``, which is immutable and replaced at every change, without waiting.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from heron_control.schedulers import container_spec
from heron_control.schedulers.containers import (
    ContainerStage,
    ContainerTable,
    Effect,
    KillGroup,
    StartContainer,
    TerminateContainer,
    container_statuses,
)
from heron_control.schedulers.engine import ContainerEngine, ContainerExit, EngineContainer, EngineError
from heron_control.schedulers.identity import exit_in_words
from heron_control.schedulers.timers import now_ms
from heron_runtime.launch import Launch
from heron_runtime.model.containers import containers_of, standbys_of
from heron_runtime.model.ids import holds_master
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.settings import Keys, MiB, setting
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.wire.container import ProcessState, ProcessStatus

_RUNS = ("starting", "running", "paused", "restarting")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopologySnapshot:
    """Snapshot of a topology. ``deadline_ms``: when work is due; ``over``: no container runs or will run."""

    statuses: tuple[ProcessStatus, ...] = ()
    deadline_ms: int | None = None
    stopping: bool = False
    over: bool = False


class TopologyReconciler:
    """Containers of one submission. ``folder`` holds its secret, key and credential."""

    def __init__(
        self, engine: ContainerEngine, image: str, launch: Launch, folder: Path, pool: ThreadPoolExecutor
    ) -> None:
        self.launch = launch
        self._engine = engine
        self._image = image
        self._folder = folder
        self._pool = pool
        self._core = ContainerTable.of(launch.settings)
        self._lock = threading.RLock()
        self._plans: tuple[TopologyDefinition, PackingPlan] | None = None
        self._ids: dict[int, str] = {}  # container number to the engine's id
        self._serial = 0  # handles for the core, which are never reused, unlike process ids
        self._pids: dict[int, int] = {}
        self._strays: set[str] = set()
        self._adopted = False
        self._ready = False
        self._expected = 0
        self._shown: dict[int, EngineContainer] = {}  # as of the last observation
        self.view = TopologySnapshot()

    @property
    def name(self) -> str:
        """Name of its network and volume."""
        return container_spec.shared_name(self._engine.project, self.launch)

    def plans(self, definition: TopologyDefinition, packing: PackingPlan) -> None:
        """Set the plans to carry out."""
        self._plans = definition, packing

    def reconcile(
        self, seen: Sequence[EngineContainer], taken_ms: int, *, stop: bool = False, wait_seconds: float = 0.0
    ) -> None:
        """Compare the table with what the engine showed at ``taken_ms``, and act.

        Does nothing if another thread holds the lock for longer than ``wait_seconds``. ``stop`` ends the topology.

        Raises:
            EngineError: An engine call failed.
        """
        if not self._lock.acquire(timeout=wait_seconds):
            return
        try:
            self._shown = {
                container.number: container for container in seen if container.topology_id == self.launch.topology_id
            }
            self._reconcile(seen, taken_ms, stop)
        finally:
            self._show()
            self._lock.release()

    def _reconcile(self, seen: Sequence[EngineContainer], taken_ms: int, stop: bool) -> None:
        if not self._adopted:
            self._adopt(self._shown)
            self._adopted = True
        self._remove_strays(seen)
        if stop:
            self._act(self._core.stop(now_ms()))
        elif self._plans is not None:
            definition, packing = self._plans
            numbers = containers_of(packing, definition.config)
            self._act(self._core.want(now_ms(), numbers))
            self._expect(len(numbers))
        self._compare(self._shown, taken_ms)
        self._act(self._core.tick(now_ms()))

    def restart(self, container: int) -> dict[int, int]:
        """Restart one container, or all (-1); return their earlier restart counts.

        Raises:
            KeyError: The container is unknown.
            EngineError: An engine call failed.
        """
        with self._lock:
            wanted = [number for number, row in self._core.rows.items() if row.wanted]
            numbers = wanted if container < 0 else [container]
            if not set(numbers) <= set(wanted):
                raise KeyError(container)
            before = {number: self._core.rows[number].restarts for number in numbers}
            for number in numbers:
                log.info("restarting %s, as asked", self._host(number))
                self._act(self._core.restart(now_ms(), number))
            self._show()
            return before

    def restarted(self, before: Mapping[int, int]) -> bool:
        """Return True when all of these have been restarted, or the topology has ended."""
        with self._lock:
            rows = self._core.rows
            return self._core.stopping or all(
                rows[n].restarts > k and rows[n].group and not self._is_starting(n) for n, k in before.items()
            )

    def _is_starting(self, number: int) -> bool:
        """Return True until the engine shows that the container has been started."""
        container = self._shown.get(number)
        return container is None or container.id != self._ids.get(number) or container.state == "starting"

    def _expect(self, containers: int) -> None:
        if containers != self._expected:
            self._engine.expect(self.name, container_spec.owner_labels(self._engine.project, self.launch), containers)
            self._expected = containers

    # Facts.

    def _adopt(self, mine: dict[int, EngineContainer]) -> None:
        for number, container in sorted(mine.items()):
            alive = container.state in _RUNS
            log.info("%s exists already (%s)", container.name, container.state)
            self._ids[number] = container.id
            self._serial += 1
            self._act(self._core.adopt(now_ms(), number, self._serial, alive))
            if not alive:  # it died while no scheduler watched
                self._core.rows[number].last_error = self._reason(self._engine.ending(container.id))

    def _remove_strays(self, seen: Sequence[EngineContainer]) -> None:
        """Remove containers that were not in the table twice in a row, left by a failed start."""
        known = set(self._ids.values())
        strays = {s.id for s in seen if s.topology_id == self.launch.topology_id and s.id not in known}
        for container in strays & self._strays:
            log.warning("removing an unknown container: %s", container)
            self._engine.remove(container)
        self._strays = strays

    def _compare(self, mine: dict[int, EngineContainer], taken_ms: int) -> None:
        for number, row in sorted(self._core.rows.items()):
            if row.born_ms >= taken_ms or number not in self._ids:
                continue  # it is younger than the observation
            container = mine.get(number)
            if container is None or container.id != self._ids[number]:
                self._ended(number, "it vanished: removed outside of Heronry")
                self._gone(number)
            elif container.state not in _RUNS:
                if row.stage in (ContainerStage.UP, ContainerStage.STOPPING):
                    self._ended(number, self._reason(self._engine.ending(container.id)))
                self._engine.remove(container.id)
                self._gone(number)

    def _ended(self, number: int, reason: str) -> None:
        is_requested = self._core.rows[number].stage is ContainerStage.STOPPING
        (log.info if is_requested else log.error)("%s has ended: %s", self._host(number), reason)
        self._act(self._core.ended(now_ms(), number, reason))

    def _gone(self, number: int) -> None:
        self._ids.pop(number, None)
        self._pids.pop(number, None)
        self._act(self._core.gone(now_ms(), number))

    @staticmethod
    def _reason(ending: ContainerExit) -> str:
        if ending.out_of_memory:
            return (
                f"out of memory (exit {ending.exit_code}): it needed more than its limit of "
                f"{ending.limit_bytes // MiB} MiB; raise topology.component.rammap or topology.container.ram"
            )
        if ending.exit_code is None:
            return ending.last_line or "it was stopped"
        if ending.exit_code == 137 and ending.out_of_memory is None:
            return f"killed by SIGKILL, perhaps since it needed more than its limit of {ending.limit_bytes // MiB} MiB"
        if ending.exit_code > 128:
            return exit_in_words(128 - ending.exit_code, ending.last_line)
        return exit_in_words(ending.exit_code, ending.last_line)

    # Effects.

    def _act(self, effects: Iterable[Effect]) -> None:
        """Carry out all effects, even if one fails. A signal that was not sent is repeated.

        Raises:
            EngineError: An engine call failed.
        """
        starts = []
        failed: EngineError | None = None
        for effect in effects:
            try:
                match effect:
                    case StartContainer(number):
                        starts.append(number)
                    case TerminateContainer(number, _):
                        log.info("stopping %s", self._host(number))
                        self._engine.signal(self._ids[number], "SIGTERM")
                    case KillGroup(number, _):
                        log.warning("killing %s", self._host(number))
                        self._engine.signal(self._ids[number], "SIGKILL")
            except EngineError as error:
                failed = error
        if starts:
            self._start_all(starts)
        if failed is not None:
            raise failed

    def _start_all(self, numbers: Sequence[int]) -> None:
        try:
            self._make_ready()
        except EngineError as error:
            for number in numbers:
                self._not_started(number, str(error))
            return
        for number, outcome in zip(numbers, self._pool.map(self._start, numbers), strict=True):
            if isinstance(outcome, Exception):
                self._not_started(number, str(outcome))
                continue
            self._ids[number], self._pids[number] = outcome
            self._serial += 1
            self._act(self._core.born(now_ms(), number, self._serial))

    def _not_started(self, number: int, reason: str) -> None:
        log.error("%s was not started: %s", self._host(number), reason)
        self._act(self._core.ended(now_ms(), number, f"not started: {reason}"))
        self._act(self._core.gone(now_ms(), number))

    def _make_ready(self) -> None:
        """Create the network, connect its services, and create the volume."""
        if self._ready or self._plans is None:
            return
        egress = setting(self._plans[0].config, Keys.TOPOLOGY_NETWORK_EGRESS)
        marks = container_spec.owner_labels(self._engine.project, self.launch)
        self._engine.make_network(self.name, marks, internal=not egress)
        self._engine.make_volume(self.name, marks)
        for joiner in self._engine.joiners():
            if self.name not in joiner.networks:
                self._engine.connect(joiner, self.name)
        self._ready = True

    def _start(self, number: int) -> tuple[str, int] | Exception:
        """Start a container. Runs on a thread of the pool."""
        assert self._plans is not None
        definition, packing = self._plans
        restarts = self._core.rows[number].restarts
        log.info("starting %s%s", self._host(number), f" (restart {restarts})" if restarts else "")
        try:
            limits = container_spec.container_limits(packing, definition.config, number, self._engine.cores())
            standbys = len(standbys_of(definition.config))
            spread = 1 + standbys if standbys and holds_master(number) else 0
            spec = container_spec.build_container_spec(
                self._engine.project, self.launch, number, self._image, limits, spread=spread
            )
            container = self._engine.create(spec, self._files(number))
            try:
                return container, self._engine.start(container)
            except EngineError:
                self._engine.remove(container)
                raise
        except (EngineError, OSError, KeyError) as error:
            self._ready = False  # the network may have been removed
            return error

    def _files(self, number: int) -> dict[str, bytes]:
        """Return the files that a container needs at its start."""
        host = self._engine.host(self._host(number), self.name)
        launch = container_spec.launch_of(self.launch, host, number)
        files = {name: (self._folder / name).read_bytes() for name in (container_spec.SECRET, container_spec.KEY)}
        files[container_spec.LAUNCH_FILE] = launch.to_json().encode()
        if launch.store_credential:
            files[container_spec.CREDENTIAL] = (self._folder / container_spec.CREDENTIAL).read_bytes()
        return files

    def _host(self, number: int) -> str:
        return container_spec.container_host(self._engine.project, self.launch, number)

    # View.

    def _show(self) -> None:
        statuses = []
        for status in container_statuses(self._core, now_ms(), time.time()):
            container = self._shown.get(status.container)
            status = replace(status, pid=self._pids.get(status.container, 0))
            if container is not None and status.state is ProcessState.RUNNING:
                status = self._out_of_order(status, container)
            statuses.append(status)
        core = self._core
        over = core.stopping and core.all_over()
        self.view = TopologySnapshot(tuple(statuses), core.next_deadline_ms(), core.stopping, over)

    def _out_of_order(self, status: ProcessStatus, container: EngineContainer) -> ProcessStatus:
        """Return the status of a container that exists but cannot work."""
        if container.state == "starting":
            return replace(status, state=ProcessState.STARTING, last_error=container.trouble or status.last_error)
        cure = ""
        if container.state == "paused":
            cure = f"paused outside of Heronry: docker unpause {container.name}"
        elif self.name not in container.networks:
            cure = (
                f"disconnected from its network outside of Heronry: docker network connect {self.name} {container.name}"
            )
        return replace(status, state=ProcessState.STOPPED, last_error=cure) if cure else status
