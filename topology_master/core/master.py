"""The core of the topology master: one event in, effects out.

Theory of operation. Every decision follows from four facts: the content of the store (definition, packing plan, last
plan, wanted state), the registered stream managers, whether this process leads, and whether a write is under way. After
each event ``_next_write`` compares the plan that these facts require with the stored one. If they differ, one
transaction stores the new plan, which is sent to the stream managers after that (Kulkarni et al. 2015, section 5.2).
At most one write is under way, so decisions follow one another, each on top of a known version.

The wanted state (RUNNING or PAUSED) is part of the execution state; ``SetState`` changes it and the plan in the same
transaction. A new master starts from the stored plan: routing version, key groups and state continue, and it makes no
new plan unless something differs.

Where the state of tasks is kept (``recovery.py``), a plan has a generation. Plans are written before checkpoints; the
limit of one write under way includes the manifests of checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from heron_runtime.model.checkpoints import NO_WISH, CheckpointCommand, keeps_state
from heron_runtime.model.plan import PackingPlan, PhysicalPlan, PlanVersion
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.master import NO_STATE, Heartbeat, MasterStatus, Register
from topology_master.core import events as e
from topology_master.core.checkpoints import StoreRecord
from topology_master.core.mastership import Mastership
from topology_master.core.membership import Membership, RegistrationResult
from topology_master.core.planner import (
    UpdateSequencer,
    build_physical_plan,
    describe_plan,
    replace_generation,
    replace_state,
    restart_reason,
)
from topology_master.core.recovery import StateController
from topology_master.core.requests import PendingRequests

NOT_LEADING = "this topology master does not lead; ask the one the state store names"
STORE_SILENT = "the state store does not answer; try again when it does"
LOOK_AGAIN_MS = 1_000  # at files of checkpoints that could not be read


@dataclass
class LeadershipTerm:
    """Data that this process keeps only while it leads. The next term begins with new data.

    Attributes:
        updates: Steps of updates, where state is not kept.
        recovery: Generations and checkpoints, where state is kept; None before the first read.
        epoch: Epoch of the term, or 0 before its begin is reported.
        writing: The write under way.
        sent_command: The checkpoint command that all stream managers were sent last.
    """

    updates: UpdateSequencer
    recovery: StateController | None = None
    epoch: int = 0
    writing: e.CommitTransaction | e.WriteManifest | None = None
    sent_command: CheckpointCommand = NO_WISH


class TopologyMaster:
    """Core of one topology master process.

    ``identity`` is (host, port, pid). Times are milliseconds of a monotonic clock; ``utc`` is added to its seconds to
    make
    them UTC. ``code_digest`` is that of the user's package.
    """

    def __init__(
        self, topology_id: str, identity: tuple[str, int, int], lease_ms: int, code_digest: str = "", utc: float = 0.0
    ) -> None:
        self._topology_id = topology_id
        self.mastership = Mastership(identity)
        self.membership = Membership(lease_ms)
        self._stored = e.StoreSnapshot()
        self._requests = PendingRequests()
        self._fresh = False  # no decision between asking for a read and its arrival
        self._exited = False
        self._settled: tuple[object, ...] = ()  # the facts for which the plan that stands was found right
        self._about_state = (lease_ms, code_digest, utc)
        self._term = LeadershipTerm(UpdateSequencer(self.membership))
        self._now_ms = self._looked_ms = 0

    @property
    def plan(self) -> PhysicalPlan | None:
        """The stored plan."""
        return self._stored.plan

    @property
    def packing(self) -> PackingPlan | None:
        """The packing plan, or None before the first read."""
        return self._stored.packing

    @property
    def acting(self) -> bool:
        """True if stream managers may take this process for the master."""
        return self.mastership.acting

    @property
    def epoch(self) -> int:
        """The last epoch of this process as leader."""
        return self.mastership.epoch

    @property
    def wanted_state(self) -> TopologyState:
        """The state that the user wants."""
        execution = self._stored.execution
        return execution.state if execution is not None else TopologyState.RUNNING

    @property
    def tick_ms(self) -> float | None:
        """The interval of ticks in ms, or None if the lease alone decides it."""
        return self._term.recovery.tick_ms if self._term.recovery is not None else None

    def status(self) -> MasterStatus:
        """Return the status for clients. ``leading`` is False in a standby."""
        return MasterStatus(
            self.epoch,
            self.wanted_state,
            self.plan.version if self.plan is not None else PlanVersion(),
            self.membership.status() if self.acting else (),
            self.acting,
            self._term.recovery.status(self._now_ms) if self._term.recovery is not None else NO_STATE,
        )

    def gauges(self) -> dict[str, float]:
        """Return the gauges of this process for the metrics manager."""
        return {
            "__leading": float(self.acting),
            "__epoch": float(self.epoch),
            "__stream_managers_missing": float(len(self.membership.missing())),
            "__plan_number": float(self.plan.version.number if self.plan else 0),
        }

    def state_gauges(self) -> dict[str, float]:
        """Return the gauges of checkpoints; empty unless this process leads and state is kept."""
        return self._term.recovery.gauges(self._now_ms) if self._term.recovery is not None else {}

    def handle(self, now_ms: int, event: e.Event) -> list[e.Effect]:
        """Handle one event and return the effects in order."""
        if self._exited:
            return []
        self._now_ms = now_ms
        effects = self._dispatch(now_ms, event)
        if self._exited:
            return effects
        effects += self._follow_mastership()
        if any(isinstance(effect, e.ReadStore) for effect in effects):
            self._fresh = False
        return effects + self._next_write(now_ms) + self._tell_state()

    def _dispatch(self, now_ms: int, event: e.Event) -> list[e.Effect]:
        match event:
            case e.MasterTick():
                return self._tick(now_ms)
            case e.HeartbeatReceived(link, message):
                return self._heard(link, message)
            case e.RegistrationReceived(link, message):
                return self._registered(link, message)
            case e.LinkClosed(link):
                self.membership.closed(link)
                return []
            case e.StoreRead(stored):
                return self._read(now_ms, stored)
            case e.SessionChanged(session):
                return self._session_changed(session)
            case e.CampaignEnded(epoch, result):
                return self.mastership.campaign_ended(epoch, result)
            case e.TransactionFinished():
                return self._store_ended(now_ms, event)
            case e.ManifestWritten(checkpoint, why):
                return self._manifest_written(now_ms, checkpoint, why)
            case e.StateRequested() | e.CheckpointRequested() | e.RestoreRequested():
                return self._requested(event)

    def _tick(self, now_ms: int) -> list[e.Effect]:
        lapsed = self.membership.advance(now_ms) if self.acting else []
        self._term.updates.advance(now_ms)
        effects: list[e.Effect] = []
        for member in lapsed:
            text = f"stream manager {member.info.container} was silent for its lease: waiting for it to register again"
            effects.append(e.LogNote(text, "__stream_managers_lapsed"))
            effects += [e.CloseLinks((link,)) for link in (member.link,) if link is not None]
        return effects + self._advance_state(now_ms)

    def _advance_state(self, now_ms: int) -> list[e.Effect]:
        recovery = self._term.recovery
        if recovery is None:
            return []
        recovery.advance(now_ms)
        if isinstance(self._term.writing, e.WriteManifest) and recovery.overdue(now_ms):
            return self._manifest_written(now_ms, self._term.writing.manifest.checkpoint, "the storage does not answer")
        if recovery.fault and now_ms - self._looked_ms >= LOOK_AGAIN_MS:
            self._looked_ms = now_ms
            return [e.ReadStore()]
        return []

    def _heard(self, link: int, message: Heartbeat) -> list[e.Effect]:
        effects = self.mastership.epoch_seen(max(message.epoch, message.plan.epoch))
        member = self.membership.heard(link, message) if self.acting else None
        if member is None:
            return effects
        if self._term.recovery is not None:
            self._term.recovery.heard(member.info.container, member.info.incarnation, message.reports)
        else:
            self._term.updates.heard(member.info.container, message.reports)
        return [*effects, self._acknowledge(link)]

    def _acknowledge(self, link: int) -> e.SendHeartbeatReply:
        wish = self._term.recovery.wish if self._term.recovery is not None else NO_WISH
        return e.SendHeartbeatReply(link, self.epoch, self.membership.holder(), wish)

    def _registered(self, link: int, message: Register) -> list[e.Effect]:
        if message.topology_id != self._topology_id:
            return [e.RejectStreamManager(link, f"this is the master of topology {self._topology_id}")]
        effects = self.mastership.epoch_seen(max(message.epoch, message.plan.epoch))
        if not self.acting:
            return [*effects, e.CloseLinks((link,))]
        info = message.stream_manager
        before = self.membership.newest(info.container)
        same = before == info.incarnation
        admission, replaced = self.membership.register(link, message)
        if admission is not RegistrationResult.ACCEPTED:
            text = f"stream manager {info.container} refused: {admission.value}"
            return [*effects, e.LogNote(text, "__registrations_refused"), e.RejectStreamManager(link, admission.value)]
        if before is not None and not same:
            text = f"stream manager {info.container} had ended; another one has registered in its place"
            effects.append(e.LogNote(text, "__stream_manager_deaths"))
        if replaced is not None:
            # Two links of one process: the one that registers last may be the stale one, whose word was held up on its
            # way. So the process is not told to leave; if it still uses the older link, it connects again.
            effects.append(
                e.CloseLinks((replaced,))
                if same
                else e.RejectStreamManager(replaced, RegistrationResult.REPLACED.value)
            )
        if self.plan is not None:
            effects.append(e.SendPlan((link,), self.plan, self.epoch))
        if self._term.recovery is not None:
            self._term.recovery.registered(info.container, info.incarnation)
            effects.append(self._acknowledge(link))
        return effects

    def _read(self, now_ms: int, stored: e.StoreSnapshot) -> list[e.Effect]:
        execution = stored.execution
        if execution is None or execution.topology_id != self._topology_id or execution.state is TopologyState.KILLED:
            self._exited = True
            return [*self._requests.refuse("the topology is killed"), e.TopologyKilled("the topology is killed")]
        if stored.plan is not None and stored.plan.topology.id != self._topology_id:
            stored = replace(stored, plan=None)  # left by an earlier topology of the same name
        before, self._stored, self._fresh = self._stored, stored, True
        effects = self.mastership.read(stored)
        self._read_state(now_ms)
        plan, known = stored.plan, before.plan
        if self.acting and (stored.packing != before.packing or plan != known):
            effects += self._expect()
        if plan is not None and (known is None or plan.version > known.version) and self.acting:
            effects.append(e.SendPlan(tuple(self.membership.links()), plan, self.epoch))
        return effects

    def _read_state(self, now_ms: int) -> None:
        stored = self._stored
        if not self.acting or stored.definition is None or not keeps_state(stored.definition.config):
            return
        if self._term.recovery is None:
            self._term.recovery = StateController(stored.definition.config, *self._about_state)
        self._term.recovery.read(stored, now_ms)

    def _session_changed(self, session: e.Session) -> list[e.Effect]:
        effects = self.mastership.session_changed(session)
        if session is e.Session.CONNECTED:
            return effects
        if not isinstance(self._term.writing, e.WriteManifest):
            self._record_ended(self._term.writing, e.WriteResult.UNKNOWN)
            self._term.writing = None  # its result, if any, is found by the next read
        return effects + self._requests.refuse(STORE_SILENT)

    def _record_ended(self, written: e.CommitTransaction | None, result: e.WriteResult) -> None:
        """Tell the state controller the result of a write for a checkpoint."""
        if (
            written is not None
            and written.plan is None
            and written.record is not None
            and self._term.recovery is not None
        ):
            self._term.recovery.finish_write(result, self._now_ms)

    def _manifest_written(self, now_ms: int, checkpoint: int, why: str) -> list[e.Effect]:
        writing = self._term.writing
        if isinstance(writing, e.WriteManifest) and writing.manifest.checkpoint == checkpoint:
            assert self._term.recovery is not None
            self._term.writing = None
            self._term.recovery.finish_write(e.WriteResult.REFUSED if why else e.WriteResult.DONE, now_ms, why)
        return []

    def _store_ended(self, now_ms: int, ended: e.TransactionFinished) -> list[e.Effect]:
        written = self._term.writing
        if not isinstance(written, e.CommitTransaction):
            return [e.ReadStore()]
        self._term.writing = None
        self._record_ended(written, ended.result)
        if ended.result is e.WriteResult.NOT_OWNER:
            return [*self.mastership.not_owner(), e.ReadStore()]
        if ended.result is e.WriteResult.REFUSED:
            return [e.ReadStore()]  # another client wrote first; the next decision starts from its result
        if ended.result is e.WriteResult.UNKNOWN:
            return [*self._requests.refuse(STORE_SILENT), e.ReadStore()]
        before = self._stored.plan
        complete = self._term.recovery.complete_of(written.record) if self._term.recovery and written.record else None
        self._stored = self._stored.with_written(written, ended, complete)
        effects: list[e.Effect] = []
        if written.plan is not None:
            links = tuple(self.membership.links())
            note = e.LogNote(describe_plan(written.plan, len(links)), "__plans_made")
            effects += [note, e.SendPlan(links, written.plan, self.epoch)]
            effects += self._expect()
            if self._term.recovery is not None:
                self._term.recovery.began(written.plan.generation, before.generation if before is not None else None)
                self._term.recovery.read(self._stored, now_ms)
        return effects

    def _requested(self, request: e.Requested) -> list[e.Effect]:
        effects = self.mastership.epoch_seen(request.epoch)
        if not self.mastership.may_decide:
            return [*effects, e.AnswerRequest(request.number, None, STORE_SILENT if self.acting else NOT_LEADING)]
        return [*effects, *self._requests.add(request, self._term.recovery, self.status())]

    def _follow_mastership(self) -> list[e.Effect]:
        """Return the effects of a change of leadership."""
        if self.acting and self._term.epoch != self.epoch:
            self._term.epoch = self.epoch
            return [e.StartLeading(self._term.epoch), *self._expect()]
        if not self.acting and self._term.epoch:
            self._term = LeadershipTerm(UpdateSequencer(self.membership))
            links = self.membership.clear()
            return [e.CloseLinks(tuple(links)), *self._requests.refuse(NOT_LEADING)]
        return []

    def _expect(self) -> list[e.Effect]:
        """Set the containers that may register, and reject the others.

        These are the containers of the packing plan and, until a plan is made from it, those of the stored plan, since
        an update that fails returns to them.
        """
        stored = self._stored
        if stored.packing is None:
            return []
        numbers = {plan.container for plan in stored.packing.containers}
        if stored.plan is not None:
            numbers |= {plan.container for plan in stored.plan.packing.containers}
        gone = self.membership.expect(numbers, stored.plan.stream_managers if stored.plan is not None else ())
        return [e.RejectStreamManager(link, RegistrationResult.UNKNOWN_CONTAINER.value) for link in gone]

    def _next_write(self, now_ms: int) -> list[e.Effect]:
        """Return the next write, if one is needed and allowed."""
        stored, recovery = self._stored, self._term.recovery
        if recovery is not None:
            recovery.run(now_ms)  # its command waits for no write
        if (
            not (self.mastership.may_decide and self._fresh)
            or self._term.writing is not None
            or stored.execution is None
        ):
            return []
        if recovery is not None and recovery.fault and not (recovery.goes_past_damage and self._requests.of_state):
            return [*self._requests.refuse_unreadable(recovery.fault)]
        wanted = self._requests.wanted(stored.execution.state)
        execution = replace(stored.execution, state=wanted) if wanted is not stored.execution.state else None
        plan = self._wanted_plan(now_ms, wanted)
        if plan is None and execution is None:
            answers = self._requests.grant(self.status()) if self._requests.changes else []
            return [*answers, *self._next_of_checkpoint(now_ms)]
        record = recovery.record_of(plan.generation) if recovery is not None and plan is not None else None
        self._term.writing = e.CommitTransaction(
            plan, stored.plan_version, execution, stored.execution_version, record, stored.record_version
        )
        return [self._term.writing]

    def _next_of_checkpoint(self, now_ms: int) -> list[e.Effect]:
        write = self._term.recovery.next_write(now_ms) if self._term.recovery is not None else None
        if write is None:
            return []
        if not isinstance(write, StoreRecord):
            self._term.writing = write
        else:
            self._term.writing = e.CommitTransaction(None, -1, None, -1, write.record, self._stored.record_version)
        return [self._term.writing]

    def _wanted_plan(self, now_ms: int, state: TopologyState) -> PhysicalPlan | None:
        """Return the plan to store next, or None if the stored one stays."""
        stored = self._stored
        if stored.definition is None or stored.packing is None:
            return None
        epoch, registrations = self.epoch, tuple(self.membership.registrations())
        facts = (stored.definition, stored.packing, registrations, stored.plan, epoch, state)
        before, recovery = stored.plan, self._term.recovery
        reason = self._requests.restore(before.generation) if before is not None else ""
        generation = recovery.wanted(now_ms, reason=reason) if recovery is not None else None
        if facts == self._settled and generation is None:  # asked at each event, and to build a plan takes long
            return None
        plan = None
        if recovery is None or not recovery.holds:
            plan = build_physical_plan(stored.definition, stored.packing, registrations, before, epoch, state)
        if plan is not None and plan is before:
            self._settled = facts
        if plan is None and before is not None:  # a stream manager is missing: state and generation change anyway
            plan = replace_state(before, state, epoch)
        elif plan is not None and before is not None and recovery is None:
            plan = self._term.updates.next_plan(before, plan, epoch)
        if plan is None:
            return None
        if recovery is not None and before is not None and (why := restart_reason(before, plan)):
            generation = recovery.wanted(now_ms, reason=why)
        if generation is not None:
            plan = replace_generation(plan, generation, before, epoch)
        return None if plan is before else plan

    def _tell_state(self) -> list[e.Effect]:
        """Return the effects of the state controller, and send a changed checkpoint command to all."""
        recovery = self._term.recovery
        if recovery is None:
            return []
        effects: list[e.Effect] = [*recovery.effects()]
        if self._requests.of_state:
            effects += self._requests.settle(self.status())
        if recovery.wish != self._term.sent_command:
            self._term.sent_command = recovery.wish
            effects += map(self._acknowledge, self.membership.links())
        return effects

    def check(self) -> None:
        """Assert every invariant."""
        self.mastership.check()
        self.membership.check()
        self._requests.check()
        self._term.updates.check()
        if self._term.recovery is not None:
            self._term.recovery.check()
        assert self.acting or not (
            self._term.writing or self._term.recovery or self._requests or self.membership.links()
        )
