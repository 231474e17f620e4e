"""Generations of a stateful topology: when to restore, when to run, when the topology has failed.

::

    RESTORING g ──every participant restored──▶ RUNNING g, its members named
        ▲  │ a second fault: g + 1                 │ a participant is lost, a record failed, a restore is requested
        └──┴──────── g + 1, from the last complete checkpoint ◀──┘
                              │ too many failures of user code or storage
                              ▼
                            FAILED, with its cause

Theory of operation. A generation is the life of the whole topology between two restores. The loss of any process,
connection or frame ends it for all tasks; the next one begins everywhere at the last complete checkpoint (Carbone et
al. 2015, section 5). Starting a topology restores generation 1 from the initial state. No task processes a tuple before
every participant has reported that it is restored, and only the incarnations that reported take part. A process that
was cut off therefore cannot take part when it comes back.

The store (plan, record, manifest of the last complete checkpoint) and the reports of processes are facts. The master
stores one thing at a time. A plan that begins a generation and the record of checkpoints are one transaction, so it
and the completion of a checkpoint refuse each other. While the manifest of the last complete checkpoint cannot be
read, nothing is decided unless the user requests an older checkpoint.

Silence is counted in the master's own ticks, which are of bounded length (``membership.py``). Lost processes and links
are retried indefinitely: the first restore follows at once, later ones after growing delays until a checkpoint is
complete. Failures of user code or storage are counted as well and end in FAILED. Their delays are longer, since a
storage that is away for some seconds looks the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from heron_runtime.model.backoff import BackoffPolicy
from heron_runtime.model.checkpoints import CheckpointCommand, CheckpointRecord, Manifest, TaskReport, shape_of
from heron_runtime.model.plan import (
    NO_CHECKPOINT,
    Generation,
    GenerationMember,
    GenerationPhase,
    ParticipantId,
    ParticipantKind,
    PhysicalPlan,
    stream_manager_of,
    task_participant,
)
from heron_runtime.model.settings import Keys, setting
from heron_runtime.wire.master import CheckpointStatus, CheckpointSummary, ParticipantReport
from topology_master.core.checkpoints import (
    CheckpointCoordinator,
    CheckpointWrite,
    GenerationMembers,
    StoreRecord,
    completed_event,
    generation_events,
    select_kept,
)
from topology_master.core.events import (
    EmitEvent,
    LogNote,
    RemoveOldCheckpoints,
    RestoreRequested,
    StoreSnapshot,
    WriteResult,
)
from topology_master.core.membership import TickClock

BACKOFF = BackoffPolicy(min_ms=200, max_ms=10_000)  # between restores that lost processes and links cause
FAILURES = BackoffPolicy(min_ms=1_000, max_ms=10_000)  # between those that count: 15 s until the topology has failed
HOLD_MS = 10_000  # from a checkpoint with hold until the plan that it was requested for
PHASES = {GenerationPhase.RUNNING: 0.0, GenerationPhase.RESTORING: 1.0, GenerationPhase.FAILED: 2.0}
GAUGES = (
    "__generation", "__generation-phase", "__checkpoint-number", "__checkpoint-duration-ms", "__checkpoint-bubble-ms",
    "__checkpoint-bytes", "__checkpoint-under-way-ms",
)  # fmt: skip


def list_participants(plan: PhysicalPlan) -> list[ParticipantId]:
    """Return the participants of a plan: the stream manager of each container, and each task."""
    return [*(stream_manager_of(c.container) for c in plan.packing.containers), *map(task_participant, plan.tasks())]


class WritePhase(Enum):
    """Phase of the write that the coordinator of checkpoints wants.

    ::

        NONE ──the coordinator returns a write──▶ WAITING ──it is the master's turn──▶ UNDER_WAY ──result──▶ NONE
         ▲                                          │ the store has overtaken it        │ no answer
         ├──────────────────────────────────────────┘                                   ▼
         └────────────────────────────────────────────────the next read tells────── UNANSWERED
    """

    NONE = "none"
    WAITING = "waiting"
    UNDER_WAY = "under way"
    UNANSWERED = "unanswered"


class RestoreDelay:
    """Delay of restores that follow each other without a complete checkpoint between them."""

    def __init__(self) -> None:
        self._restores = 0  # in a row
        self._due_ms: int | None = None

    def is_over(self, now_ms: int, *, has_progressed: bool, has_failed: bool) -> bool:
        """Return True if the next restore may begin. The first call after ``reset`` sets the delay.

        Args:
            now_ms: Current time.
            has_progressed: A checkpoint was completed since the last restore.
            has_failed: User code or storage failed; a process or link was lost otherwise.
        """
        if self._due_ms is None:
            self._restores = 1 if has_progressed else self._restores + 1
            self._due_ms = now_ms + (FAILURES if has_failed else BACKOFF).delay_ms(self._restores)
        return now_ms >= self._due_ms

    def reset(self) -> None:
        """Forget the delay, since another generation has begun."""
        self._due_ms = None


class StateController:
    """Controls generations and checkpoints of a stateful topology while this master leads.

    ``utc`` is added to seconds of its clock to make them UTC.
    """

    def __init__(self, config: Mapping[str, Any], lease_ms: int, code_digest: str = "", utc: float = 0.0) -> None:
        self._coordinator: CheckpointCoordinator | None = None
        self.configure(config)
        self._lease_ms, self._code_digest, self._utc = lease_ms, code_digest, utc
        self._generations: GenerationController | None = None
        self._plan: PhysicalPlan | None = None
        self._silence = SilenceTimer()
        self._phase_since_ms = self._quiet_since_ms = 0  # by its clock
        self._ran = 0  # the generation whose members the coordinator was told
        self._write_phase = WritePhase.NONE
        self._write: CheckpointWrite | None = None  # while WAITING
        self._write_since_ms = 0  # since when it is UNDER_WAY
        self._restore_delay = RestoreDelay()
        self._back: Manifest | None = None  # the older checkpoint that a restore is asked for to
        self.holds = False  # a restore waits for its delay: no other plan is stored before it
        self._unread: UnreadableCheckpoint | None = None
        self.fault = "the store has not been read"
        self._completed = self._restores = 0
        self._last = CheckpointSummary()
        self._effects: list[LogNote | EmitEvent | RemoveOldCheckpoints] = []

    def configure(self, config: Mapping[str, Any]) -> None:
        """Set the settings that hold from now on."""
        self._interval_ms = setting(config, Keys.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECS) * 1000
        self._timeout_ms = setting(config, Keys.TOPOLOGY_STATEFUL_CHECKPOINT_TIMEOUT_SECS) * 1000
        self._keep = setting(config, Keys.TOPOLOGY_STATEFUL_CHECKPOINT_KEEP)
        if self._coordinator is not None:
            self._coordinator.configure(self._interval_ms, self._timeout_ms)

    @property
    def tick_ms(self) -> float:
        """The interval of ticks in ms, short enough for intervals and delays."""
        return min(200.0, max(20.0, self._interval_ms / 10))

    @property
    def wish(self) -> CheckpointCommand:
        """Return the checkpoint command to send with heartbeat replies."""
        return self._coordinator.wish if self._coordinator is not None else CheckpointCommand(0)

    def complete_of(self, record: CheckpointRecord) -> Manifest:
        """Return the manifest of the last complete checkpoint after ``record`` was written."""
        back = self._back
        if back is not None and back.checkpoint == record.complete:
            return back
        assert self._coordinator is not None
        return self._coordinator.base

    @property
    def _running(self) -> int:
        """The generation that runs, or 0."""
        generation = self._plan.generation if self._plan is not None else None
        return generation.number if generation is not None and generation.phase is GenerationPhase.RUNNING else 0

    # Facts.

    def read(self, stored: StoreSnapshot, now_ms: int) -> None:
        """Handle the content of the store after a read or a write."""
        if stored.definition is not None:
            self.configure(stored.definition.config)
        record = stored.record or CheckpointRecord()
        number = stored.plan.generation.number if stored.plan is not None else 0
        self.fault = stored.storage_fault
        if number and number != record.generation:
            self.fault = f"the plan is of generation {number}, the record of checkpoints of {record.generation}"
        if self.fault or stored.complete is None:
            self.fault = self.fault or f"the manifest of checkpoint {record.complete} has not been read"
            self._unread = None
            if stored.storage_fault and stored.plan is not None and self._coordinator is None:
                self._unread = UnreadableCheckpoint(record, stored.plan.generation, self.fault)
            return
        self._unread = None
        if self._coordinator is None:
            self._coordinator = CheckpointCoordinator(self._interval_ms, self._timeout_ms, stored.complete, record)
        else:
            self._coordinator.read(record, stored.complete)
        self._settle_writes(now_ms)
        if number and stored.plan is not None:
            self._take_plan(stored.plan, now_ms)
        self._look_completed(now_ms)

    def _settle_writes(self, now_ms: int) -> None:
        """Drop a waiting write that the store has overtaken, and settle one without an answer."""
        coordinator, write = self._coordinator, self._write
        assert coordinator is not None
        if self._write_phase is WritePhase.UNANSWERED:
            self._write_phase = WritePhase.NONE
            coordinator.finish_write(WriteResult.UNKNOWN, now_ms)
        elif isinstance(write, StoreRecord) and write.expected != coordinator.record:
            self._write_phase, self._write = WritePhase.NONE, None
            coordinator.finish_write(WriteResult.REFUSED, now_ms)

    def _take_plan(self, plan: PhysicalPlan, now_ms: int) -> None:
        generation = plan.generation
        if self._generations is None:
            self._generations = GenerationController(generation)
        known = self._plan.generation if self._plan is not None else None
        if known is None or known.number != generation.number:
            self._silence.begin()
            self._restore_delay.reset()
            self.holds, self._back = False, None
        if known is None or (known.number, known.phase) != (generation.number, generation.phase):
            self._phase_since_ms = self._silence.clock_ms
        self._plan = plan
        self._generations.read(generation, list_participants(plan))
        if generation.phase is GenerationPhase.RUNNING and self._ran != generation.number:
            assert self._coordinator is not None
            self._ran = generation.number
            members = {
                m.place.number: m.incarnation for m in generation.members if m.place.kind is ParticipantKind.TASK
            }
            tables = {table.component: table.tasks for table in plan.key_groups}
            shapes = {spec.name: shape_of(spec) for spec in plan.topology.components}
            self._coordinator.start_generation(
                GenerationMembers(plan.version, members, tables, self._code_digest, shapes), now_ms
            )
            self._remove_old()

    def registered(self, container: int, incarnation: int) -> None:
        """Handle the registration of a stream manager."""
        self._heard(stream_manager_of(container), incarnation, TaskReport(0))

    def heard(self, container: int, incarnation: int, reports: Iterable[ParticipantReport]) -> None:
        """Handle a heartbeat of a container's stream manager and its task reports."""
        self._silence.heard(stream_manager_of(container))
        for each in reports:
            if each.place.kind is ParticipantKind.STREAM_MANAGER:
                if each.place == stream_manager_of(container):
                    self._heard(each.place, incarnation, each.report)
            elif self._heard(each.place, each.incarnation, each.report) and self._coordinator is not None:
                self._coordinator.heard(each.place.number, each.incarnation, each.report)

    def _heard(self, place: ParticipantId, incarnation: int, report: TaskReport) -> bool:
        if self._generations is None or self._generations.refuses(place, incarnation):
            return False
        self._silence.heard(place)
        self._generations.heard(place, incarnation, report)
        return True

    def advance(self, now_ms: int) -> None:
        """Advance the time and end generations of silent participants."""
        self._silence.advance(now_ms)
        self._release_if_held_long()
        if self._generations is None or self._plan is None:
            return
        for place in list_participants(self._plan):
            silent_ms = self._silence.of(place)
            if silent_ms > self._lease_ms:
                self._generations.silent(place, f"silent for {silent_ms / 1000:.0f} s")

    def _release_if_held_long(self) -> None:
        """Let the tasks resume if the requested plan does not arrive in time."""
        coordinator, now_ms = self._coordinator, self._silence.clock_ms
        if coordinator is None or not coordinator.quiet:
            self._quiet_since_ms = now_ms
        elif now_ms - self._quiet_since_ms > HOLD_MS:
            coordinator.release()
            self._effects.append(LogNote(f"no new plan was received for {HOLD_MS / 1000:g} s: the tasks continue"))

    def finish_write(self, result: WriteResult, now_ms: int, why: str = "") -> None:
        """Handle the end of a write of ``next_write``. After UNKNOWN the next read tells the outcome."""
        self._write_phase = WritePhase.UNANSWERED if result is WriteResult.UNKNOWN else WritePhase.NONE
        if result is not WriteResult.UNKNOWN and self._coordinator is not None:
            self._coordinator.finish_write(result, now_ms, why)
            self._look_completed(now_ms)

    def ask(self, *, hold: bool = False) -> int:
        """Request a checkpoint and return the newest number before it.

        With ``hold`` the tasks stay paused after it until another plan arrives, at most for HOLD_MS.
        """
        assert self._coordinator is not None, "it is asked where nothing is at fault"
        self._coordinator.ask(hold=hold)
        return self._coordinator.record.begun

    def go_back(self, request: RestoreRequested) -> str:
        """Request a restore and return why it is refused, or "".

        The files of an older checkpoint stay from now on.
        """
        if self.fault:
            past = self._unread.past(request, self._keep) if self._unread is not None else self.fault
            self._back = None if isinstance(past, str) else past
            return past if isinstance(past, str) else ""
        assert self._coordinator is not None
        number, complete = request.checkpoint, self._coordinator.record.complete
        if number in (NO_CHECKPOINT, complete):
            return ""
        there = sorted(select_kept(request.manifests, complete, self._keep))
        manifest = request.manifests.get(number)
        if number not in there or manifest is None:
            return f"checkpoint {number} does not exist: the complete ones are {', '.join(map(str, there)) or 'none'}"
        if not request.repeat_output:
            return (
                f"output written after checkpoint {number}, up to {complete}, would be written again; say "
                "--repeat-output to accept that"
            )
        self._back = manifest
        return ""

    @property
    def goes_past_damage(self) -> bool:
        """True if a restore to an older checkpoint is requested while the last one cannot be read."""
        return self._unread is not None and self._back is not None

    # Decisions.

    def run(self, now_ms: int) -> None:
        """Advance the coordinator after an event; its command takes effect at once."""
        if self._coordinator is None or self._write_phase in (WritePhase.WAITING, WritePhase.UNANSWERED):
            return
        write = self._coordinator.run(now_ms)  # None while one is UNDER_WAY
        if write is not None:
            self._write_phase, self._write = WritePhase.WAITING, write

    def next_write(self, now_ms: int) -> CheckpointWrite | None:
        """Return the next write for checkpoints, if any; ``finish_write`` reports its result."""
        if self._write_phase is not WritePhase.WAITING:
            return None
        write, self._write = self._write, None
        self._write_phase, self._write_since_ms = WritePhase.UNDER_WAY, now_ms
        return write

    def overdue(self, now_ms: int) -> bool:
        """Return whether a write has been under way for more than twice the timeout."""
        return self._write_phase is WritePhase.UNDER_WAY and now_ms - self._write_since_ms > 2 * self._timeout_ms

    def wanted(self, now_ms: int, *, reason: str = "") -> Generation | None:
        """Return the generation of the next plan, or None if the present one stays.

        ``reason`` is that of a requested restore, or "".
        """
        self._back = self._back if reason else None  # no request waits
        if self._unread is not None:
            return self._unread.wanted(self._back, reason) if self._back is not None else None
        assert self._coordinator is not None
        record = self._coordinator.record
        if self._generations is None:
            return Generation(record.generation + 1, GenerationPhase.RESTORING, record.complete)
        now = self._generations.generation
        complete = record.complete
        if self._back is not None and self._back.checkpoint < complete:
            complete, reason = self._back.checkpoint, f"{reason}, and later checkpoints are discarded"
        wanted = self._generations.wanted(complete, reason=reason)
        if wanted is None or wanted.number == now.number or wanted.phase is GenerationPhase.FAILED or reason:
            return wanted
        has_progressed, has_failed = record.complete > now.restore_from, self._generations.failed
        self.holds = not self._restore_delay.is_over(now_ms, has_progressed=has_progressed, has_failed=has_failed)
        return None if self.holds else wanted

    def record_of(self, generation: Generation) -> CheckpointRecord | None:
        """Return the record that is stored with a plan of this generation, or None if it stays."""
        if self._unread is not None:
            record = self._unread.record
        else:
            assert self._coordinator is not None
            record = self._coordinator.record
        if generation.number == record.generation:
            return None
        return replace(record, generation=generation.number, complete=generation.restore_from)

    def began(self, generation: Generation, before: Generation | None) -> None:
        """Handle a stored plan of ``generation`` that follows one of the generation ``before``."""
        effects = generation_events(generation, before)
        self._restores += sum(isinstance(each, LogNote) and each.metric == "__restores" for each in effects)
        self._effects += effects

    def _look_completed(self, now_ms: int) -> None:
        coordinator = self._coordinator
        if coordinator is None or coordinator.completed is None:
            return
        manifest, timing, coordinator.completed = coordinator.completed, coordinator.timing, None
        self._completed += 1
        self._last = CheckpointSummary(
            manifest.checkpoint,
            self._utc + now_ms / 1000,
            now_ms - timing.began_ms,
            timing.quiet_ms,
            sum(part.size for part in manifest.parts),
            timing.last_aligned,
        )
        self._effects += [LogNote("", "__checkpoints_completed"), completed_event(self._last)]
        self._remove_old()

    def _remove_old(self) -> None:
        if self._running and self._coordinator is not None and self._back is None:
            self._effects.append(RemoveOldCheckpoints(self._coordinator.record.complete, self._running, self._keep))

    def effects(self) -> list[LogNote | EmitEvent | RemoveOldCheckpoints]:
        """Return the log lines, events and removals since the last call."""
        effects, self._effects = self._effects, []
        # What a checkpoint has begun with comes before what it has ended with.
        events, noted = (self._coordinator.happened(), self._coordinator.notes()) if self._coordinator else ([], [])
        return [*events, *effects, *noted]

    # What is shown.

    def status(self, now_ms: int) -> CheckpointStatus:
        """Return the checkpoint status for clients."""
        coordinator, generations = self._coordinator, self._generations
        if coordinator is None or generations is None:
            stands = self._unread.generation.number if self._unread is not None else 0
            return CheckpointStatus(stands, GenerationPhase.RESTORING, storage_fault=self.fault)
        now = generations.generation
        under, under_ms = coordinator.under_way(now_ms)
        return CheckpointStatus(
            now.number, now.phase, now.cause, now.restore_from, generations.missing,
            under, under_ms, coordinator.is_aligned, coordinator.waits_for,
            self._shown_last(coordinator.base), self._completed, coordinator.cancelled, coordinator.cancelled_why,
            self._restores, self.fault, self._silence.clock_ms - self._phase_since_ms, coordinator.cancelled_last,
            coordinator.unconfirmed,
        )  # fmt: skip

    def _shown_last(self, complete: Manifest) -> CheckpointSummary:
        """Return the last complete checkpoint; its times are known only if this master completed it."""
        if self._last.number == complete.checkpoint:
            return self._last
        return CheckpointSummary(complete.checkpoint, bytes=sum(part.size for part in complete.parts))

    def gauges(self, now_ms: int) -> dict[str, float]:
        """Return the gauges for the metrics manager."""
        status = self.status(now_ms)
        last = status.last
        values = (
            status.generation, PHASES[status.phase], last.number, last.duration_ms, last.bubble_ms, last.bytes,
            status.under_ms,
        )  # fmt: skip
        return dict(zip(GAUGES, map(float, values), strict=True))

    def check(self) -> None:
        """Assert every invariant."""
        if self._coordinator is not None:
            self._coordinator.check()
        if self._generations is not None:
            self._generations.check()
            assert self._plan is not None
            assert self._generations.generation == self._plan.generation
            assert self._coordinator is not None
            assert self._plan.generation.number == self._coordinator.record.generation
        assert (self._write_phase is WritePhase.WAITING) == (self._write is not None)


