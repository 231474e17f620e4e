"""Checkpoints of a stateful topology: from a new number to the last complete checkpoint.

::

    INACTIVE ──▶ IDLE ──▶ NUMBERING ──▶ ALIGNING ──▶ WRITING_PARTS ──▶ WRITING_MANIFEST ──▶ COMMITTING ──▶ IDLE or HELD
                   ▲                       │               │                   │                 │
                   └───────────────────────┴───────────────┴───────────────────┴─────────────────┘
                      declined, overdue, not written, or another generation has begun: cancelled

Theory of operation. The protocol is aligned barrier snapshotting (Carbone et al. 2015, section 4.2). Its inputs are
reports, which are whole states so that any of them may be lost, and results of writes. Its output is one command, sent
whole with each heartbeat reply; processes compare numbers. The store gives out a number before its first barrier and
never reuses it. Nothing is committed or restored before the transaction that completes the checkpoint. That transaction
checks the node with the generation, the newest number and the last complete checkpoint, and so does each transaction
that begins a generation: the first of the two refuses the other. A new master cancels everything begun before it.

The log and the history get an event when a number is given out and when it ends, and when a generation begins, runs or
fails. ``heron_runtime.telemetry.recorder`` bounds how many of them are sent.

Old files. The newest complete checkpoints stay, and all that is newer than the last complete one in the generation that
runs. A part is removed when a removed manifest names it and no remaining one does. A part that no manifest names
belongs to a checkpoint that was cancelled or is under way; only its generation tells which, so it is removed once a
later generation runs. A deposed master with older knowledge removes less, never more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from heron_runtime.model.checkpoints import (
    CheckpointCommand,
    CheckpointRecord,
    Manifest,
    StatePart,
    TaskReport,
    next_manifest,
)
from heron_runtime.model.history import CHECKPOINT, RESTORE
from heron_runtime.model.plan import NO_CHECKPOINT, Generation, GenerationPhase, PlanVersion
from heron_runtime.wire.master import CheckpointSummary
from topology_master.core.events import EmitEvent, LogNote, WriteManifest, WriteResult

MOST_TIMEOUT_MS = 600_000.0
CANCELLED_IN_A_ROW = 3  # from this number on, they are logged


@dataclass(frozen=True, slots=True)
class StoreRecord:
    """Store this in place of ``expected``, in a transaction that also checks that this master leads."""

    record: CheckpointRecord
    expected: CheckpointRecord


CheckpointWrite = StoreRecord | WriteManifest


class CheckpointPhase(Enum):
    """Phase of a coordinator.

    =================  ==========================================  ===================================================
    phase              ends with                                   next
    =================  ==========================================  ===================================================
    INACTIVE           the members of a running generation         IDLE
    IDLE               interval over, or a request                 NUMBERING: the next number is being stored
    NUMBERING          stored, refused                             ALIGNING, IDLE
    ALIGNING           the last task has aligned                   WRITING_PARTS: all resume, unless a hold is requested
    WRITING_PARTS      the last part is stored                     WRITING_MANIFEST; IDLE if the parts do not fit
    WRITING_MANIFEST   written, failed                             COMMITTING, IDLE
    COMMITTING         stored, refused                             IDLE, or HELD if a hold is requested
    HELD               release                                     IDLE
    =================  ==========================================  ===================================================

    A task that declines, or twice the timeout, ends ALIGNING and WRITING_PARTS with IDLE, and doubles the timeout. A
    later checkpoint of another master ends every phase of a checkpoint with IDLE, another generation with INACTIVE.
    """

    INACTIVE = "inactive"
    IDLE = "idle"
    NUMBERING = "numbering"
    ALIGNING = "aligning"
    WRITING_PARTS = "writing parts"
    WRITING_MANIFEST = "writing manifest"
    COMMITTING = "committing"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class GenerationMembers:
    """Tasks of the plan, with the incarnations that were named when its generation began to run."""

    plan: PlanVersion
    incarnations: Mapping[int, int]
    tables: Mapping[str, tuple[int, ...]]  # of keyed components
    code_digest: str = ""
    shapes: Mapping[str, str] = field(default_factory=dict)  # of components


@dataclass
class RunningCheckpoint:
    """Checkpoint under way."""

    number: int
    turn: int
    began_ms: float
    hold: bool  # stay quiet when it is complete
    aligned: set[int] = field(default_factory=set)
    stored: dict[int, StatePart] = field(default_factory=dict)
    last_aligned: int = 0
    resumed: bool = False
    quiet_ms: float = 0.0  # from its beginning until all tasks had aligned
    manifest: Manifest | None = None  # being written, or written


@dataclass(frozen=True, slots=True)
class CheckpointTiming:
    """Times of a checkpoint: start, pause until all tasks had aligned, and the last task to align."""

    began_ms: float = 0.0
    quiet_ms: float = 0.0
    last_aligned: int = 0


class CheckpointCoordinator:
    """Coordinates the checkpoints of a topology while this master leads.

    ``interval_ms`` is the time from the end of a checkpoint to the start of the next one.
    """

    def __init__(self, interval_ms: float, timeout_ms: float, base: Manifest, record: CheckpointRecord) -> None:
        self.interval_ms = interval_ms
        self.record = record
        self.base = base  # the last complete checkpoint
        self.completed: Manifest | None = None  # just now; the reader resets it
        self.timing = CheckpointTiming()  # of the last one that was completed here
        self.cancelled, self.cancelled_last, self.cancelled_why = 0, NO_CHECKPOINT, ""
        self.quiet: int = NO_CHECKPOINT  # complete, and all tasks are still paused, as requested
        self._least_timeout_ms = self._timeout_ms = timeout_ms
        self._over = record.begun  # whatever another master has begun
        self._participants: GenerationMembers | None = None
        self._under: RunningCheckpoint | None = None
        self._confirmed: dict[int, int] = {}  # by task: up to which checkpoint it has committed, in this generation
        self._write: CheckpointWrite | None = None
        self._is_requested = self._hold = False
        self._last_end_ms: float | None = None
        self._in_a_row = 0  # cancelled
        self._notes: list[LogNote] = []
        self._happened: list[EmitEvent] = []
        self._now_ms = 0.0

    def configure(self, interval_ms: float, timeout_ms: float) -> None:
        """Set interval and timeout."""
        self.interval_ms = interval_ms
        if timeout_ms != self._least_timeout_ms:
            self._least_timeout_ms = self._timeout_ms = timeout_ms

    @property
    def phase(self) -> CheckpointPhase:
        """Phase of the checkpoint under way, or of the time between two checkpoints."""
        under, write = self._under, self._write
        if under is not None:
            if not under.resumed:
                return CheckpointPhase.ALIGNING
            if under.manifest is None:
                return CheckpointPhase.WRITING_PARTS
            writes_manifest = isinstance(write, WriteManifest)
            return CheckpointPhase.WRITING_MANIFEST if writes_manifest else CheckpointPhase.COMMITTING
        if self.quiet:
            return CheckpointPhase.HELD
        if self._participants is None:
            return CheckpointPhase.INACTIVE
        if isinstance(write, StoreRecord) and write.record.begun > self.record.begun:
            return CheckpointPhase.NUMBERING
        return CheckpointPhase.IDLE

    @property
    def wish(self) -> CheckpointCommand:
        """Return the checkpoint command to send with heartbeat replies."""
        under, aligns = self._under, self.phase is CheckpointPhase.ALIGNING
        number, turn = (under.number, under.turn) if under and aligns else (NO_CHECKPOINT, 0)
        return CheckpointCommand(
            self.record.generation, number, turn, self._over, self.record.complete, self._timeout_ms
        )

    @property
    def is_aligned(self) -> bool:
        """True if all tasks have aligned and the checkpoint is still under way."""
        return self._under is not None and self._under.resumed

    def under_way(self, now_ms: float) -> tuple[int, float]:
        """Return the number and the age in ms of the checkpoint under way, or (NO_CHECKPOINT, 0)."""
        return (self._under.number, now_ms - self._under.began_ms) if self._under is not None else (NO_CHECKPOINT, 0.0)

    @property
    def waits_for(self) -> tuple[int, ...]:
        """The tasks that have not aligned or, after that, not stored; empty without a checkpoint under way."""
        if self._under is None or self._participants is None:
            return ()
        done = self._under.stored if self._under.resumed or self._all(self._under.aligned) else self._under.aligned
        return tuple(task for task in sorted(self._participants.incarnations) if task not in done)

    @property
    def unconfirmed(self) -> tuple[int, ...]:
        """The tasks that have not confirmed the commit of the last complete checkpoint, in order."""
        return tuple(sorted(task for task, number in self._confirmed.items() if number < self.record.complete))

    # Facts.

    def read(self, record: CheckpointRecord, base: Manifest) -> None:
        """Handle the record in the store and the manifest of the last complete checkpoint."""
        under = self._under
        if record.generation != self.record.generation:
            self._participants = None
            self._drop("another generation has begun")
            self.quiet = NO_CHECKPOINT
            self._over = max(self._over, record.begun)
        elif under is not None and record.complete >= under.number:
            self._finish(under)
        elif under is not None and record.begun > under.number:
            self._drop("another master has begun a later one")
        self.record, self.base = record, base
        if self._under is None and not self.quiet:
            self._over = max(self._over, record.begun)

    def start_generation(self, participants: GenerationMembers, now_ms: float) -> None:
        """Start with these members; their generation runs."""
        self._participants = participants
        self._confirmed = dict.fromkeys(participants.incarnations, self.record.complete)  # to restore is to commit
        self._last_end_ms = now_ms

    def ask(self, *, hold: bool) -> None:
        """Request a checkpoint as soon as possible.

        With ``hold`` the tasks stay paused after it until ``release``. If it is cancelled, the client is told and has
        to request another one.
        """
        self._is_requested = True
        self._hold = self._hold or hold

    def release(self) -> None:
        """Let all tasks resume and give up the hold."""
        self._hold = False
        if self.quiet:
            self._over = max(self._over, self.quiet)
            self.quiet = NO_CHECKPOINT

    def heard(self, task: int, incarnation: int, report: TaskReport) -> None:
        """Record the report of a task in a heartbeat."""
        under, named = self._under, self._participants
        if named is None or named.incarnations.get(task) != incarnation:
            return
        if report.generation != self.record.generation:
            return
        self._confirmed[task] = max(self._confirmed[task], report.confirmed)
        if under is None:
            return
        if report.aligned == under.number and task not in under.aligned:
            under.aligned.add(task)
            under.last_aligned = task
        for part in report.stored:
            if part.checkpoint == under.number and part.incarnation == incarnation:
                under.stored[task] = part
        if report.declined == under.number and not isinstance(self._write, StoreRecord):
            self._decline(f"task {task} declines: {report.declined_why}")

    def finish_write(self, result: WriteResult, now_ms: float, why: str = "") -> None:
        """Handle the end of the write that ``run`` returned.

        ``why`` is the error, if it is known. After UNKNOWN the store is read, and ``read`` tells the outcome.
        """
        write, self._write = self._write, None
        under, self._now_ms = self._under, now_ms
        if isinstance(write, WriteManifest):
            if result is not WriteResult.DONE and under is not None and under.manifest is write.manifest:
                self._cancel("its manifest could not be written" + (f": {why}" if why else ""))
            return
        if write is None or result is not WriteResult.DONE:
            if under is not None and under.manifest is not None:
                self._cancel("the store has not made it the last complete one")
            return
        if write.record.generation != self.record.generation:
            return
        begins = write.record.begun > self.record.begun
        self.record = write.record
        if begins:
            self._begin(write.record.begun, now_ms)
        elif under is not None and under.manifest is not None and under.number == write.record.complete:
            self.base = under.manifest
            self._finish(under)
            self._last_end_ms = now_ms

    def run(self, now_ms: float) -> CheckpointWrite | None:
        """Advance the time and return the next write, if any. One write is under way at most."""
        self._now_ms = now_ms
        if self._participants is None or self._write is not None:
            return None
        under = self._under
        if under is None:
            self._write = self._next_number(now_ms)
            return self._write
        if self.phase is CheckpointPhase.ALIGNING and self._all(under.aligned):
            self._resume(under, now_ms)
        if self.phase is CheckpointPhase.COMMITTING:
            self._write = StoreRecord(replace(self.record, complete=under.number), self.record)
            return self._write
        if self.phase is CheckpointPhase.WRITING_PARTS and self._all(under.stored):
            try:
                under.manifest = self._manifest(under, self._participants)
            except ValueError as error:
                self._decline(str(error))
                return None
            self._write = WriteManifest(under.manifest)
            return self._write
        # Tasks have timeouts of their own from the moment they fall silent; this is for those who never do.
        if now_ms - under.began_ms > 2 * self._timeout_ms:
            tasks = ", ".join(map(str, self.waits_for))
            self._decline(f"task {tasks} has not {'written' if under.resumed else 'aligned'} in time")
        return None

    def notes(self) -> list[LogNote]:
        """Return the log lines since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def happened(self) -> list[EmitEvent]:
        """Return the events since the last call: checkpoints begun and checkpoints failed."""
        happened, self._happened = self._happened, []
        return happened

    # Steps.

    def _next_number(self, now_ms: float) -> StoreRecord | None:
        due = self._last_end_ms is None or now_ms - self._last_end_ms >= self.interval_ms
        if self.quiet or not (due or self._is_requested):
            return None
        return StoreRecord(replace(self.record, begun=self.record.begun + 1), self.record)

    def _begin(self, number: int, now_ms: float) -> None:
        self._under = RunningCheckpoint(number, self.base.turn + 1, now_ms, self._hold)
        self._is_requested = self._hold = False
        self._happened.append(begun_event(number))

    def _resume(self, under: RunningCheckpoint, now_ms: float) -> None:
        under.resumed, under.quiet_ms = True, now_ms - under.began_ms
        if not under.hold:
            self._over = max(self._over, under.number)

    def _manifest(self, under: RunningCheckpoint, participants: GenerationMembers) -> Manifest:
        parts = (under.stored[task] for task in participants.incarnations)
        who = participants
        return next_manifest(self.base, parts, who.plan, who.tables, who.code_digest, who.shapes)

    def _finish(self, under: RunningCheckpoint) -> None:
        self.completed = under.manifest
        self.timing = CheckpointTiming(under.began_ms, under.quiet_ms, under.last_aligned)
        self._under = None
        self._in_a_row = 0
        self._timeout_ms = max(self._least_timeout_ms, self._timeout_ms / 2)
        if under.hold:
            self.quiet = under.number
        else:
            self._over = max(self._over, under.number)

    def _decline(self, why: str) -> None:
        self._timeout_ms = min(MOST_TIMEOUT_MS, self._timeout_ms * 2)
        self._cancel(why)

    def _cancel(self, why: str) -> None:
        under = self._under
        assert under is not None
        self._last_end_ms = under.began_ms  # the next one is not begun at once: a repeated failure would stop all tasks
        self._drop(why)
        self._in_a_row += 1
        if self._in_a_row >= CANCELLED_IN_A_ROW:
            self._notes.append(LogNote(f"{self._in_a_row} checkpoints in a row were cancelled; the last one: {why}"))

    def _drop(self, why: str) -> None:
        under, self._under = self._under, None
        if under is not None:
            self._over = max(self._over, under.number)
            self.cancelled, self.cancelled_last, self.cancelled_why = self.cancelled + 1, under.number, why
            self._notes.append(LogNote(f"checkpoint {under.number} is cancelled: {why}", "__checkpoints_cancelled"))
            self._happened.append(failed_event(under.number, why, self._now_ms - under.began_ms))

    def _all(self, tasks: set[int] | dict[int, StatePart]) -> bool:
        return self._participants is not None and len(tasks) == len(self._participants.incarnations)

    def check(self) -> None:
        """Assert every invariant."""
        assert self.record.complete <= self.record.begun
        assert self._over <= self.record.begun
        under = self._under
        if under is not None:
            assert self.record.complete < under.number <= self.record.begun
            assert under.resumed or not under.manifest, "a manifest before all have aligned"
            assert under.hold or under.resumed == (self._over >= under.number), "all tasks resume at once"
        assert not self.quiet or self._over < self.quiet


