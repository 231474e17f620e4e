"""The stream manager: facts in, effects out (seed 001 §5.4; protocols 1 to 3 and 5).

Theory of operation. ``handle`` takes one event, ``packet`` one packet, ``next_packet`` gives the next one to write;
each changes the state and returns what is to be done, in order. Within one packet the order is inits, acks, fails,
frames: a root is open before any copy of its tuples has left, so acks commute from then on.

Time comes by ``Tick`` only, and counts only while ticks come: a step of more than a second counts as one second, and
expiry rests a while after it, so that a stream manager that was stopped first reads what waits in its sockets; where
every tick is that late it does not rest for ever. Its own
pause fails no tuple and pauses no spout.

Who owns what: ``connections`` the neighbours with their links and credit (``links``, ``settlements``, ``credit``),
``tracking`` the roots (``ack_tracker``), ``flow`` which neighbour a task is reached through, ``pressure`` the causes,
``weights`` what a tuple weighs for each task,
``standing`` what all of them go by (``routing``). ``local`` and ``mesh`` speak with instances and peers and own nothing
but what they have said. Where state is kept ``generation`` says whose connections carry frames, and reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from heron_runtime.model.ids import PROTOCOL_VERSION
from heron_runtime.model.plan import NO_PLAN, PhysicalPlan, PlanVersion, Standstill, StreamManagerInfo
from heron_runtime.model.settings import Keys, setting
from heron_runtime.wire.control import InstanceHello, Leave, PeerHello, StreamManagerHello
from heron_runtime.wire.data import Packet
from heron_runtime.wire.master import NOBODY, Flow, FromMaster, Heartbeat, HeartbeatReply, Register
from stream_manager.core import events as e
from stream_manager.core.backpressure import BackpressureCauses
from stream_manager.core.connections import (
    ConnectionTable,
    LocalInstance,
    Neighbour,
    Peer,
    ProtocolViolation,
    SequenceFault,
)
from stream_manager.core.credit import TupleWeights
from stream_manager.core.forwarding import FrameForwarder
from stream_manager.core.instances import InstanceProtocol
from stream_manager.core.link_metrics import find_bottleneck, link_gauges, link_totals, stale_totals
from stream_manager.core.peers import PeerProtocol
from stream_manager.core.plan import EMPTY_PLAN, CurrentPlan, GenerationState, PlanRoutes
from stream_manager.core.trackers import AckTrackers

LONGEST_STEP_MS = 1000
MOST_TURNS = 10  # heartbeats from one word to a peer to the next, where there is nothing to say
REST_MS = 2000  # no root expires so soon after a pause of our own
MOST_LATE_TICKS = 5  # in a row: then they are no pauses, this is how slow the machine is, and roots must expire

T = TypeVar("T")


class StreamManager:
    """One container's stream manager. ``settings`` are the operator's ``heron.*`` keys; ``now_ms`` is monotonic."""

    def __init__(self, topology_id: str, info: StreamManagerInfo, settings: Mapping[str, Any], now_ms: int) -> None:
        self.topology_id = topology_id
        self.info = info
        self.container = info.container
        self.current = CurrentPlan(0, PlanRoutes(EMPTY_PLAN, info.container))
        self.violations = 0  # of the protocol, by others
        self.sequence_faults = 0
        self.connections = ConnectionTable(
            setting(settings, Keys.HERON_STREAMMGR_UPLOAD_WINDOW_BYTES),
            setting(settings, Keys.HERON_STREAMMGR_PEER_WINDOW_BYTES),
        )
        self.causes = BackpressureCauses(info.container)
        self.weights = TupleWeights()
        self.trackers = AckTrackers(setting(settings, Keys.HERON_STREAMMGR_ACK_BUCKETS), self.connections)
        self.generation = GenerationState(info, self.connections)
        self.forwarder = FrameForwarder(info.container, self.connections, self.trackers, self.causes)
        self._effects = e.EffectBuffer()
        hello = StreamManagerHello(PROTOCOL_VERSION, topology_id, info.container, info.incarnation)
        self.instances = InstanceProtocol(
            hello, self.connections, self.forwarder, self.trackers, self.causes, self.weights, self.generation,
            self._effects,
        )  # fmt: skip
        self.peers = PeerProtocol(
            self.connections, self.forwarder, self.causes, self.weights, self.generation, self._effects
        )
        self._lease_ms = int(1000 * setting(settings, Keys.HERON_STREAMMGR_PARTITION_LEASE_SECS))
        self._heartbeat_ms = setting(settings, Keys.HERON_HEARTBEAT_INTERVAL_MS)
        # Who hears of us alone hears often enough not to think itself cut off.
        self._turns = max(1, min(MOST_TURNS, self._lease_ms // (3 * self._heartbeat_ms)))
        self._wall_ms = now_ms
        self._now_ms = now_ms  # counts only while ticks come
        self._expire_from_ms = now_ms
        self._late_ticks = 0  # one behind the other
        self._heartbeat_at_ms = now_ms
        self._contact_ms = now_ms  # last word of a master or an accepted peer
        self._is_master_connected = False

    # What happens.

    def handle(self, event: e.Event) -> list[e.Effect]:
        """Take a fact; returns what is to be done, in order."""
        match event:
            case e.Tick(now_ms):
                self._tick(now_ms)
            case e.ControlReceived(connection, message):
                self._dispatch(connection, message, self.instances.control, self.peers.control)
            case e.ConnectionOpened(connection, hello, said):
                self._connected(connection, hello, said)
            case e.DataStreamOpened(connection):
                self._data_opened(self.connections.at(connection))
            case e.ConnectionEnded(connection, malformed):
                self.violations += malformed
                self._disconnected(self.connections.at(connection))
            case e.MasterMessage(message):
                self._master_message(message)
            case e.MasterConnected():
                self._master_connected()
            case e.MasterDisconnected():
                self._is_master_connected = False
                self.trackers.holder = NOBODY
            case e.PlanLoaded(plan, epoch):
                self._apply_plan(plan, epoch)
            case e.PeerRejected(container, reason):
                self._effects.add(e.StopReplaced(f"container {container}: {reason}"))
            case e.Listening(port):
                self.info = replace(self.info, port=port)
        if self.generation.has_unreported_changes():
            self._send_heartbeat()
        return self._finish()

    def packet(self, connection: int, packet: Packet) -> list[e.Effect]:
        """A packet has come on this connection."""
        self._dispatch(connection, packet, self.instances.packet, self.peers.packet)
        return self._finish()

    def next_packet(self, connection: int) -> tuple[Packet | None, list[e.Effect]]:
        """The next packet to write on this connection, if any. It is handed over by this call."""
        neighbour = self.connections.at(connection)
        packet = None if neighbour is None else self.forwarder.next_packet(neighbour)
        return packet, self._finish()

    # What others want to know.

    def peer_hello(self) -> PeerHello:
        """What this stream manager says first to a peer."""
        epoch = self.current.epoch
        incarnation, generation = self.info.incarnation, self.generation.plan_generation
        return PeerHello(PROTOCOL_VERSION, self.topology_id, self.container, incarnation, epoch, generation)

    def instance_connection(self, task: int, incarnation: int) -> int | None:
        """The connection of an instance, if it is of this incarnation."""
        instance = self.connections.instances.get(task)
        return instance.connection if instance is not None and instance.incarnation == incarnation else None

    def peer_connection(self, container: int, incarnation: int, generation: int) -> int | None:
        """The connection of a peer, if it is of this incarnation and generation."""
        peer = self.connections.peers.get(container)
        wanted = peer is not None and (peer.incarnation, peer.generation) == (incarnation, generation)
        return peer.connection if peer is not None and wanted else None

    @property
    def version(self) -> PlanVersion:
        """Of the newest plan."""
        return self.current.routes.plan.version

    def is_idle(self) -> bool:
        """True if nothing here depends on time but heartbeats."""
        return not self.causes.own and not self.instances.has_paused_spouts() and not self.trackers.live

    def is_linked(self) -> bool:
        """True if there is a plan and every peer that is registered in it has an open link."""
        registered = {info.container for info in self.current.routes.plan.stream_managers}
        peers = [self.connections.peers[c] for c in self.current.routes.peers if c in registered]
        return self.version != NO_PLAN and all(peer.link.is_open for peer in peers)

    def totals(self) -> dict[str, float]:
        """Counters since the process began, by metric name."""
        routes = self.current.routes
        found = {
            "__sequence_faults": self.sequence_faults,
            "__protocol_violations": self.violations,
            "__dropped_frames": self.forwarder.moved_frames,
            "__moved_tuples": self.forwarder.moved_tuples,
            "__server/__time_spent_back_pressure_aggr": self.instances.paused_ms,
            **self.causes.totals(routes),
            **self.trackers.totals(),
            **link_totals(self.connections, routes),
            **stale_totals(self.forwarder.stale, routes),
        }
        return {name: float(value) for name, value in found.items()}

    def gauges(self) -> dict[str, float]:
        """What is now, by metric name."""
        found = {
            "__tracked_roots": self.trackers.live,
            "__plan_number": self.version.number,
            **link_gauges(self.connections, self.current.routes, self.weights),
        }
        return {name: float(value) for name, value in found.items()}

    def check(self) -> None:
        """Assert every invariant."""
        self.trackers.check()
        self.check_control()

    def check_control(self) -> None:
        """Assert every invariant but those of the trackers, which take long."""
        self.connections.check(self.forwarder.high, self.forwarder.largest_frame)
        self.forwarder.check()
        self.causes.check()
        self.instances.episodes.check()
        self.weights.check()
        self.generation.check()
        self.instances.check(self.current)
        self.peers.check(self.current)
        assert self.current.epoch >= self.version.epoch, "no plan of a master that was never heard of"
        assert not self._effects.take(), "effects are handed over by the end of each event"

    # Connections.

    def _connected(self, connection: int, hello: InstanceHello | PeerHello, said: int) -> None:
        reason = self._rejection_reason(hello)
        if reason:
            self.violations += 1
            self._effects.add(e.SendMessage(connection, Leave(reason)), e.EndConnection(connection, reason))
        elif isinstance(hello, InstanceHello):
            self.instances.connect(connection, hello, self.current)
            self._send_heartbeat()
        else:
            self._raise_epoch(hello.epoch)
            self.peers.connect(connection, hello, said, self.current.routes)

    def _rejection_reason(self, hello: InstanceHello | PeerHello) -> str:
        if hello.protocol != PROTOCOL_VERSION:
            return (
                f"protocol {hello.protocol} is spoken; this stream manager speaks {PROTOCOL_VERSION}: use one release"
            )
        if hello.topology_id != self.topology_id:
            return f"this is topology {self.topology_id}, not {hello.topology_id}"
        if isinstance(hello, PeerHello) and hello.container == self.container:
            return f"container {self.container} has another stream manager"
        return ""

    def _data_opened(self, neighbour: Neighbour | None) -> None:
        if isinstance(neighbour, LocalInstance):
            self.instances.open_data(neighbour)
        elif isinstance(neighbour, Peer):
            self.peers.open_data(neighbour)

    def _dispatch(
        self, connection: int, what: T, local: Callable[[LocalInstance, T], None], mesh: Callable[[Peer, T], None]
    ) -> None:
        """Hand over what a neighbour has sent. One that breaks a rule loses its connection."""
        neighbour = self.connections.at(connection)
        try:
            if isinstance(neighbour, LocalInstance):
                local(neighbour, what)
            elif isinstance(neighbour, Peer):
                self._contact_ms = self._now_ms
                mesh(neighbour, what)
        except ProtocolViolation as fault:
            self.violations += 1
            self.sequence_faults += isinstance(fault, SequenceFault)
            self._effects.add(e.EndConnection(connection, f"{neighbour}: {fault}"))
            self._disconnected(neighbour)

    def _disconnected(self, neighbour: Neighbour | None) -> None:
        if isinstance(neighbour, LocalInstance):
            self.instances.disconnected(neighbour)
            self._send_heartbeat()
        elif isinstance(neighbour, Peer):
            self.peers.disconnected(neighbour)
            if self.generation.has_unreported_changes():
                self._send_heartbeat()

    # Plans and the master.

    def _apply_plan(self, plan: PhysicalPlan, epoch: int) -> None:
        """Go by this plan, unless it is older than what was heard, or of another topology."""
        before = self.current
        if plan.topology.id != self.topology_id or epoch < before.epoch:
            return
        self._raise_epoch(epoch)
        if plan.version <= self.version:
            return
        routes, scope = (
            PlanRoutes(plan, self.container),
            setting(plan.topology.config, Keys.TOPOLOGY_BACKPRESSURE_SCOPE),
        )
        self.current = CurrentPlan(epoch, routes, scope)
        if self.generation.apply_plan(routes):
            self.forwarder.drop_queued()
        self.trackers.set_routes(routes, self._now_ms)
        self.forwarder.set_routes(routes)
        self.causes.set_routes(routes)
        self.weights.keep_only(routes.where)
        self._effects.add(e.PlanAccepted(plan, epoch, tuple(c for c in routes.peers if c > self.container)))
        self.instances.apply_plan(before.routes, self.current)
        self.peers.apply_plan(before.routes, routes)
        if plan.standstill is Standstill.SETTLING:  # spouts are silent until the master has heard of all
            self._send_heartbeat()

    def _master_connected(self) -> None:
        self._is_master_connected = True
        instances = self.instances.connected_instances(self.current.routes)
        register = Register(PROTOCOL_VERSION, self.topology_id, self.info, instances, self.version, self.current.epoch)
        self._effects.add(e.SendToMaster(register))
        if self.generation.plan_generation:  # a new master learns how everybody stands in its own epoch
            self._send_heartbeat()

    def _master_message(self, message: FromMaster) -> None:
        epoch = self.current.epoch
        if message.epoch < epoch:
            self._effects.add(e.LeaveMaster(f"its epoch {message.epoch} is over; {epoch} was heard"))
        elif isinstance(message, Leave):
            self._effects.add(e.StopReplaced(f"topology master: {message.reason}"))
        else:
            self._contact_ms = self._now_ms
            if isinstance(message, HeartbeatReply):
                self._raise_epoch(message.epoch)
                self.trackers.holder = message.holder
                if self.generation.set_command(message.wish):
                    self.instances.send_command()
            else:
                self._apply_plan(message.plan, message.epoch)

    def _raise_epoch(self, epoch: int) -> None:
        """The highest epoch that anybody speaks of is kept."""
        if epoch > self.current.epoch:
            self.current = replace(self.current, epoch=epoch)
            self._effects.add(e.EpochRaised(epoch))

    def _send_heartbeat(self) -> None:
        """A heartbeat: when it is time, when an instance comes or goes, and when a report changes."""
        if self._is_master_connected:
            causes, instances = tuple(self.causes.own), self.instances.connected_instances(self.current.routes)
            flow, epoch = self._flow(), self.current.epoch
            paused, reports = self.instances.has_paused_spouts(), self.generation.take_reports()
            beat = Heartbeat(causes, paused, self.version, instances, flow, epoch, reports)
            self._effects.add(e.SendToMaster(beat))

    def _flow(self) -> Flow:
        """Whether tuples get through, and who holds them up."""
        here = find_bottleneck(self.connections, self.weights, self.current.routes)
        return Flow(self.trackers.live, self.trackers.stalled_ms(self._now_ms), here)

    # Time.

    def _tick(self, wall_ms: int) -> None:
        """Expiry, heartbeats, the lease."""
        step = wall_ms - self._wall_ms
        self._wall_ms = wall_ms
        self._late_ticks = self._late_ticks + 1 if step > LONGEST_STEP_MS else 0
        if self._late_ticks:
            step = LONGEST_STEP_MS
            if self._late_ticks <= MOST_LATE_TICKS:
                self._expire_from_ms = self._now_ms + step + REST_MS
        self._now_ms += step
        self.causes.pass_time(step)
        self.instances.pass_time(step, self.current.routes)
        if self._now_ms >= self._expire_from_ms:
            self.trackers.tick(self._now_ms)
        # The lease runs from the last word, not from the end of a connection: a silent master is no contact.
        # Where the plan names no peers there is nobody to be cut off from (docs/decisions/lone-container.md).
        silent = self._now_ms - self._contact_ms >= self._lease_ms
        self.causes.set_partitioned(silent and bool(self.current.routes.peers))
        if self._now_ms >= self._heartbeat_at_ms:
            self._heartbeat_at_ms = self._now_ms + self._heartbeat_ms
            self.peers.announce_causes()
            self.peers.announce_all_causes(self._turns)
            self.peers.report_taken()
            self.instances.report_taken()
            self._send_heartbeat()

    def _finish(self) -> list[e.Effect]:
        """What every event ends with: credit, announcements, pauses, and the links that have work."""
        for grant in self.forwarder.due():
            (self.peers if grant.container else self.instances).renew(grant)
        changed = self.weights.take_changed()
        if changed:
            self.instances.send_weights(changed, self.current)
            self.peers.send_weights(changed, self.current.routes)
        self.peers.announce_causes()
        self.instances.pause_spouts(self.current)
        for neighbour in self.connections.take_dirty():
            if neighbour.connection is not None and neighbour.link.has_work():
                self._effects.add(e.WakeLink(neighbour.connection))
        return self._effects.take()
