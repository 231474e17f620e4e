"""Core of the stream manager: events in, effects out (Kulkarni et al. 2015, section 5.3).

``StreamManager.handle`` takes one event and ``packet`` one packet; ``next_packet`` returns the next one to write. Each
changes the state and returns effects, in order. A packet is handled in the order inits, acks, fails, frames: a root is
open before a copy of its tuples leaves, so acks commute from then on.

Time advances by ``Tick`` only. A step of more than a second counts as one second, and no root expires for a while after
it, so that a stream manager that was stopped first reads what waits in its sockets: its own pause fails no tuple and
pauses no spout. If every tick is late, roots expire nevertheless.

The state is in ``StreamManagerState`` (see there). ``InstanceProtocol`` and ``PeerProtocol`` handle the messages of
instances and peers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from heron_runtime.model.ids import PROTOCOL_VERSION
from heron_runtime.model.plan import NO_PLAN, PhysicalPlan, PlanVersion, StreamManagerInfo, UpdatePhase
from heron_runtime.model.settings import Keys, setting
from heron_runtime.wire.control import InstanceHello, Leave, PeerHello, StreamManagerHello
from heron_runtime.wire.data import Packet
from heron_runtime.wire.master import NOBODY, FlowStatus, FromMaster, Heartbeat, HeartbeatReply, Register
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
from stream_manager.core.state import StreamManagerState
from stream_manager.core.trackers import AckTrackers

LONGEST_STEP_MS = 1000
MAX_HEARTBEATS_BETWEEN_SETS = 10  # to one peer, without causes
REST_MS = 2000  # no root expires so soon after a late tick
MAX_LATE_TICKS = 5  # in a row; after more of them the machine is slow, and roots expire nevertheless

T = TypeVar("T")


class StreamManager:
    """Stream manager of one container.

    Args:
        topology_id: Id of the topology.
        info: Container, address and incarnation of this stream manager.
        settings: ``heron.*`` settings of the operator.
        now_ms: Monotonic time.
    """

    def __init__(self, topology_id: str, info: StreamManagerInfo, settings: Mapping[str, Any], now_ms: int) -> None:
        self.topology_id = topology_id
        self.info = info
        self.container = info.container
        self.current = CurrentPlan(0, PlanRoutes(EMPTY_PLAN, info.container))
        self.violations = 0  # protocol violations of other processes
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
        state = StreamManagerState(
            self.connections, self.forwarder, self.trackers, self.causes, self.weights, self.generation, self._effects
        )
        hello = StreamManagerHello(PROTOCOL_VERSION, topology_id, info.container, info.incarnation)
        self.instances = InstanceProtocol(state, hello)
        self.peers = PeerProtocol(state)
        self._lease_ms = int(1000 * setting(settings, Keys.HERON_STREAMMGR_PARTITION_LEASE_SECS))
        self._heartbeat_ms = setting(settings, Keys.HERON_HEARTBEAT_INTERVAL_MS)
        # A peer that hears from this stream manager alone must hear often enough to keep its lease.
        self._turns = max(1, min(MAX_HEARTBEATS_BETWEEN_SETS, self._lease_ms // (3 * self._heartbeat_ms)))
        self._wall_ms = now_ms
        self._now_ms = now_ms  # advances by ticks only
        self._expire_from_ms = now_ms
        self._late_ticks = 0  # in a row
        self._heartbeat_at_ms = now_ms
        self._contact_ms = now_ms  # last message of a topology master or an accepted peer
        self._is_master_connected = False

    def handle(self, event: e.Event) -> list[e.Effect]:
        """Handle an event. Return the effects in order."""
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
        """Handle a packet of a connection. Return the effects in order."""
        self._dispatch(connection, packet, self.instances.packet, self.peers.packet)
        return self._finish()

    def next_packet(self, connection: int) -> tuple[Packet | None, list[e.Effect]]:
        """Return the next packet to write on a connection, or None, and the effects in order.

        The caller must write the packet exactly once.
        """
        neighbour = self.connections.at(connection)
        packet = None if neighbour is None else self.forwarder.next_packet(neighbour)
        return packet, self._finish()

    def peer_hello(self) -> PeerHello:
        """Return the first message to a peer."""
        epoch = self.current.epoch
        incarnation, generation = self.info.incarnation, self.generation.plan_generation
        return PeerHello(PROTOCOL_VERSION, self.topology_id, self.container, incarnation, epoch, generation)

    def instance_connection(self, task: int, incarnation: int) -> int | None:
        """Return the connection of an instance of this incarnation, or None."""
        instance = self.connections.instances.get(task)
        return instance.connection if instance is not None and instance.incarnation == incarnation else None

    def peer_connection(self, container: int, incarnation: int, generation: int) -> int | None:
        """Return the connection of a peer of this incarnation and generation, or None."""
        peer = self.connections.peers.get(container)
        wanted = peer is not None and (peer.incarnation, peer.generation) == (incarnation, generation)
        return peer.connection if peer is not None and wanted else None

    @property
    def version(self) -> PlanVersion:
        """Version of the newest plan."""
        return self.current.routes.plan.version

    def is_idle(self) -> bool:
        """Return True if only heartbeats depend on time."""
        return not self.causes.own and not self.instances.has_paused_spouts() and not self.trackers.live

    def is_linked(self) -> bool:
        """Return True if there is a plan and the link of each registered peer is open."""
        registered = {info.container for info in self.current.routes.plan.stream_managers}
        peers = [self.connections.peers[c] for c in self.current.routes.peers if c in registered]
        return self.version != NO_PLAN and all(peer.link.is_open for peer in peers)

    def totals(self) -> dict[str, float]:
        """Return counters since the start of the process, by metric name."""
        routes = self.current.routes
        totals = {
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
        return {name: float(value) for name, value in totals.items()}

    def gauges(self) -> dict[str, float]:
        """Return gauges by metric name."""
        gauges = {
            "__tracked_roots": self.trackers.live,
            "__plan_number": self.version.number,
            **link_gauges(self.connections, self.current.routes, self.weights),
        }
        return {name: float(value) for name, value in gauges.items()}

    def check(self) -> None:
        """Assert every invariant."""
        self.trackers.check()
        self.check_control()

    def check_control(self) -> None:
        """Assert every invariant except those of the trackers, which take long."""
        self.connections.check(self.forwarder.high, self.forwarder.largest_frame)
        self.forwarder.check()
        self.causes.check()
        self.instances.episodes.check()
        self.weights.check()
        self.generation.check()
        self.instances.check(self.current)
        self.peers.check(self.current)
        assert self.current.epoch >= self.version.epoch, "the epoch of the plan is known"
        assert not self._effects.take(), "effects are returned by the end of each event"

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
            return f"protocol version {hello.protocol} does not match {PROTOCOL_VERSION}: use one release everywhere"
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
        """Pass a message to the protocol of its neighbour. A violation ends the connection."""
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
        """Apply a plan, unless it is outdated or belongs to another topology."""
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
        if plan.standstill is UpdatePhase.SETTLING:  # spouts stay silent until all tasks have reported
            self._send_heartbeat()

    def _master_connected(self) -> None:
        self._is_master_connected = True
        instances = self.instances.connected_instances(self.current.routes)
        register = Register(PROTOCOL_VERSION, self.topology_id, self.info, instances, self.version, self.current.epoch)
        self._effects.add(e.SendToMaster(register))
        if self.generation.plan_generation:  # a new leader receives all reports in its own epoch
            self._send_heartbeat()

    def _master_message(self, message: FromMaster) -> None:
        epoch = self.current.epoch
        if message.epoch < epoch:
            self._effects.add(e.LeaveMaster(f"epoch {message.epoch} is outdated; the current one is {epoch}"))
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
        """Store an epoch if it is higher than the current one."""
        if epoch > self.current.epoch:
            self.current = replace(self.current, epoch=epoch)
            self._effects.add(e.EpochRaised(epoch))

    def _send_heartbeat(self) -> None:
        """Send a heartbeat: periodically, when an instance connects or disconnects, and when a report changes."""
        if self._is_master_connected:
            causes, instances = tuple(self.causes.own), self.instances.connected_instances(self.current.routes)
            flow, epoch = self._flow(), self.current.epoch
            paused, reports = self.instances.has_paused_spouts(), self.generation.take_reports()
            beat = Heartbeat(causes, paused, self.version, instances, flow, epoch, reports)
            self._effects.add(e.SendToMaster(beat))

    def _flow(self) -> FlowStatus:
        """Return whether tuples are acked, and the bottleneck."""
        here = find_bottleneck(self.connections, self.weights, self.current.routes)
        return FlowStatus(self.trackers.live, self.trackers.stalled_ms(self._now_ms), here)

    # Time.

    def _tick(self, wall_ms: int) -> None:
        """Advance the time: expire roots, check the lease, send heartbeats."""
        step = wall_ms - self._wall_ms
        self._wall_ms = wall_ms
        self._late_ticks = self._late_ticks + 1 if step > LONGEST_STEP_MS else 0
        if self._late_ticks:
            step = LONGEST_STEP_MS
            if self._late_ticks <= MAX_LATE_TICKS:
                self._expire_from_ms = self._now_ms + step + REST_MS
        self._now_ms += step
        self.causes.pass_time(step)
        self.instances.pass_time(step, self.current.routes)
        if self._now_ms >= self._expire_from_ms:
            self.trackers.tick(self._now_ms)
        # The lease starts with the last message, not with the end of a connection: a silent master is not a contact.
        # A plan without peers cannot be partitioned (docs/decisions/lone-container.md).
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
        """Finish an event: renew credit, announce causes, pause spouts, wake links. Return the effects."""
        for grant in self.forwarder.take_due_grants():
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