FAILED_HINT = "its processes are idle; fix the cause, then `heron restore`"


def generation_events(generation: Generation, before: Generation | None) -> list[LogNote | EmitEvent]:
    """Return log line and event for a stored plan of this generation, which follows ``before``."""
    number, cause, metric = generation.number, generation.cause, ""
    start = f"checkpoint {generation.restore_from}" if generation.restore_from else "the initial state"
    if before is None or before.number == 0:
        what, text = "start", f"generation {number}: starting from {start}"
    elif before.number == number:
        if before.phase is generation.phase:
            return []
        what, text = "runs", f"generation {number} runs, with {len(generation.members)} processes"
    elif generation.phase is GenerationPhase.FAILED:
        what, text = "failed", f"generation {number}: the topology has FAILED: {cause}; {FAILED_HINT}"
    else:
        what, text, metric = "begun", f"generation {number}: restoring from {start}: {cause}", "__restores"
    detail = {"generation": number, "what": what, "checkpoint": generation.restore_from, "cause": str(cause)}
    return [LogNote(text, metric), EmitEvent(RESTORE, what, text, json.dumps(detail))]


def begun_event(number: int) -> EmitEvent:
    """Return the event of a checkpoint whose number is stored."""
    detail = json.dumps({"checkpoint": number, "what": "begun"})
    return EmitEvent(CHECKPOINT, "begun", f"checkpoint {number} begun", detail)


