"""Update of a running topology's parallelism, containers or settings: to the new plan, or back to the old one.

::

    read, plan, quota ──▶ (stateful: a held checkpoint) ──▶ one transaction: definition and packing plan
                                                                 │
    done ◀── every task runs by the new plan ── wait ◀───────────┘
                                                  │ timeout, a task that cannot start, Ctrl-C
                                                  └──▶ the old plan again, in one transaction ──▶ wait

Theory of operation. The transaction decides and checks the versions that were read, so of two concurrent updates one is
refused. Schedulers and containers then run what the packing plan names, as usual. The topology master makes a physical
plan once all containers are present. For a stateful topology it starts a generation with the plan; otherwise it waits
for tuples in flight (``topology_master/core/planner.py``). Containers that the new plan leaves out stay until the
topology runs by it, so reverting is the same operation again. The updating process may die at any point: the store has
one plan, and the topology moves to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace

from heron_control.inspection.inspector import Inspector
from heron_control.inspection.topology_status import TopologyStatus, describe, expected_processes, keeps_dying
from heron_control.packing.describe import update_text
from heron_control.packing.update import PlannedUpdate, UpdateRequest, plan_update
from heron_control.progress import Progress
from heron_runtime.failures import Failure, Interrupted, NotFound, Unavailable
from heron_runtime.model.plan import GenerationPhase, PackingPlan, PhysicalPlan, UpdatePhase
from heron_runtime.model.records import TopologyRecord
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.state import topologies
from heron_runtime.state.store import StateStore, StoreUnavailable
from heron_runtime.wire.container import ProcessState

POLL_SECS = 0.2
BACK_SECS = 60.0  # timeout for the old plan to run again
OLD_SECS = 30.0  # timeout for the end of containers that are no longer wanted
Grant = Callable[[TopologyDefinition, PackingPlan], None]


class TakenBack(Failure):
    """Raised if an update failed and the topology has its old plan again."""


class TopologyUpdate:
    """One update of one topology.

    ``grant`` records the plan that the cluster grants the topology, or raises QuotaSpent or OSError.
    """

    def __init__(self, store: StateStore, inspector: Inspector, grant: Grant, record: TopologyRecord) -> None:
        self._store = store
        self._inspector = inspector
        self._grant = grant
        self._name = record.definition.name
        self._place = record.execution.role, record.execution.environ
        self._id = record.definition.id
        self._failures = 0  # failures of the generation before the update
        self._must_restart: dict[str, int] = {}  # by name, ids of the processes that must restart with other settings

    def run(self, request: UpdateRequest, timeout_secs: float, progress: Progress) -> PlannedUpdate:
        """Update, and return when every task runs by the new plan and the containers that it leaves out have ended.

        Also raises what a checkpoint raises.

        Raises:
            UsageError: The request is invalid.
            InvalidTopology: The updated topology is invalid.
            PackingError: The limits cannot be met.
            QuotaSpent: The cluster's quota is exceeded.
            TakenBack: The update failed and was reverted.
            Interrupted: The user has interrupted the update.
            StoreError: The store is unavailable.
        """
        deadline = time.monotonic() + timeout_secs
        versions = topologies.plan_versions(self._store, self._name)
        record = self._record()
        update = plan_update(record.definition, record.packing, request)
        if update.keeps_state:
            progress("waiting for a checkpoint")
            self._inspector.take_checkpoint(record, timeout_secs, progress, hold=True)
        self._must_restart = self._processes_of(update.restarted, record)
        self._failures = record.physical.generation.failures if record.physical is not None else 0
        self._grant(*update.after)
        try:
            progress("writing the new plan")
            versions = topologies.update(self._store, *update.after, versions)
        except BaseException:
            self._grant(*update.before)
            raise
        try:
            plan = self._wait(*update.after, deadline, timeout_secs, progress)
        except (Failure, KeyboardInterrupt) as error:
            raise self._taken_back(update, versions, error, progress) from error
        self._wait_for_the_end_of(update.changes.old_containers, progress)
        return replace(update, undrained=plan.undrained)

    def _record(self) -> TopologyRecord:
        record = self._inspector.find(self._name, *self._place)
        if record.definition.id != self._id:
            raise Failure(f"{self._name} was killed and submitted again concurrently")
        return record

    def _processes_of(self, components: Collection[str], record: TopologyRecord) -> dict[str, int]:
        """Return names and process ids of the components' processes."""
        if not components:
            return {}
        processes = self._inspector.status(record).processes
        return {p.name: p.pid for p in processes if p.component in components and p.pid}

    def _wait(
        self,
        definition: TopologyDefinition,
        packing: PackingPlan,
        deadline: float,
        timeout_secs: float,
        progress: Progress,
    ) -> PhysicalPlan:
        """Wait until the topology runs by this plan.

        Raises:
            Failure: The topology cannot run by this plan.
            Unavailable: The deadline has passed.
        """
        while True:
            try:
                record = self._record()
                if (record.definition, record.packing) != (definition, packing):
                    raise Failure(f"the plan of {self._name} was changed concurrently")
                missing = self._missing(record, self._inspector.status(record))
            except StoreUnavailable as error:
                missing = str(error)
            else:
                if not missing and record.physical is not None:
                    return record.physical
            if time.monotonic() > deadline:
                raise Unavailable(f"it does not run by its new plan after {timeout_secs:g} s: {missing}")
            progress(missing)
            time.sleep(POLL_SECS)

    def _missing(self, record: TopologyRecord, status: TopologyStatus) -> str:
        """Return a description of what does not work yet, or "" if everything works.

        Raises:
            Failure: Waiting is useless.
        """
        physical = record.physical
        generation = physical.generation if physical is not None else None
        if generation is not None and (
            generation.phase is GenerationPhase.FAILED or generation.failures > self._failures
        ):
            raise Failure(generation.cause or "a generation has failed")
        wanted = {name for _, name, *_ in expected_processes(record)}
        absent = [p for p in status.processes if p.name in wanted and p.state is not ProcessState.RUNNING]
        dying = next((p for p in absent if keeps_dying(p)), None)
        if dying is not None:
            raise Failure(f"{describe(dying)}, restarted {dying.restarts} times")
        if absent:
            return f"{absent[0].name} is {absent[0].state}" + (f", and {len(absent) - 1} more" if absent[1:] else "")
        if physical is not None and physical.standstill is not UpdatePhase.NONE:
            return update_text(physical)
        if physical is None or (physical.topology, physical.packing) != (record.definition, record.packing):
            return "the topology master has not made the new plan yet"
        if generation is not None and generation.phase is GenerationPhase.RESTORING:
            return "its tasks continue from the checkpoint"
        same = [p.name for p in status.processes if p.name in wanted and self._must_restart.get(p.name) == p.pid]
        if same:
            return f"{same[0]} must restart" + (f", and {len(same) - 1} more" if same[1:] else "")
        return ""

    def _taken_back(
        self, update: PlannedUpdate, versions: topologies.PlanVersions, error: BaseException, progress: Progress
    ) -> Failure:
        """Revert to the old plan; return or raise the error to report."""
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
        definition, packing = update.before
        old = PackingPlan(packing.topology, packing.containers, update.after[1].next_task)
        progress(f"{why}; going back to the old plan")
        try:
            topologies.update(self._store, definition, old, versions)
            self._grant(definition, old)
        except NotFound:
            raise error from None  # it was killed
        except (Failure, OSError) as failed:
            raise Failure(
                f"the update of {self._name} failed ({why}), and could not be reverted: {failed}",
                "`heron status` shows its state; update it again.",
            ) from error
        again = f"it runs by its old plan again; update it once that is fixed: {why}"
        try:
            self._must_restart = {}
            self._failures = 1 << 30  # ignore further failures: another plan to revert to does not exist
            self._wait(definition, old, time.monotonic() + BACK_SECS, BACK_SECS, progress)
        except Failure as failed:
            again = f"it has its old plan again, but does not run by it yet ({failed}); see `heron status`"
        if isinstance(error, KeyboardInterrupt):
            return Interrupted(f"the update of {self._name} was interrupted: {again}")
        return TakenBack(f"{self._name} is not updated: {why}", again)

    def _wait_for_the_end_of(self, containers: tuple[int, ...], progress: Progress) -> None:
        deadline = time.monotonic() + OLD_SECS
        with suppress(KeyboardInterrupt):  # the update is complete; the containers end without this process
            while time.monotonic() < deadline:
                there = {location.container for location in topologies.containers(self._store, self._name)}
                remaining = sorted(there & set(containers))
                if not remaining:
                    return
                progress(f"container {', '.join(map(str, remaining))} ends")
                time.sleep(POLL_SECS)
