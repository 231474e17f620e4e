"""The topology master's core: facts in, effects out.

Theory of operation. Everything the master decides follows from four facts: what the store holds (definition, packing
plan, last plan, the state the user wants), who is registered, whether this process leads, and whether a write is under
way. After each event ``_next_write`` compares the plan these facts ask for with the plan that stands; if they differ,
one transaction stores the new one, and only when that is done is it sent to the stream managers. There is one write
under way at most, so decisions are strictly one after the other, each on top of a known version.

The wanted state (RUNNING or PAUSED) stands in the execution state; ``SetState`` changes it and the plan in the same
transaction. A new master starts from the stored plan: routing version, key groups and state go on, and no new plan is
made unless something differs.
"""

from __future__ import annotations

from dataclasses import replace

from heron_runtime.model.plan import PackingPlan, PhysicalPlan, PlanVersion
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.master import Heartbeat, MasterStatus, Register
from topology_master.core.events import (
    Acknowledge,
    Answer,
    CampaignEnded,
    CloseLinks,
    Effect,
    Event,
    Heard,
    Lead,
    LinkClosed,
    Note,
    Read,
    ReadStore,
    Refuse,
    Registered,
    SendPlan,
    Session,
    SessionChanged,
    StateRequested,
    Stored,
    StoreEnded,
    StorePlan,
    Tick,
    TopologyKilled,
    WriteResult,
)
from topology_master.core.mastership import Mastership
from topology_master.core.membership import Admission, Membership
from topology_master.core.planner import build_physical_plan, with_state

MAX_REQUESTS = 64
NOT_LEADING = "this topology master does not lead; ask the one the state store names"
STORE_SILENT = "the state store does not answer; try again when it does"