MOST_FAILURES = 5  # restores in a row, without a complete checkpoint between them, for reasons that come again


class GenerationController:
    """Decides when a generation runs, and when another one has to begin.

    ``heard`` and ``lost`` record events; ``wanted`` returns the generation to store next, if any.
    """

    def __init__(self, stored: Generation) -> None:
        self.generation = stored
        self._places: frozenset[ParticipantId] = frozenset()
        self._members: dict[ParticipantId, int] = {}
        self._restored: dict[ParticipantId, int] = {}
        self._newest: dict[ParticipantId, int] = {}
        self._lost = self._failed = ""

    def read(self, stored: Generation, places: Iterable[ParticipantId]) -> None:
        """Set the generation of the stored plan and its participants."""
        if stored.number != self.generation.number:
            self._restored.clear()
            self._lost = self._failed = ""
        self.generation = stored
        self._places = frozenset(places)
        self._members = {member.place: member.incarnation for member in stored.members}

    def refuses(self, place: ParticipantId, incarnation: int) -> bool:
        """Return whether this process has been replaced and has to leave."""
        return incarnation < max(self._newest.get(place, 0), self._members.get(place, 0))

    def heard(self, place: ParticipantId, incarnation: int, report: TaskReport) -> None:
        """Record the report of a participant that is not outdated."""
        self._newest[place] = incarnation
        now = self.generation
        if place not in self._places or now.phase is GenerationPhase.FAILED:
            return
        if now.phase is GenerationPhase.RUNNING and incarnation != self._members.get(place):
            self.lost(place, "it was restarted")
        elif self._restored.get(place, incarnation) != incarnation:
            self.lost(place, "it was restarted while the topology was being restored")
        if report.generation != now.number:
            return
        if report.failed:
            self._failed = self._failed or f"{place}: {report.failed}"
        if report.lost:
            self.lost(place, report.lost)
        if report.restored and now.phase is GenerationPhase.RESTORING:
            self._restored[place] = incarnation

    def lost(self, place: ParticipantId, why: str) -> None:
        """Record the loss of a participant: it is silent, or its data is incomplete."""
        if place in self._places:
            self._lost = self._lost or f"{place}: {why}"

    def silent(self, place: ParticipantId, why: str) -> None:
        """Record that a participant is silent.

        A participant that has restored nothing yet is waited for, because its loss would only repeat the restore. Its
        next
        incarnation may be lower: incarnations of tasks come from the clock of their host, which may be set back.
        """
        self._newest.pop(place, None)
        if self.generation.phase is GenerationPhase.RUNNING or place in self._restored:
            self.lost(place, why)

    @property
    def failed(self) -> bool:
        """True if the generation ends because of user code or storage."""
        return bool(self._failed)

    @property
    def missing(self) -> tuple[ParticipantId, ...]:
        """Participants that have not restored yet, in order; empty unless RESTORING."""
        if self.generation.phase is not GenerationPhase.RESTORING:
            return ()
        return tuple(sorted(self._places - set(self._restored)))

    def wanted(self, complete: int, *, reason: str = "") -> Generation | None:
        """Return the generation to store in place of the present one, or None.

        Args:
            complete: The last complete checkpoint, which the transaction checks.
            reason: That of a requested restore, or "".
        """
        now = self.generation
        if now.phase is GenerationPhase.FAILED:
            return Generation(now.number + 1, GenerationPhase.RESTORING, complete, cause=reason) if reason else None
        if self._failed or self._lost or reason:
            before = 0 if complete > now.restore_from else now.failures  # a complete checkpoint makes up for all
            failures = before + bool(self._failed)
            cause = self._failed or self._lost or reason
            phase = GenerationPhase.FAILED if failures > MOST_FAILURES else GenerationPhase.RESTORING
            return Generation(now.number + 1, phase, complete, (), failures, cause)
        if now.phase is GenerationPhase.RESTORING and self._places and not self.missing:
            members = tuple(
                GenerationMember(place, incarnation) for place, incarnation in sorted(self._restored.items())
            )
            return Generation(now.number, GenerationPhase.RUNNING, now.restore_from, members, now.failures, now.cause)
        return None

    def check(self) -> None:
        """Assert every invariant."""
        now = self.generation
        assert now.number > 0
        assert (now.phase is GenerationPhase.RUNNING) == bool(now.members), (
            "members are named when it runs, and only then"
        )
        assert set(self._restored) <= self._places or now.phase is not GenerationPhase.RESTORING


