"""The side of the stream manager that faces its peers: hellos, who is the right one, credit for local tasks, causes."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from heron_runtime.wire.control import (
    CauseChange,
    CauseSet,
    InstanceControl,
    Leave,
    PeerControl,
    PeerCredit,
    PeerHello,
)
from heron_runtime.wire.data import Packet
from stream_manager.core.backpressure import BackpressureCauses
from stream_manager.core.connections import ConnectionTable, Peer, ProtocolViolation
from stream_manager.core.credit import CreditGrant, TupleWeights
from stream_manager.core.events import EffectBuffer, EndConnection, SendMessage, StopReplaced
from stream_manager.core.forwarding import FrameForwarder
from stream_manager.core.links import peer_credit
from stream_manager.core.plan import CurrentPlan, GenerationState, PlanRoutes

FEW_PEERS = 4  # are told at each heartbeat


class PeerProtocol:
    """Speaks with the peers of one stream manager. A peer is *accepted* when it is the one the plan names; a newer one
    waits for its plan to come, an older one is told to leave."""

    def __init__(
        self,
        connections: ConnectionTable,
        flow: FrameForwarder,
        pressure: BackpressureCauses,
        weights: TupleWeights,
        generation: GenerationState,
        effects: EffectBuffer,
    ) -> None:
        self._connections = connections
        self._forwarder = flow
        self._causes = pressure
        self._weights = weights
        self._generation = generation
        self._effects = effects
        self._repaired = 0  # the number of the set that every peer was told whole at a heartbeat
        self._last_told = 0  # whose turn it was

    def connect(self, connection: int, hello: PeerHello, said: int, routes: PlanRoutes) -> None:
        """A new connection; it replaces an older one, unless it comes from an older stream manager, or one of the two
        stood in another generation when it said hello: whoever has called calls again."""
        peer = self._connections.peer(hello.container)
        if peer.connection is not None and (peer.incarnation or 0) > hello.incarnation:
            self._reject_outdated(connection, peer)
            return
        named = routes.plan.stream_manager(peer.container)
        replaced = named is not None and hello.incarnation < named.incarnation
        mismatch = self._generation.mismatch_reason(hello.generation, said)
        if mismatch and not replaced:
            self._effects.add(EndConnection(connection, f"{peer}: {mismatch}"))
            return
        if peer.connection is not None:
            self._effects.add(EndConnection(peer.connection, f"{peer}: replaced by a newer connection"))
            self.disconnected(peer)
        if peer.incarnation != hello.incarnation:
            self._causes.peer_gone(peer.container)
        self._connections.connect(peer, connection, hello.incarnation, hello.generation)
        self._accept_if_named(peer, routes)

    def open_data(self, peer: Peer) -> None:
        """The data stream is there."""
        peer.data_open = True
        if not self._end_if_closed(peer):
            self._open(peer)

    def disconnected(self, peer: Peer) -> None:
        """The connection has ended, and the peer's causes with it."""
        self._connections.disconnect(peer)
        self._suspend(peer)
        self._causes.peer_gone(peer.container)

    def control(self, peer: Peer, message: InstanceControl | PeerControl) -> None:
        """Whatever a peer says after its hello. Raises ProtocolViolation."""
        match message:
            case PeerCredit():
                self._forwarder.credit(peer, message.tasks)
                for task in message.tasks:
                    self._weights.tell(task.task, task.tuple_weight)
            case CauseSet():
                self._causes.peer_set(peer.container, message)
            case CauseChange():
                self._causes.peer_change(peer.container, message)
            case Leave():
                self._effects.add(StopReplaced(f"{peer}: {message.reason}"))
            case _:
                raise ProtocolViolation(f"{type(message).__name__} after the hello")

    def packet(self, peer: Peer, packet: Packet) -> None:
        """Take a packet. Raises ProtocolViolation; what came before the fault in the packet is done."""
        flow, grants, traffic = self._forwarder, peer.grants, peer.traffic_in
        peer.accept(packet)
        if packet.inits or packet.verdicts:
            raise ProtocolViolation("inits and verdicts stay within a container")
        for ack in packet.acks:
            flow.ack(ack)
        for fail in packet.fails:
            flow.fail(fail)
        for frame in packet.frames:
            weight = frame.weight()
            grant = grants.get(frame.destination_task)
            if grant is None or not grant.receive(weight):
                raise ProtocolViolation(f"frames for task {frame.destination_task} without credit")
            traffic.bytes += frame.size_bytes()
            flow.forward(frame, weight, grant)

    def renew(self, grant: CreditGrant) -> None:
        """Give credit if half of it is used up."""
        peer = self._connections.peers.get(grant.container)
        known = peer is not None and peer.accepted and peer.grants.get(grant.task) is grant
        if peer is not None and known and grant.renewal() is not None:
            self._send(peer, peer_credit([grant], self._weights.of))

    def send_weights(self, tasks: Collection[int], routes: PlanRoutes) -> None:
        """The weight of these tasks has changed: tell every peer of those that live here, with what it may send."""
        here = [task for task in tasks if routes.where.get(task) == routes.container]
        for peer in self._connections.peers.values():
            if peer.accepted:
                self._grant(peer, [task for task in here if task in peer.grants])

    def report_taken(self) -> None:
        """What has been taken since it was told last."""
        for peer in self._connections.peers.values():
            if peer.accepted:
                self._grant(peer, [task for task, grant in peer.grants.items() if grant.taken != grant.told])

    def announce_causes(self) -> None:
        """StartBackPressure and StopBackPressure to every peer, if the own causes have changed."""
        change = self._causes.announce()
        if change is not None:
            self._send_all(change)

    def announce_all_causes(self, turns: int) -> None:
        """The whole set, at a heartbeat: to every peer after a change and while there are causes, so that what was
        missed is repaired; else to some in turn, so that each hears from us once in ``turns`` heartbeats.

        With k containers k(k-1) messages for each heartbeat were nearly all that an idle mesh did.
        """
        whole = self._causes.whole()
        told = [peer for _, peer in sorted(self._connections.peers.items()) if peer.accepted]
        if not whole.causes and whole.number == self._repaired:
            number = max(FEW_PEERS, -(-len(told) // turns))
            later = [peer for peer in told if peer.container > self._last_told]
            told = (later + told[: len(told) - len(later)])[:number]
            self._last_told = told[-1].container if told else 0
        self._repaired = whole.number
        for peer in told:
            self._send(peer, whole)

    def apply_plan(self, before: PlanRoutes, routes: PlanRoutes) -> None:
        """A new plan, once it is routed by: who goes, who is still the right one, who waited for it."""
        for container in before.peers:
            if container not in routes.peers:
                peer = self._connections.remove_peer(container)
                if peer.connection is not None:
                    self._effects.add(EndConnection(peer.connection, f"{peer} is not in the plan any more"))
                self.disconnected(peer)
                self._forwarder.drop_peer(peer)
        for container in routes.peers:
            peer = self._connections.peer(container)
            if peer.connection is not None and peer.generation != self._generation.carried_generation:
                self._effects.add(EndConnection(peer.connection, f"{peer}: generation {peer.generation} is over"))
                self.disconnected(peer)
            named = routes.plan.stream_manager(container)
            if peer.accepted and (named is None or named.incarnation != peer.incarnation):
                self._suspend(peer)
            elif peer.accepted:
                self._grant(peer, [task for task in routes.local_tasks if task not in peer.grants])
            self._accept_if_named(peer, routes)

    def check(self, current: CurrentPlan) -> None:
        """Assert every invariant."""
        for peer in self._connections.peers.values():
            assert peer.link.is_open == (peer.accepted and peer.data_open), "only peers of the plan get packets"
            assert not (peer.accepted or peer.data_open) or peer.connection is not None, "an accepted peer is connected"
            named = current.routes.plan.stream_manager(peer.container)
            assert not peer.accepted or (named is not None and named.incarnation == peer.incarnation), "it is the one"
        for container in current.routes.peers:
            assert container in self._connections.peers, "peers of the plan are known"

    def _accept_if_named(self, peer: Peer, routes: PlanRoutes) -> None:
        if peer.connection is None or peer.accepted:
            return
        named = routes.plan.stream_manager(peer.container)
        if named is None or peer.incarnation is None or named.incarnation < peer.incarnation:
            return
        if named.incarnation > peer.incarnation:
            self._reject_outdated(peer.connection, peer)
            self.disconnected(peer)
            return
        if self._end_if_closed(peer):
            return
        self.announce_causes()  # to the others, so that the whole set below is up to date
        peer.accepted = True
        self._send(peer, self._causes.whole())
        for grant in peer.grants.values():
            grant.restart(open_now=True)
        self._grant(peer, routes.local_tasks)
        self._open(peer)

    def _reject_outdated(self, connection: int, peer: Peer) -> None:
        reason = f"{peer} has a newer stream manager"
        self._effects.add(SendMessage(connection, Leave(reason)), EndConnection(connection, reason))

    def _end_if_closed(self, peer: Peer) -> bool:
        """End a connection that comes too late for its generation."""
        over = self._generation.closed_reason()
        if peer.connection is not None and over:
            self._effects.add(EndConnection(peer.connection, f"{peer}: {over}"))
            self.disconnected(peer)
        return bool(over)

    def _open(self, peer: Peer) -> None:
        if peer.accepted and peer.data_open:
            self._forwarder.open(peer)

    def _suspend(self, peer: Peer) -> None:
        if peer.accepted:
            self._generation.record_ended(peer)
        peer.accepted = False
        for grant in peer.grants.values():
            grant.restart(open_now=False)
        self._forwarder.close(peer)

    def _grant(self, peer: Peer, tasks: Iterable[int]) -> None:
        grants = [self._connections.grant(peer, task) for task in tasks]
        if grants:
            self._send(peer, peer_credit(grants, self._weights.of))

    def _send_all(self, message: PeerControl) -> None:
        for peer in self._connections.peers.values():
            if peer.accepted:
                self._send(peer, message)

    def _send(self, peer: Peer, message: PeerControl) -> None:
        if peer.connection is not None:
            self._effects.add(SendMessage(peer.connection, message))