def failed_event(number: int, why: str, duration_ms: float) -> EmitEvent:
    """Return the event of a cancelled checkpoint."""
    detail = {"checkpoint": number, "what": "failed", "ms": round(duration_ms), "cause": why}
    text = f"checkpoint {number} failed after {duration_ms / 1000:.2f} s: {why}"
    return EmitEvent(CHECKPOINT, "failed", text, json.dumps(detail))


def completed_event(summary: CheckpointSummary) -> EmitEvent:
    """Return the event of a complete checkpoint."""
    detail = {
        "checkpoint": summary.number, "what": "complete", "bytes": summary.bytes, "ms": round(summary.duration_ms),
        "quiet_ms": round(summary.bubble_ms), "last_aligned": summary.last_aligned,
    }  # fmt: skip
    text = f"checkpoint {summary.number} complete: {summary.bytes:,} bytes in {summary.duration_ms / 1000:.2f} s"
    return EmitEvent(CHECKPOINT, "complete", text, json.dumps(detail))


class RemovableFiles(NamedTuple):
    """Numbers of manifests and names of parts.

    Manifests are removed first, so that no manifest ever names a missing part.
    """

    manifests: tuple[int, ...]
    parts: tuple[str, ...]


def select_kept(manifests: Mapping[int, Manifest | None], complete: int, keep: int) -> set[int]:
    """Return the numbers of the newest complete checkpoints.

    Of the checkpoints of one turn only the newest can be complete. The others were written without becoming the last
    complete one in the store, or were discarded by a restore. The same holds for turns after the last complete one.
    """
    newest = {}
    last = manifests.get(complete)
    for number in sorted(number for number in manifests if number <= complete):
        manifest = manifests[number]
        if last is not None and manifest is not None and manifest.turn > last.turn:
            continue
        newest[("unread", number) if manifest is None else ("turn", manifest.turn)] = number
    return set(sorted(newest.values())[-keep:])


