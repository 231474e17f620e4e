"""Simulated master process: the production checkpoint and generation cores, and a shell that writes for them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from heron_runtime.model.checkpoints import TaskReport
from heron_runtime.model.plan import NO_PLAN, Generation, GenerationPhase, task_participant
from topology_master.core.checkpoints import CheckpointCoordinator, CheckpointWrite, GenerationMembers, StoreRecord
from topology_master.core.events import WriteManifest, WriteResult
from topology_master.core.planner import rebalance
from topology_master.core.recovery import GenerationController

from .outside import Plan, Transaction
from .program import COUNT

if TYPE_CHECKING:
    from .simulation import CheckpointSimulation
    from .tasks import Task

INTERVAL, SILENCE = 500, 2_600


class Master:
    """Master of one epoch."""

    def __init__(self, world: CheckpointSimulation) -> None:
        self.world = world
        self.dead = False
        self.stalled_until = 0
        world.store.epoch += 1
        self.epoch = world.store.epoch
        self.plan: Plan = world.store.plan
        record = world.store.record
        self.coordinator = CheckpointCoordinator(
            INTERVAL, world.timeout, world.storage.manifests[record.complete], record
        )
        self.generations = GenerationController(self.plan.generation)
        self._heard_at: dict[int, int] = {}
        self._since = world.now
        self._planning: Transaction | None = None
        self._writing: tuple[CheckpointWrite, Transaction | None] | None = None
        self._runs = 0
        self.read()

    def read(self) -> None:
        store = self.world.store
        if store.plan.generation.number != self.plan.generation.number:
            self._heard_at, self._since = {}, self.world.now
        self.plan = store.plan
        self.coordinator.read(store.record, self.world.storage.manifests[store.record.complete])
        self.generations.read(self.plan.generation, map(task_participant, self.plan.all_tasks))
        generation = self.plan.generation
        if generation.phase is GenerationPhase.RUNNING and self._runs != generation.number:
            self._runs = generation.number
            incarnations = {member.place.number: member.incarnation for member in generation.members}
            tables = {COUNT: self.plan.table}
            self.coordinator.start_generation(GenerationMembers(NO_PLAN, incarnations, tables), self.world.now)

    def heard(self, task: Task, number: int, incarnation: int, epoch: int, report: TaskReport) -> None:
        if epoch > self.epoch:
            self.dead = True
            return
        place = task_participant(number)
        if self.generations.refuses(place, incarnation):
            self.world.post(self, task, ("leave",))
            return
        self._heard_at[number] = self.world.now
        self.generations.heard(place, incarnation, report)
        self.coordinator.heard(number, incarnation, report)
        self.world.post(self, task, ("wish", self.epoch, self.plan, self.coordinator.wish))

    def step(self) -> None:
        if self.world.draw.random() < 0.01:
            self.read()
        for task in self.plan.all_tasks:
            if self.world.now - max(self._heard_at.get(task, 0), self._since) > SILENCE:
                self.generations.lost(task_participant(task), "silent")
        if self._planning is None:
            self._plan()
        if self._writing is None:
            self._write()
        self.coordinator.check()
        self.generations.check()

    def _plan(self) -> None:
        coordinator, plan = self.coordinator, self.plan
        if plan.wanted and not coordinator.quiet and self.world.store.running:
            coordinator.ask(hold=True)
        back = plan.back if plan.back in self.world.behind() else 0
        wanted = self.generations.wanted(back or coordinator.record.complete, reason="the owner asks" if back else "")
        following = replace(plan, back=0) if back else plan
        if wanted is None and coordinator.quiet and coordinator.quiet == coordinator.record.complete:
            if not plan.wanted:
                coordinator.release()
                return
            following = self.world.rescale(plan)
            complete = coordinator.record.complete
            wanted = Generation(plan.generation.number + 1, GenerationPhase.RESTORING, complete, cause="update")
        if wanted is None:
            return
        record = None
        if wanted.number != plan.generation.number:
            changed = replace(coordinator.record, generation=wanted.number, complete=wanted.restore_from)
            record = (coordinator.record, changed)
        if wanted.phase is GenerationPhase.FAILED:
            self.world.failed(wanted.cause)
        self._planning = Transaction(self.epoch, (plan, replace(following, generation=wanted)), record)
        self.world.submit(self, self._planning)

    def _write(self) -> None:
        quiet_before = self.coordinator.is_aligned
        wanted = self.coordinator.run(self.world.now)
        if self.coordinator.is_aligned and not quiet_before:
            self.world.check_empty(self)
        if wanted is None:
            return
        if isinstance(wanted, StoreRecord):
            transaction = Transaction(self.epoch, record=(wanted.expected, wanted.record))
            self._writing = (wanted, transaction)
            self.world.submit(self, transaction)
            return
        assert isinstance(wanted, WriteManifest)
        self._writing = None
        self.world.store_manifest(wanted.manifest, self)

    def manifest_written(self, ok: bool) -> None:
        self.coordinator.finish_write(WriteResult.DONE if ok else WriteResult.REFUSED, self.world.now)

    def ended(self, transaction: Transaction, result: str) -> None:
        """Handle the result of a transaction: ``done``, ``refused``, ``not owner`` or ``unknown``."""
        if result == "not owner":
            self.dead = True
            return
        if transaction is self._planning:
            self._planning = None
        elif self._writing is not None and transaction is self._writing[1]:
            self._writing = None
            self.coordinator.finish_write(WriteResult(result), self.world.now)
        if result != "done" or transaction.plan:
            self.read()


def rescaled(plan: Plan, new_task: int) -> Plan:
    """Return the plan that the owner requests: without the last tasks, or with this new one."""
    assert plan.wanted is not None
    component, number = plan.wanted
    tasks = plan.tasks[component]
    tasks = tasks[:number] if number < len(tasks) else (*tasks, new_task)
    table = rebalance(plan.table, tasks) if component == COUNT else plan.table
    return replace(plan, tasks={**plan.tasks, component: tasks}, table=table, wanted=None)
