"""The stream manager: facts in, effects out (seed 001 §5.4; protocols 1 to 3 and 5).

Theory of operation. Every ``handle_…`` method takes one event, changes the state, and returns what is to be done, in
order. Connections are numbers given by the shell; an event of a connection that has been replaced meanwhile changes
nothing. Within one packet the order is inits, acks, fails, frames: a root is open before any copy of its tuples has
left, so acks commute from then on.

Time comes by ``tick`` only, and counts only while ticks come: a step of more than a second counts as one second, and
expiry rests a while after it, so that a stream manager that was stopped first reads what waits in its sockets. Its own
pause fails no tuple and pauses no spout.

The parts: ``ack_tracker`` and ``tracking`` (roots), ``links``, ``settlements`` and ``credit`` (queues), ``routing`` and
``forwarding`` (from the one to the other), ``backpressure`` (causes), ``instance_side`` and ``peer_side`` (who speaks).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heronry.model.ids import PROTOCOL_VERSION
from heronry.model.plan import NO_PLAN, PhysicalPlan, PlanVersion, StreamManagerInfo
from heronry.model.settings import setting
from heronry.wire.control import Credit, InstanceHello, Leave, PeerControl, PeerHello, StreamManagerHello
from heronry.wire.data import Packet
from heronry.wire.master import FromMaster, Heartbeat, HeartbeatReply, Register
from stream_manager.core.backpressure import Pressure
from stream_manager.core.credit import memory_bound
from stream_manager.core.effects import (
    Effect,
    End,
    Exit,
    MasterRefused,
    PlanAccepted,
    TellMaster,
    ToInstance,
    ToPeer,
    Wake,
)
from stream_manager.core.forwarding import Forwarding
from stream_manager.core.instance_side import InstanceSide
from stream_manager.core.links import Link
from stream_manager.core.neighbours import ProtocolViolation
from stream_manager.core.outcome import Outcome
from stream_manager.core.peer_side import PeerSide
from stream_manager.core.routing import Routes
from stream_manager.core.tracking import Tracking

LONGEST_STEP_MS = 1000
REST_MS = 2000  # no root expires so soon after a pause of our own


class StreamManager:
    """One container's stream manager. ``settings`` are the operator's ``heron.*`` keys; ``now_ms`` is monotonic."""

    def __init__(self, topology_id: str, info: StreamManagerInfo, settings: Mapping[str, Any], now_ms: int) -> None:
        self.topology_id = topology_id
        self.info = info
        self.container = info.container
        self.routes: Routes | None = None
        self.epoch = 0
        self.outcome = Outcome()
        self.pressure = Pressure()
        self.tracking = Tracking(int(setting(settings, "heron.streammgr.ack.buckets")))
        self.flow = Forwarding(info.container, self.tracking, self.pressure)
        hello = StreamManagerHello(PROTOCOL_VERSION, topology_id, info.container, info.incarnation)
        upload_window = int(setting(settings, "heron.streammgr.upload.window.bytes"))
        peer_window = int(setting(settings, "heron.streammgr.peer.window.bytes"))
        self.local = InstanceSide(hello, upload_window, self.flow, self.tracking, self.pressure, self.outcome)
        self.mesh = PeerSide(peer_window, self.flow, self.pressure, self.outcome)
        self.paused_ms = 0
        self.initiated_ms = 0
        self._lease_ms = int(1000 * setting(settings, "heron.streammgr.partition.lease.secs"))
        self._heartbeat_ms = int(setting(settings, "heron.heartbeat.interval.ms"))
        self._wall_ms = now_ms
        self._now_ms = now_ms  # counts only while ticks come
        self._expire_from_ms = now_ms
        self._heartbeat_at_ms = now_ms
        self._contact_ms = now_ms  # last word of a master or an accepted peer
        self._master_here = False

    # Instances.

    def handle_instance_hello(self, connection: int, hello: InstanceHello) -> list[Effect]:
        """An instance has opened its control stream."""
        reason = self._wrong(hello.protocol, hello.topology_id)
        if reason:
            self.outcome.violations += 1
            self.outcome.add(ToInstance(connection, Leave(reason)), End(connection, reason))
        else:
            self.local.hello(connection, hello)
            self._tell_master()
        return self._finish()

    def handle_instance_data(self, connection: int, task: int) -> list[Effect]:
        """The data stream of this connection is there."""
        instance = self.local.connected(connection, task)
        if instance is not None:
            instance.link.open()
            self.flow.dirty[instance.link] = None
        return self._finish()

    def handle_instance_gone(self, connection: int, task: int) -> list[Effect]:
        """A stream of this connection has ended."""
        instance = self.local.connected(connection, task)
        if instance is not None:
            self.local.lost(instance)
            self._tell_master()
        return self._finish()

    def handle_instance_credit(self, connection: int, task: int, message: Credit) -> list[Effect]:
        """The instance takes frames."""
        instance = self.local.connected(connection, task)
        if instance is not None:
            instance.link.set_limit(task, message.limit_bytes)
            self.flow.dirty[instance.link] = None
        return self._finish()

    def handle_instance_packet(self, connection: int, task: int, packet: Packet) -> list[Effect]:
        """A packet of an instance."""
        instance = self.local.connected(connection, task)
        if instance is not None:
            try:
                self.local.packet(instance, packet)
            except ProtocolViolation as fault:
                self.outcome.violated(connection, f"task {task}", fault)
                self.local.lost(instance)
        return self._finish()

    # Peers.

    def peer_hello(self) -> PeerHello:
        """What this stream manager says first to a peer."""
        return PeerHello(PROTOCOL_VERSION, self.topology_id, self.container, self.info.incarnation, self.epoch)

    def handle_peer_hello(self, connection: int, hello: PeerHello) -> list[Effect]:
        """A peer's first word, whoever opened the channel."""
        reason = self._wrong(hello.protocol, hello.topology_id)
        if hello.container == self.container:
            reason = reason or f"container {self.container} has another stream manager"
        if reason:
            self.outcome.violations += 1
            self.outcome.add(ToPeer(connection, Leave(reason)), End(connection, reason))
        else:
            self.mesh.hello(connection, hello)
        return self._finish()

    def handle_peer_data(self, connection: int, container: int) -> list[Effect]:
        """The data stream of this connection is there."""
        peer = self.mesh.connected(connection, container)
        if peer is not None:
            self.mesh.data(peer)
        return self._finish()

    def handle_peer_gone(self, connection: int, container: int) -> list[Effect]:
        """A stream of this connection has ended."""
        peer = self.mesh.connected(connection, container)
        if peer is not None:
            self.mesh.lost(peer)
        return self._finish()

    def handle_peer_control(self, connection: int, container: int, message: PeerControl) -> list[Effect]:
        """Whatever a peer says after its hello."""
        peer = self.mesh.connected(connection, container)
        if peer is not None:
            self._contact_ms = self._now_ms
            try:
                self.mesh.control(peer, message)
            except ProtocolViolation as fault:
                self.outcome.violated(connection, f"container {container}", fault)
                self.mesh.lost(peer)
        return self._finish()

    def handle_peer_packet(self, connection: int, container: int, packet: Packet) -> list[Effect]:
        """A packet of a peer."""
        peer = self.mesh.connected(connection, container)
        if peer is not None:
            self._contact_ms = self._now_ms
            try:
                self.mesh.packet(peer, packet)
            except ProtocolViolation as fault:
                self.outcome.violated(connection, f"container {container}", fault)
                self.mesh.lost(peer)
        return self._finish()

    # Links.

    def next_packet(self, link: Link) -> tuple[Packet | None, list[Effect]]:
        """The next packet to write on a link, if any. It is handed over by this call."""
        packet = self.flow.next_packet(link)
        return packet, self._finish()

    # Plans and the master.

    @property
    def plan(self) -> PhysicalPlan | None:
        """The newest plan."""
        return None if self.routes is None else self.routes.plan

    @property
    def version(self) -> PlanVersion:
        """Of the newest plan."""
        return NO_PLAN if self.routes is None else self.routes.plan.version

    def handle_plan(self, plan: PhysicalPlan, epoch: int) -> list[Effect]:
        """A plan, from a master of this epoch or from disk. An older one, or of another topology, is refused."""
        if plan.topology.id == self.topology_id and epoch >= self.epoch:
            self.epoch = self.local.epoch = epoch
            if plan.version > self.version:
                self._set_plan(plan)
        return self._finish()

    def handle_master_connected(self) -> list[Effect]:
        """There is a stream to the master: register."""
        self._master_here = True
        instances = self.local.infos()
        register = Register(PROTOCOL_VERSION, self.topology_id, self.info, instances, self.version)
        self.outcome.add(TellMaster(register))
        return self._finish()

    def handle_master_gone(self) -> list[Effect]:
        """The stream to the master has ended."""
        self._master_here = False
        return self._finish()

    def handle_master_message(self, message: FromMaster) -> list[Effect]:
        """A word of the master. One of a lower epoch than was heard before is refused."""
        if isinstance(message, Leave):
            self.outcome.add(Exit(f"topology master: {message.reason}"))
        elif message.epoch < self.epoch:
            self.outcome.add(MasterRefused(f"its epoch {message.epoch} is over; {self.epoch} was heard"))
        elif isinstance(message, HeartbeatReply):
            self._contact_ms = self._now_ms
            self.epoch = self.local.epoch = message.epoch
        else:
            self._contact_ms = self._now_ms
            return self.handle_plan(message.plan, message.epoch)
        return self._finish()

    # Time.

    def tick(self, now_ms: int) -> list[Effect]:
        """Time passes: expiry, heartbeats, the lease. To be called each 100 ms or so (500 ms while ``idle``), after
        reading what waits."""
        step = now_ms - self._wall_ms
        self._wall_ms = now_ms
        if step > LONGEST_STEP_MS:
            step = LONGEST_STEP_MS
            self._expire_from_ms = self._now_ms + step + REST_MS
        self._now_ms += step
        self.pressure.pass_time(step)
        self.initiated_ms += step if self.pressure.own else 0
        self.paused_ms += step if self.local.spouts_paused() else 0
        if self._now_ms >= self._expire_from_ms:
            self.tracking.tick(self._now_ms)
        # The lease runs from the last word, not from the end of a connection: a silent master is no contact.
        partitioned = self._now_ms - self._contact_ms >= self._lease_ms
        if partitioned != self.local.partitioned:
            self.local.partitioned = partitioned
            self.pressure.changed = True
        if self._now_ms >= self._heartbeat_at_ms:
            self._heartbeat_at_ms = self._now_ms + self._heartbeat_ms
            self.mesh.announce()
            self.mesh.announce_whole()
            self._tell_master()
        return self._finish()

    def idle(self) -> bool:
        """True if nothing here depends on time but heartbeats."""
        return not self.pressure.own and not self.local.spouts_paused() and not self.tracking.live

    def linked(self) -> bool:
        """True if there is a plan and every peer that is registered in it has an open link."""
        if self.routes is None:
            return False
        registered = {info.container for info in self.routes.plan.stream_managers}
        return all(self.flow.peers[c].link.is_open for c in self.routes.peers if c in registered)

    def check(self) -> None:
        """Assert every invariant."""
        self.tracking.check()
        self.flow.check()
        self.local.check()
        self.mesh.check()
        links = [i.link for i in self.flow.instances.values()] + [p.link for p in self.flow.peers.values()]
        bound = memory_bound(
            self.flow.high,
            self.local.upload_window,
            self.mesh.peer_window,
            self.flow.largest_frame,
            len(self.flow.instances),
            len(self.flow.peers),
        )
        for link in links:
            for queue in link.destinations.values():
                assert queue.bytes <= bound, f"the queue of task {queue.task} is bounded: {queue.bytes} <= {bound}"

    # Below: how it is done.

    def _wrong(self, protocol: int, topology_id: str) -> str:
        if protocol != PROTOCOL_VERSION:
            return f"protocol {protocol} is spoken; this stream manager speaks {PROTOCOL_VERSION}: use one release"
        if topology_id != self.topology_id:
            return f"this is topology {self.topology_id}, not {topology_id}"
        return ""

    def _set_plan(self, plan: PhysicalPlan) -> None:
        routes = self.routes = self.local.routes = Routes(plan, self.container)
        config = plan.topology.config
        self.flow.high = int(setting(config, "topology.backpressure.high.watermark.bytes"))
        self.flow.low = min(self.flow.high, int(setting(config, "topology.backpressure.low.watermark.bytes")))
        self.local.scope = str(setting(config, "topology.backpressure.scope"))
        for task in routes.local_tasks:
            self.local.of_task(task)
        self.tracking.set_spouts(plan, routes.local_spouts, self._now_ms)
        for task in routes.local_spouts:
            incarnation = self.flow.instances[task].incarnation
            if incarnation is not None:
                self.tracking.begin(task, incarnation)
        self.mesh.add_peers(routes)
        self.flow.set_routes(routes)
        self.pressure.forget_tasks(frozenset(routes.where))
        self.pressure.changed = True
        self.outcome.add(PlanAccepted(plan))
        self.local.give_plans()
        self.mesh.review(routes)

    def _tell_master(self) -> None:
        """A heartbeat: when it is time, and when an instance comes or goes."""
        if self._master_here:
            causes = tuple(self.pressure.own)
            beat = Heartbeat(causes, self.local.spouts_paused(), self.version, self.local.infos())
            self.outcome.add(TellMaster(beat))

    def _finish(self) -> list[Effect]:
        """What every event ends with: credit, announcements, pauses, and the links that have work."""
        flow = self.flow
        if flow.renewals:
            renewals = list(flow.renewals)
            flow.renewals.clear()
            for grant in renewals:
                if not grant.container:
                    self.local.renew(grant)
            self.mesh.renew([grant for grant in renewals if grant.container])
        self.mesh.announce()
        self.local.pause_spouts()
        if flow.dirty:
            self.outcome.add(*[Wake(link) for link in flow.dirty if link.has_work()])
            flow.dirty.clear()
        return self.outcome.take()
