"""All processes of one topology in one simulation, and their shared store, network and books."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.model.records import ExecutionState
from heron_runtime.model.topology import GroupingKind, StreamSchema, TopologyState
from heron_runtime.state import paths
from heron_runtime.state.memory import MemoryStore, MemoryTree
from heron_runtime.state.store import Create
from heron_runtime.wire import message_codecs

from .checkers import Checkers
from .instances import SimInstance
from .masters import SimMaster
from .oracle import Oracle
from .programs import Program, SimSpout, make_component
from .simulation import SimProcess, Simulation
from .sources import Source
from .stream_managers import SimStreamManager
from .wire import Network

KIB = 1024
PROBE_MS = 250.0
UPLOAD_WINDOW = 64 * KIB


class Cluster:
    """Simulated cluster, built from a program; ``start`` starts everything."""

    session_timeout_ms = 3000.0
    master_lease_ms = 3000

    def __init__(self, world: Simulation, program: Program, masters: int = 1) -> None:
        self.world = world
        self.program = program
        self.topology = program.topology
        self.tracked = self.topology.config.get("topology.reliability.mode") == "ATLEAST_ONCE"
        self.settings: dict[str, Any] = {
            "heron.streammgr.upload.window.bytes": UPLOAD_WINDOW,
            "heron.streammgr.peer.window.bytes": 64 * KIB,
            "heron.streammgr.partition.lease.secs": 6.0,
        }
        self.tree = MemoryTree()
        self.network = Network(world)
        self.swarm = 0  # number of kinds of faults; 0: all kinds
        self._task_component = {i.task: i.component for i in program.packing.instances()}
        self.oracle = Oracle(world, self.topology, {c.name: self.tasks_of(c.name) for c in self.topology.components})
        self.checkers = Checkers(self)
        self._addresses: dict[int, SimProcess] = {}
        self.sources = {
            task: Source(program.messages, program.gap_ms)
            for task, name in self._task_component.items()
            if self.topology.component(name).is_spout
        }
        self.masters = [SimMaster(world, self, replica) for replica in range(masters)]
        self.stream_managers = {
            c.container: SimStreamManager(world, self, c.container) for c in program.packing.containers
        }
        make: Callable[[SimInstance], Any] = make_component
        self.instances = {
            instance.task: SimInstance(world, self, instance.task, container.container, make)
            for container in program.packing.containers
            for instance in container.instances
        }

    def start(self) -> None:
        """Submit the topology, and start every process at its own time."""
        store = MemoryStore(self.tree)
        store.open()
        name, topology_id = self.topology.name, self.topology.id
        execution = ExecutionState(name, topology_id, "sim", "me", "default", TopologyState.RUNNING)
        store.commit(
            [
                Create(paths.topology(name), message_codecs.TOPOLOGY.encode(self.topology)),
                Create(paths.packing_plan(name), message_codecs.PACKING_PLAN.encode(self.program.packing)),
                Create(paths.execution_state(name), message_codecs.EXECUTION_STATE.encode(execution)),
            ]
        )
        store.close()
        for process in self.processes():
            self.world.after(self.world.between(0, 200), process.start)
        self.world.after(PROBE_MS, self._probe)

    def _probe(self) -> None:
        self.checkers.probe()
        self.world.after(PROBE_MS, self._probe)

    def processes(self) -> list[SimProcess]:
        """Return all processes that can die."""
        return [*self.masters, *self.stream_managers.values(), *self.instances.values()]

    def plan_stored(self, plan: PhysicalPlan) -> None:
        """Record a plan that a master has stored."""

    def replaced(self, process: SimProcess) -> bool:
        """Return True if an update has removed the process; this cluster has no updates."""
        return False

    def restart_after_leave(self, process: SimProcess) -> float | None:
        """Return when a process that was told to leave restarts; None: never."""
        return None

    def component_of(self, task: int) -> str:
        """Return the component of a task."""
        return self._task_component[task]

    def tasks_of(self, component: str) -> tuple[int, ...]:
        """Return the tasks of a component."""
        return tuple(sorted(task for task, name in self._task_component.items() if name == component))

    def readers(self, component: str, stream: str) -> list[int]:
        """Return the tasks that read a direct stream."""
        found = [
            task
            for edge in self.topology.edges()
            if (edge.source, edge.stream) == (component, stream) and edge.grouping.kind is GroupingKind.DIRECT
            for task in self.tasks_of(edge.destination)
        ]
        return sorted(found)

    def pick_reader(self, rng: random.Random, component: str, out: StreamSchema) -> int | None:
        """Return a task for a direct emit; None for other streams and for streams without readers."""
        readers = self.readers(component, out.name) if out.direct else []
        return rng.choice(readers) if readers else None

    # Addresses and names.

    def new_address(self, process: SimProcess) -> int:
        """Return a port for a new life of a process."""
        port = 10_000 + len(self._addresses)
        self._addresses[port] = process
        return port

    def at_address(self, port: int) -> SimProcess | None:
        """Return the process that listens there now; None for a life that is over."""
        process: Any = self._addresses.get(port)
        return process if process is not None and process.alive and process.port == port else None

    def next_incarnation(self, before: int) -> int:
        """Return the incarnation of an instance's next life. Root numbers often do not show the difference."""
        return before + self.world.rng.choice((1, 1 << 16))

    # The state of the cluster.

    def ask(self, state: TopologyState) -> None:
        """Activate or deactivate the topology through the current leader."""
        for master in self.masters:
            if master.leading and not master.paused:
                self.world.log("user", f"asks for {state}")
                master.ask(state)

    def heal(self) -> None:
        """End all faults: every process runs, every link and the store respond, user code behaves."""
        self.world.log("world", "heals")
        self.program.calm = True
        self.program.slow_ms.clear()
        self.network.heal()
        for channel in list(self.network.channels):
            for end in channel.ends:
                end.data.tamper("")
                end.control.tamper("")
            # The next packet reveals a gap; if credit ran out with the gap, there may be no next packet.
            if any(end.data.swallowed for end in channel.ends):
                channel.cut("a packet was lost")
        for process in self.processes():
            process.resume()
            if not process.alive:
                self.world.after(self.world.between(50, 500), process.start)
        for master in self.masters:
            if master.alive:
                master.store.restore_connection()
        for source in self.sources.values():
            source.hurry(self.world.now_ms)

    def unsettled(self) -> list[str]:
        """Return what has not come to rest yet; an empty list when all is well."""
        found = [f"{p.name} is not running" for p in self.processes() if not p.alive]
        found += self._unsettled_control()
        channels = self.network.channels
        found += [f"a broken link of {c.ends[0].process.name} is not noticed" for c in channels if c.half_open]
        found += [f"packets of {c.ends[0].process.name} are under way" for c in channels if c.data_busy]
        for task, source in self.sources.items():
            if not source.done:
                found.append(f"the source of task {task} has {source.total - len(source.finished)} left")
        for manager in self.stream_managers.values():
            if not manager.alive:
                continue
            core = manager.core
            if core.trackers.live:
                found.append(f"{manager.name} tracks {core.trackers.live} roots")
            if core.causes.union():
                found.append(f"{manager.name} knows causes {[str(c) for c in core.causes.union()]}")
            if any(link.weight or link.settlements for link in _links(manager)):
                found.append(f"{manager.name} has queued packets")
        for instance in self.instances.values():
            if instance.alive and not instance.idle():
                found.append(f"{instance.name} is not idle")
            if instance.is_spout and instance.paused_by_pressure:
                found.append(f"{instance.name} is paused")
            executor: Any = instance.executor
            if instance.is_spout and executor is not None and executor.pending.count:
                found.append(f"{instance.name} has {executor.pending.count} roots pending")
        return found

    def _unsettled_control(self) -> list[str]:
        leaders = [master for master in self.masters if master.leading]
        if len(leaders) != 1:
            return [f"{len(leaders)} masters lead"]
        plan = leaders[0].core.plan
        if plan is None or plan.state is not TopologyState.RUNNING:
            return ["no plan, or the topology is not active"]
        found = []
        for manager in self.stream_managers.values():
            if manager.alive and (manager.core.version != plan.version or not manager.core.is_linked()):
                state = "linked" if manager.core.is_linked() else "not linked"
                found.append(f"{manager.name} has plan {manager.core.version} of {plan.version} and is {state}")
        for instance in self.instances.values():
            if instance.alive and instance.plan_version != plan.version:
                found.append(f"{instance.name} has plan {instance.plan_version} of {plan.version}")
        return found


def _links(manager: SimStreamManager) -> list[Any]:
    return [neighbour.link for neighbour in manager.core.connections.all()]


__all__ = ["Cluster", "SimSpout"]
