"""Updates of a running topology without state: tasks move between containers, and perhaps back again.

The seed selects the kind of simulation:

| seed | kind |
|---|---|
| even | no faults: no root fails, no tuple is lost, unless a plan reports that it was not drained |
| odd | masters die, lose the store or answers; processes stop for a moment; the same invariants hold |
| 5 n + 3 | bolts hold tuples, or are slow, and drains time out: the topology must come to rest anyway |

The cluster also replaces ``heron_container``: a task's process is started where the packing plan places it, and one
that is told to leave restarts if it is placed there by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from heron_runtime.model.dataflow import FailKind
from heron_runtime.model.plan import ContainerPlan, PackingPlan, PhysicalPlan, UpdatePhase
from heron_runtime.state import topologies
from heron_runtime.state.memory import MemoryStore

from .cluster import Cluster
from .faults import Faults
from .instances import SimInstance
from .programs import Program, make_component, random_program
from .schedule import QUIET_MS, come_to_rest, watched
from .simulation import SimProcess, Simulation, Violation

LAST_UPDATE_MS = 6_000.0
BY_USER = (FailKind.FAILED, FailKind.EXCEPTION)


class UpdatedCluster(Cluster):
    """Cluster whose tasks move. ``undrained``: what plans reported as not drained."""

    def __init__(self, world: Simulation, program: Program, masters: int) -> None:
        super().__init__(world, program, masters)
        self.packing = program.packing
        self.undrained: list[str] = []
        self.steps: list[UpdatePhase] = []  # of the plans that were stored
        self._homes = {(task, one.host): one for task, one in self.instances.items()}
        for (_, container), one in self._homes.items():
            one.life = 1_000 * container  # lives of a task differ between containers

    def update(self, packing: PackingPlan) -> None:
        """Start an update, as the command line does."""
        store = MemoryStore(self.tree)
        store.open()
        name = self.topology.name
        topologies.update(store, self.topology, packing, topologies.plan_versions(store, name))
        store.close()
        self.packing = packing
        where = {i.task: c.container for c in packing.containers for i in c.instances}
        self.world.log("user", f"wants tasks there: {where}")
        for task, container in where.items():
            one = self._homes.get((task, container))
            if one is None:
                one = self._homes[task, container] = SimInstance(self.world, self, task, container, make_component)
                one.life = 1_000 * container
            self.instances[task] = one
            if not one.alive:
                self.world.after(self.world.between(10, 800), lambda one=one: self._start(one))

    def _start(self, one: SimInstance) -> None:
        if self.instances[one.task] is one:
            one.start()

    def replaced(self, process: SimProcess) -> bool:
        """Return True if the task has moved, or has moved back meanwhile."""
        return isinstance(process, SimInstance)

    def restart_after_leave(self, process: SimProcess) -> float | None:
        """Return a restart at once if the task is wanted in this container again."""
        wanted = isinstance(process, SimInstance) and self.instances[process.task] is process
        return self.world.between(10, 300) if wanted else None

    def unsettled(self) -> list[str]:
        """Return what has not come to rest yet, including the update."""
        found = super().unsettled()
        leader = next((master for master in self.masters if master.leading), None)
        plan = leader.core.plan if leader is not None else None
        if plan is None or plan.packing != self.packing:
            found.append("the new plan has not been made")
        elif plan.standstill is not UpdatePhase.NONE:
            found.append(f"the plan is {plan.standstill}")
        return found

    def plan_stored(self, plan: PhysicalPlan) -> None:
        """Record the phase of a stored plan and its report about the previous one."""
        self.steps.append(plan.standstill)
        if plan.undrained and plan.undrained not in self.undrained:
            self.undrained.append(plan.undrained)
            self.oracle.moves = True


def moved(packing: PackingPlan, world: Simulation) -> PackingPlan:
    """Return a plan with some tasks in other containers; no container is left empty."""
    rng = world.rng
    homes = {i.task: c.container for c in packing.containers for i in c.instances}
    instances = {i.task: i for i in packing.instances()}
    numbers = [c.container for c in packing.containers]
    for task in rng.sample(sorted(homes), rng.randint(1, max(1, len(homes) // 2))):
        left = [other for other, home in homes.items() if home == homes[task] and other != task]
        if left:
            homes[task] = rng.choice(numbers)
    containers = tuple(
        ContainerPlan(n, tuple(instances[task] for task in sorted(homes) if homes[task] == n)) for n in numbers
    )
    return replace(packing, containers=containers)


def make(seed: int, listener: Callable[[str], None] | None = None) -> UpdatedCluster:
    """Return the cluster of a seed, with its updates and faults scheduled."""
    world = Simulation(seed, listener)
    rng = world.rng
    program = random_program(rng, rng.choice((2, 2, 3)))
    stubborn = seed % 5 == 3
    config = {
        **program.topology.config,
        "topology.reliability.mode": rng.choice(("ATLEAST_ONCE", "ATMOST_ONCE")),
        "topology.message.timeout.secs": 60,
        "topology.update.drain.secs": rng.choice((0.3, 1.0)) if stubborn else 25.0,
    }
    program.topology = replace(program.topology, config=config)
    for name, habits in program.habits.items():  # an exception restarts the instance, which is a fault
        program.habits[name] = replace(habits, boom=0.0)
    cluster = UpdatedCluster(world, program, masters=rng.choice((1, 2)))
    cluster.network.slowest_ms = rng.choice((3.0, 30.0, 200.0))
    bolts = [task for task, instance in cluster.instances.items() if not instance.is_spout]
    program.slow_ms[rng.choice(bolts)] = rng.choice((0.0, 20.0, 50.0))
    if stubborn:
        program.hold_tasks |= {rng.choice(bolts)}
    if seed % 2:
        faults = Faults(cluster, LAST_UPDATE_MS, rng.choice((300.0, 1000.0, 2500.0)))
        faults.without_losses()
        faults.start()
    for _ in range(rng.randint(1, 3)):
        _update_at(cluster, world.between(400, LAST_UPDATE_MS), back=rng.random() < 0.3)
    return cluster


def _update_at(cluster: UpdatedCluster, when_ms: float, *, back: bool) -> None:
    world = cluster.world

    def go() -> None:
        before, after = cluster.packing, moved(cluster.packing, world)
        if after == before:
            return
        cluster.update(after)
        if back:
            world.after(world.between(0, 3_000), lambda: cluster.update(before) if cluster.packing == after else None)

    world.at(when_ms, go)


def run(seed: int, listener: Callable[[str], None] | None = None) -> UpdatedCluster:
    """Run one schedule. Raises Violation."""
    with watched():
        cluster = make(seed, listener)
        cluster.start()
        cluster.world.run_until(LAST_UPDATE_MS + QUIET_MS)
        cluster.heal()
        cluster.program.hold_tasks.clear()
        come_to_rest(cluster)
        if not cluster.undrained:
            nothing_was_lost(cluster)
        return cluster


def nothing_was_lost(cluster: UpdatedCluster) -> None:
    """Check that no update has failed a root or lost a tuple. Raises Violation."""
    for root in cluster.oracle.roots.values():
        if root.settled.startswith("failed") and not any(f"({kind})" in root.settled for kind in BY_USER):
            raise Violation(f"root {root.uid} {root.settled}, and all that was on its way was waited for", root.story)
        if root.settled == "abandoned":
            raise Violation(f"root {root.uid} was open when its spout left", root.story)
    for one in cluster.oracle.emissions.values():
        if len(one.tasks_seen) != one.copies:
            raise Violation(f"{one.copies - len(one.tasks_seen)} copies of tuple {one.uid} of task {one.task} are lost")
