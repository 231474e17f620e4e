"""Shown state of a stateful topology: generation, checkpoints and what it waits for. Pure.

The master knows most of it. While it does not answer, the plan in the store still has generation and phase. So a
topology that is being restored, or has failed, is never shown as running.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from heron_runtime.model.checkpoints import keeps_state
from heron_runtime.model.ids import instance_id
from heron_runtime.model.plan import NO_CHECKPOINT, GenerationPhase, PackingPlan, ParticipantId, ParticipantKind
from heron_runtime.model.records import TopologyRecord
from heron_runtime.wire.master import CheckpointStatus, CheckpointSummary, MasterStatus

CURE = "fix the cause, then `heron restore` resumes from the last complete checkpoint"
NAMED = 5  # maximum number of processes named in one line


@dataclass(frozen=True, slots=True)
class LastCheckpoint:
    """Last complete checkpoint. Without times if an earlier master completed it."""

    number: int
    bytes: int
    completed_at: str | None = None
    duration_ms: float | None = None
    bubble_ms: float | None = None
    last_aligned: str | None = None


@dataclass(frozen=True, slots=True)
class UnderWay:
    """Checkpoint in progress. ``writing``: all tasks are aligned; ``waits_for``: tasks that have not stored."""

    number: int
    seconds: float
    writing: bool
    waits_for: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TasksState:
    """State of a stateful topology, also in JSON. ``told`` is False if it comes from the plan in the store."""

    generation: int
    phase: GenerationPhase
    told: bool
    phase_seconds: float | None = None
    cause: str | None = None  # of the last restore, or of the failure
    cure: str | None = None
    restore_from: int = NO_CHECKPOINT
    missing: tuple[str, ...] = ()  # processes that have not restored yet
    last: LastCheckpoint | None = None
    under_way: UnderWay | None = None
    completed: int = 0
    cancelled: int = 0
    cancelled_why: str | None = None
    restores: int = 0
    storage_fault: str | None = None

    @property
    def trouble(self) -> str:
        """Reason why it does not run normally, or ""."""
        if self.phase is GenerationPhase.FAILED:
            return f"generation {self.generation} has failed: {self.cause}; {self.cure}"
        if self.phase is GenerationPhase.RESTORING:
            fault = f"; {self.storage_fault}" if self.storage_fault else ""
            return restoring_text(self) + fault
        return f"checkpoints cannot be read: {self.storage_fault}" if self.storage_fault else ""


def restoring_text(state: TasksState) -> str:
    """Return what is being restored, since when, why, and which processes are missing."""
    start = f"checkpoint {state.restore_from}" if state.restore_from else "the initial state"
    text = f"generation {state.generation} is restored from {start}"
    if state.phase_seconds is not None:
        text += f" for {state.phase_seconds:.0f} s"
    if state.cause:
        text += f", after {state.cause}"
    return f"{text}; waits for {names(state.missing)}" if state.missing else text


def names(found: Sequence[str]) -> str:
    """Return a few of the names, and the number of the others."""
    more = len(found) - NAMED
    return ", ".join(found[:NAMED]) + (f" and {more} more" if more > 0 else "")


def read_tasks_state(record: TopologyRecord, master: MasterStatus | None) -> TasksState | None:
    """Return the state of the topology, or None if it is stateless."""
    if not keeps_state(record.definition.config):
        return None
    if master is not None and master.leading:
        return _read_state(record.packing, master.tasks_state)
    if record.physical is None:
        return TasksState(0, GenerationPhase.RESTORING, told=False)
    now = record.physical.generation
    return TasksState(
        now.number, now.phase, told=False, cause=now.cause or None, cure=_cure(now.phase), restore_from=now.restore_from
    )


def state_word(word: str, state: TasksState | None) -> str:
    """Return the state of the topology in one word; ``word`` is derived from its processes."""
    if state is None or word in ("killed", "failing"):
        return word
    if state.phase is GenerationPhase.FAILED:
        return "failing"
    if state.phase is GenerationPhase.RESTORING:
        return "starting" if word == "starting" or state.generation <= 1 else "restoring"
    return "degraded" if state.storage_fault and word in ("running", "paused", "finished") else word


def _read_state(packing: PackingPlan, now: CheckpointStatus) -> TasksState:
    processes = {
        instance.task: instance_id(plan.container, instance.component, instance.task)
        for plan in packing.containers
        for instance in plan.instances
    }

    def task(number: int) -> str:
        return processes.get(number, f"task {number}")

    def process(place: ParticipantId) -> str:
        return f"stream_manager-{place.number}" if place.kind is ParticipantKind.STREAM_MANAGER else task(place.number)

    under = None
    if now.under:
        under = UnderWay(now.under, now.under_ms / 1000, now.all_quiet, tuple(map(task, now.waits_for)))
    return TasksState(
        now.generation,
        now.phase,
        told=True,
        phase_seconds=now.phase_ms / 1000,
        cause=now.cause or None,
        cure=_cure(now.phase),
        restore_from=now.restore_from,
        missing=tuple(map(process, now.missing)),
        last=_last(now.last, task(now.last.last_aligned)) if now.last.number else None,
        under_way=under,
        completed=now.completed,
        cancelled=now.cancelled,
        cancelled_why=now.cancelled_why or None,
        restores=now.restores,
        storage_fault=now.storage_fault or None,
    )


def _last(summary: CheckpointSummary, last_aligned: str) -> LastCheckpoint:
    if not summary.completed_at:
        return LastCheckpoint(summary.number, summary.bytes)
    when = datetime.fromtimestamp(summary.completed_at, UTC).isoformat(timespec="milliseconds")
    return LastCheckpoint(summary.number, summary.bytes, when, summary.duration_ms, summary.bubble_ms, last_aligned)


def _cure(phase: GenerationPhase) -> str | None:
    return CURE if phase is GenerationPhase.FAILED else None