def select_removable(
    manifests: Mapping[int, Manifest | None], parts: Iterable[str], complete: int, running: int, keep: int
) -> RemovableFiles:
    """Return the files that may be removed.

    Args:
        manifests: All manifests, None for one that cannot be read. While such a one stays, no part is removed, since it
            may name any of them.
        parts: Names of all part files.
        complete: The last complete checkpoint.
        running: The generation that runs.
        keep: The number of complete checkpoints to keep.
    """
    gone = {number for number in manifests if number <= complete} - select_kept(manifests, complete, keep)
    gone |= {
        n
        for n, manifest in manifests.items()
        if n > complete and manifest is not None and manifest.generation < running
    }
    staying = [manifest for number, manifest in manifests.items() if number not in gone]
    if None in staying:
        return RemovableFiles(tuple(sorted(gone)), ())
    needed = {name for manifest in staying if manifest is not None for name in manifest.files}
    named = {name for number in gone if (manifest := manifests[number]) is not None for name in manifest.files}
    return RemovableFiles(
        tuple(sorted(gone)),
        tuple(name for name in parts if name not in needed and (name in named or part_generation(name) < running)),
    )


def part_generation(part: str) -> int:
    """Return the generation of a part file, including unfinished ones (``.NAME.RANDOM.part``).

    A name without a generation gives the greatest number.
    """
    number = part.lstrip(".").partition("-")[0]
    return int(number) if number.isdecimal() else 1 << 62