class Master:
    """One topology master. ``identity`` is (host, port, pid); times are milliseconds of a monotonic clock."""

    def __init__(self, topology_id: str, identity: tuple[str, int, int], lease_ms: int) -> None:
        self._topology_id = topology_id
        self.mastership = Mastership(identity)
        self.membership = Membership(lease_ms)
        self._stored = Stored()
        self._writing: StorePlan | None = None
        self._requests: dict[int, TopologyState] = {}
        self._led = 0  # the epoch this process last began to lead with
        self._fresh = False  # no decision between asking for a read and its arrival
        self._exited = False
        self._settled: tuple[object, ...] = ()  # the facts for which the plan that stands was found right

    @property
    def plan(self) -> PhysicalPlan | None:
        """The plan that stands."""
        return self._stored.plan

    @property
    def packing(self) -> PackingPlan | None:
        """The packing plan, once it was read."""
        return self._stored.packing

    @property
    def acting(self) -> bool:
        """True while stream managers may take this process for the master."""
        return self.mastership.acting

    @property
    def epoch(self) -> int:
        """The last epoch this process led with."""
        return self.mastership.epoch

    @property
    def wanted_state(self) -> TopologyState:
        """What the user wants."""
        execution = self._stored.execution
        return execution.state if execution is not None else TopologyState.RUNNING

    def status(self) -> MasterStatus:
        """What this master knows. ``leading`` is False in a standby."""
        return MasterStatus(
            self.epoch,
            self.wanted_state,
            self.plan.version if self.plan is not None else PlanVersion(),
            self.membership.status() if self.acting else (),
            self.acting,
        )

    def gauges(self) -> dict[str, float]:
        """What it says of itself to the metrics manager."""
        return {
            "__leading": float(self.acting),
            "__epoch": float(self.epoch),
            "__stream_managers_missing": float(len(self.membership.missing())),
            "__plan_number": float(self.plan.version.number if self.plan else 0),
        }

    def handle(self, now_ms: int, event: Event) -> list[Effect]:
        """Take a fact; returns what is to be done, in order."""
        if self._exited:
            return []
        effects = self._dispatch(now_ms, event)
        if self._exited:
            return effects
        effects += self._follow_mastership()
        if any(isinstance(effect, ReadStore) for effect in effects):
            self._fresh = False
        return effects + self._next_write()

    def _dispatch(self, now_ms: int, event: Event) -> list[Effect]:
        match event:
            case Tick():
                return self._tick(now_ms)
            case Heard(link, message):
                return self._heard(link, message)
            case Registered(link, message):
                return self._registered(link, message)
            case LinkClosed(link):
                self.membership.closed(link)
                return []
            case Read(stored):
                return self._read(stored)
            case SessionChanged(session):
                return self._session_changed(session)
            case CampaignEnded(epoch, result):
                return self.mastership.campaign_ended(epoch, result)
            case StoreEnded():
                return self._store_ended(event)
            case StateRequested(number, state, epoch):
                return [*self.mastership.epoch_seen(epoch), *self._state_requested(number, state)]

    def _tick(self, now_ms: int) -> list[Effect]:
        lapsed = self.membership.advance(now_ms) if self.acting else []
        effects: list[Effect] = []
        for member in lapsed:
            text = f"stream manager {member.info.container} was silent for its lease: waiting for it to register anew"
            effects.append(Note(text, "__stream_managers_lapsed"))
            if member.link is not None:
                effects.append(CloseLinks((member.link,)))
        return effects

    def _heard(self, link: int, message: Heartbeat) -> list[Effect]:
        effects = self.mastership.epoch_seen(max(message.epoch, message.plan.epoch))
        if self.acting and self.membership.heard(link, message) is not None:
            effects.append(Acknowledge(link, self.epoch, self.membership.holder()))
        return effects

    def _registered(self, link: int, message: Register) -> list[Effect]:
        if message.topology_id != self._topology_id:
            return [Refuse(link, f"this is the master of topology {self._topology_id}")]
        effects = self.mastership.epoch_seen(max(message.epoch, message.plan.epoch))
        if not self.acting:
            return [*effects, CloseLinks((link,))]
        info = message.stream_manager
        before = self.membership.newest(info.container)
        same = before == info.incarnation
        admission, replaced = self.membership.register(link, message)
        if admission is not Admission.ACCEPTED:
            text = f"stream manager {message.stream_manager.container} refused: {admission.value}"
            return [*effects, Note(text, "__registrations_refused"), Refuse(link, admission.value)]
        if before is not None and not same:
            text = f"stream manager {info.container} had ended; another one has registered in its place"
            effects.append(Note(text, "__stream_manager_deaths"))
        if replaced is not None:
            # Two links of one process: the one that registers last may be the stale one, whose word was held up on its
            # way. So the process is not told to leave; if it still uses the older link, it connects again.
            effects.append(CloseLinks((replaced,)) if same else Refuse(replaced, Admission.REPLACED.value))
        if self.plan is not None:
            effects.append(SendPlan((link,), self.plan, self.epoch))
        return effects

    def _read(self, stored: Stored) -> list[Effect]:
        execution = stored.execution
        if execution is None or execution.topology_id != self._topology_id or execution.state is TopologyState.KILLED:
            self._exited = True
            return [*self._refuse_requests("the topology is killed"), TopologyKilled("the topology is killed")]
        if stored.plan is not None and stored.plan.topology.id != self._topology_id:
            stored = replace(stored, plan=None)  # left by an earlier topology of the same name
        before, self._stored, self._fresh = self._stored, stored, True
        effects = self.mastership.read(stored)
        if stored.packing is not None and stored.packing != before.packing and self.acting:
            effects += self._expect()
        plan, known = stored.plan, before.plan
        if plan is not None and (known is None or plan.version > known.version) and self.acting:
            effects.append(SendPlan(tuple(self.membership.links()), plan, self.epoch))
        return effects

    def _session_changed(self, session: Session) -> list[Effect]:
        effects = self.mastership.session_changed(session)
        if session is not Session.CONNECTED:
            self._writing = None  # its result, if any, is found by the next read
            effects += self._refuse_requests(STORE_SILENT)
        return effects

    def _store_ended(self, ended: StoreEnded) -> list[Effect]:
        written, self._writing = self._writing, None
        if written is None:
            return [ReadStore()]
        if ended.result is WriteResult.NOT_OWNER:
            return [*self.mastership.not_owner(), ReadStore()]
        if ended.result is WriteResult.REFUSED:
            return [ReadStore()]  # somebody wrote before us; what is asked for is tried again on top of that
        if ended.result is WriteResult.UNKNOWN:
            return [*self._refuse_requests(STORE_SILENT), ReadStore()]
        if written.execution is not None:
            self._stored = replace(self._stored, execution=written.execution, execution_version=ended.execution_version)
        effects: list[Effect] = []
        if written.plan is not None:
            self._stored = replace(self._stored, plan=written.plan, plan_version=ended.plan_version)
            links = tuple(self.membership.links())
            text = f"physical plan {written.plan.version}, {written.plan.state}, to {len(links)} links"
            effects += [
                Note(text, "__plans_made"),
                SendPlan(links, written.plan, self.epoch),
            ]
        return effects

    def _state_requested(self, number: int, state: TopologyState) -> list[Effect]:
        if state is TopologyState.KILLED:
            return [Answer(number, None, "a topology is killed through the state store, not through its master")]
        if not self.mastership.may_decide:
            return [Answer(number, None, STORE_SILENT if self.acting else NOT_LEADING)]
        if len(self._requests) >= MAX_REQUESTS:
            return [Answer(number, None, "too many state changes at once; try again")]
        self._requests[number] = state
        return []

    def _follow_mastership(self) -> list[Effect]:
        """Begin or end what goes with leading."""
        if self.acting and self._led != self.epoch:
            self._led = self.epoch
            return [Lead(self._led), *self._expect()]
        if not self.acting and self._led:
            self._led = 0
            self._writing = None
            links = self.membership.clear()
            return [CloseLinks(tuple(links)), *self._refuse_requests(NOT_LEADING)]
        return []

    def _expect(self) -> list[Effect]:
        if self._stored.packing is None:
            return []
        known = self._stored.plan.stream_managers if self._stored.plan is not None else ()
        gone = self.membership.expect(self._stored.packing, known)
        return [Refuse(link, Admission.UNKNOWN_CONTAINER.value) for link in gone]

    def _next_write(self) -> list[Effect]:
        """Decide the next write, if one is needed and allowed."""
        stored = self._stored
        if not (self.mastership.may_decide and self._fresh) or self._writing is not None or stored.execution is None:
            return []
        wanted = next(reversed(self._requests.values()), stored.execution.state)
        execution = replace(stored.execution, state=wanted) if wanted is not stored.execution.state else None
        plan = self._wanted_plan(wanted)
        if plan is None and execution is None:
            return self._grant_requests()
        self._writing = StorePlan(plan, stored.plan_version, execution, stored.execution_version)
        return [self._writing]

    def _wanted_plan(self, state: TopologyState) -> PhysicalPlan | None:
        """The plan to store next, or None when the one that stands is right or nothing better can be made."""
        stored = self._stored
        if stored.definition is None or stored.packing is None:
            return None
        epoch, registrations = self.epoch, tuple(self.membership.registrations())
        facts = (stored.definition, stored.packing, registrations, stored.plan, epoch, state)
        if facts == self._settled:  # asked at each tick and heartbeat, and to build a plan takes long
            return None
        plan = build_physical_plan(stored.definition, stored.packing, registrations, stored.plan, epoch, state)
        if plan is None and stored.plan is not None and stored.plan.state is not state:
            return with_state(stored.plan, state, epoch)  # somebody is missing: the state changes all the same
        if plan is not None and plan is stored.plan:
            self._settled = facts
        return None if plan is stored.plan else plan

    def _grant_requests(self) -> list[Effect]:
        """Everything asked for is stored."""
        requests, self._requests = self._requests, {}
        return [Answer(number, self.status()) for number in requests]

    def _refuse_requests(self, error: str) -> list[Effect]:
        requests, self._requests = self._requests, {}
        return [Answer(number, None, error) for number in requests]

    def check(self) -> None:
        """Assert every invariant."""
        self.mastership.check()
        self.membership.check()
        assert len(self._requests) <= MAX_REQUESTS
        assert self._writing is None or self.acting
        assert not self._requests or self.acting
        if not self.acting:
            assert not self.membership.links()
