"""Simulated topology master: the production core, its sequential store requests, and its links.

The transactions are those of the production shell (``MasterStore.commit``), run against the memory store. Possible
faults: the store does not respond, the session expires, a transaction is applied but its answer is lost.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from heron_runtime.launch import Launch
from heron_runtime.model.records import MasterLocation
from heron_runtime.model.topology import TopologyState
from heron_runtime.state import paths
from heron_runtime.state.memory import MemoryStore
from heron_runtime.state.store import SessionState, StoreError
from heron_runtime.wire.control import Leave, PlanUpdate
from heron_runtime.wire.master import Heartbeat, HeartbeatReply, Register
from topology_master.core import events as e
from topology_master.core.master import TopologyMaster
from topology_master.core.mastership import MasterRole
from topology_master.shell.store import SESSIONS, MasterStore, read_stored

from .simulation import SimProcess, Simulation
from .wire import End

if TYPE_CHECKING:
    from .cluster import Cluster

RETRY_MS = 500.0


class SimMaster(SimProcess):
    """Leading or standby master; ``replica`` is 0 or 1."""

    core: TopologyMaster
    store: MemoryStore

    def __init__(self, world: Simulation, cluster: Cluster, replica: int) -> None:
        super().__init__(world, f"master{replica}", -replica)
        self.cluster = cluster
        self.lose_next_answer = False
        self._state_requests = 0

    def boot(self) -> None:
        """Open a session and stand for election."""
        topology = self.cluster.topology
        self.port = self.cluster.new_address(self)
        self.store = MemoryStore(self.cluster.tree)
        self.store.open()
        self.core = TopologyMaster(topology.id, ("sim", self.port, self.port), self.cluster.master_lease_ms)
        launch = Launch("sim", "me", "default", topology.name, topology.id, "memory://", "/nowhere", "/nowhere")
        location = MasterLocation(topology.id, "sim", self.port, 0, self.port)
        self._answers: list[e.Event] = []
        self._shell = MasterStore(self.store, launch, location, self._answers.append)
        self._requests: deque[Any] = deque()
        self._busy = False
        self._told_ms = 0.0
        self._links: dict[int, End] = {}
        self._numbers = 0
        life = self.life

        def session(state: SessionState) -> None:
            if self.life == life and self.alive:
                # The store notifies one thread, which notifies the loop: perhaps late, but in order.
                self._told_ms = max(self._told_ms, self.world.now_ms + self.world.between(0, 20))
                self.later(self._told_ms - self.world.now_ms, lambda: self.tell(e.SessionChanged(SESSIONS[state])))

        def changed(_: str) -> None:
            if self.life == life and self.alive:
                self.later(self.world.between(0, 100), lambda: self.request(e.ReadStore()))

        self.store.on_session(session)
        for path_of in (paths.execution_state, paths.packing_plan, paths.master):
            self.store.watch(path_of(topology.name), changed)
        self.request(e.ReadStore())
        self.later(500, self._tick)

    def on_fault(self) -> None:
        """Notify the checkers."""
        self.cluster.checkers.fault()

    def died(self) -> None:
        """End the session: at once (files) or at its timeout (ZooKeeper)."""
        store = self.store
        delay_ms = 0.0 if self.world.chance(0.5) else self.cluster.session_timeout_ms
        self.world.after(delay_ms, store.close)

    def pause(self, duration_ms: float) -> None:
        """Stop the process; a long stop expires its session."""
        super().pause(duration_ms)
        if self.paused and duration_ms > self.cluster.session_timeout_ms:
            self.world.after(self.cluster.session_timeout_ms, self.store.expire_session)

    def lose_store(self, duration_ms: float) -> None:
        """Suspend the store connection; the session is LOST if this outlasts it."""
        self.log(f"the store does not answer for {duration_ms:.0f} ms")
        store = self.store
        store.lose_connection()
        if duration_ms > self.cluster.session_timeout_ms:
            self.world.after(self.cluster.session_timeout_ms, store.expire_session)
        self.world.after(duration_ms, store.restore_connection)

    @property
    def leading(self) -> bool:
        """Return True if this master leads."""
        return self.alive and self.core.mastership.role is MasterRole.LEADING

    def ask(self, state: TopologyState) -> None:
        """Activate or deactivate the topology."""
        self._state_requests += 1
        self.tell(e.StateRequested(self._state_requests, state))

    def _tick(self) -> None:
        if self.core.mastership.acting:
            self.tell(e.MasterTick())
        self.later(500, self._tick)

    def tell(self, event: e.Event) -> None:
        """Pass an event to the core and run its effects."""
        for effect in self.core.handle(int(self.clock_ms), event):
            self._do(effect)
        self.core.check()
        self.cluster.checkers.master_checked(self)

    def _do(self, effect: e.Effect) -> None:
        match effect:
            case e.ReadStore() | e.Campaign() | e.Resign() | e.CommitTransaction():
                self.request(effect)
            case e.SendPlan(links, plan, epoch):
                self.cluster.checkers.plan_sent(self, plan, epoch)
                for link in links:
                    self._send(link, PlanUpdate(plan, epoch))
            case e.SendHeartbeatReply(link, epoch, holder):
                self._send(link, HeartbeatReply(epoch, holder))
            case e.RejectStreamManager(link, reason):
                self._send(link, Leave(reason, self.core.epoch))
                self._close(link)
            case e.CloseLinks(links):
                for link in links:
                    self._close(link)
            case e.StartLeading(epoch):
                self.log(f"leads with epoch {epoch}")
                self.cluster.checkers.leads(self, epoch)
            case e.LogNote(text):
                self.log(text)
            case e.TopologyKilled(reason):
                self.cluster.checkers.told_to_leave(self, reason)
            case e.AnswerRequest():
                pass

    # Links of stream managers.

    def accept(self, end: End, message: Any) -> None:
        """Handle a stream manager's first message."""
        self._numbers += 1
        number = self._numbers
        self._links[number] = end

        def gone(_: str) -> None:
            self._links.pop(number, None)
            self.tell(e.LinkClosed(number))

        end.on_gone = gone
        end.on_control = lambda said: self._said(number, said)
        self._said(number, message)

    def _said(self, number: int, message: Any) -> None:
        if isinstance(message, Register):
            self.tell(e.RegistrationReceived(number, message))
        elif isinstance(message, Heartbeat):
            self.tell(e.HeartbeatReceived(number, message))

    def _send(self, link: int, message: Any) -> None:
        if link in self._links:
            self._links[link].control.send(message)

    def _close(self, link: int) -> None:
        if link in self._links:
            self._links[link].close("closed by the master")

    # The store.

    def request(self, request: Any) -> None:
        """Queue a request; a read that follows only reads is merged with them."""
        if isinstance(request, e.ReadStore) and self._requests and isinstance(self._requests[-1], e.ReadStore):
            return
        self._requests.append(request)
        self._serve()

    def _serve(self) -> None:
        if not self._busy and self._requests:
            self._busy = True
            self.later(self.world.between(0.5, 15), self._run)

    def _run(self) -> None:
        request = self._requests.popleft()
        if isinstance(request, e.ReadStore):
            try:
                self._answers.append(e.StoreRead(read_stored(self.store, self.cluster.topology.name)))
            except StoreError:
                self.later(RETRY_MS, lambda: self.request(e.ReadStore()))
        else:
            result, versions = self._shell.commit(request)
            if result is e.WriteResult.DONE:
                self.cluster.checkers.store_written(self, request)
            if result is e.WriteResult.DONE and self.lose_next_answer:
                self.lose_next_answer = False
                self.log("the answer of the store is lost")
                result, versions = e.WriteResult.UNKNOWN, []
            self._shell.tell(request, result, versions)
        answers, self._answers[:] = self._answers[:], []
        self.later(self.world.between(0.1, 10), lambda: self._answered(answers))

    def _answered(self, answers: list[e.Event]) -> None:
        self._busy = False
        for event in answers:
            self.tell(event)
        self._serve()