@dataclass(frozen=True, slots=True)
class UnreadableCheckpoint:
    """Content of the store while the manifest of the last complete checkpoint cannot be read.

    No generation begins automatically then. The user may request an older checkpoint by its number and accept repeated
    output. That restore begins a new history at the older checkpoint and discards the later ones. The turn of the last
    checkpoint is unknown, so of two checkpoints of one turn the newest counts as complete. At worst that one was
    written
    whole without becoming the last one, and it still holds a consistent state.
    """

    record: CheckpointRecord
    generation: Generation  # of the plan that stands
    fault: str

    def past(self, request: RestoreRequested, keep: int) -> Manifest | str:
        """Return the manifest of the requested older checkpoint, or why it cannot be restored."""
        complete = self.record.complete
        readable = {number: manifest for number, manifest in request.manifests.items() if manifest is not None}
        there = sorted(number for number in select_kept(request.manifests, complete, keep) if number in readable)
        known = f"whole, and kept, are {', '.join(map(str, there)) or 'none'}"
        if request.checkpoint not in there or request.checkpoint == complete:
            what = "the last checkpoint" if request.checkpoint in (0, complete) else f"checkpoint {request.checkpoint}"
            return f"{what} cannot be gone back to: {self.fault}; {known}"
        if not request.repeat_output:
            return (
                f"the last checkpoint is damaged ({self.fault}); output written after checkpoint "
                f"{request.checkpoint}, up to {complete}, would be written again; say --repeat-output to accept that"
            )
        return readable[request.checkpoint]

    def wanted(self, back: Manifest, reason: str) -> Generation | None:
        """Return the generation that begins at the older checkpoint."""
        text = f"{reason}, and later checkpoints are discarded: {self.fault}"
        generation = GenerationController(self.generation).wanted(back.checkpoint, reason=text)
        return generation if generation is None or generation.phase is GenerationPhase.RESTORING else None


class SilenceTimer:
    """Time since the last report of each participant, in the master's own ticks of bounded length.

    A pause of this master therefore makes no participant silent.
    """

    def __init__(self) -> None:
        self._clock = TickClock()
        self._began_ms = 0
        self._reported_ms: dict[ParticipantId, int] = {}

    @property
    def clock_ms(self) -> int:
        """The time that counts."""
        return self._clock.ms

    def heard(self, place: ParticipantId) -> None:
        """Record a report of a participant."""
        self._reported_ms[place] = self._clock.ms

    def begin(self) -> None:
        """Restart the time of all participants."""
        self._reported_ms.clear()
        self._began_ms = self._clock.ms

    def advance(self, now_ms: int) -> None:
        """Advance the time."""
        self._clock.advance(now_ms)

    def of(self, place: ParticipantId) -> int:
        """Return for how many milliseconds a participant has been silent."""
        return self._clock.ms - self._reported_ms.get(place, self._began_ms)
