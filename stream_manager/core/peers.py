"""Protocol with the stream managers of other containers: hellos, acceptance, credit and backpressure causes."""

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
from stream_manager.core.connections import Peer, ProtocolViolation
from stream_manager.core.credit import CreditGrant
from stream_manager.core.events import EndConnection, SendMessage, StopReplaced
from stream_manager.core.links import peer_credit
from stream_manager.core.plan import CurrentPlan, PlanRoutes
from stream_manager.core.state import StreamManagerState

CAUSE_SETS_PER_HEARTBEAT = 4  # at least, without causes


class PeerProtocol:
    """Handles the messages of peers and sends them credit and causes.

    A peer is *accepted* when the plan names its incarnation. A newer incarnation waits for its plan; an older one is
    asked to leave.
    """

    def __init__(self, state: StreamManagerState) -> None:
        self._connections = state.connections
        self._forwarder = state.forwarder
        self._causes = state.causes
        self._weights = state.weights
        self._generation = state.generation
        self._effects = state.effects
        self._repaired = 0  # number of the cause set that all peers have received at a heartbeat
        self._last_told = 0  # container that received the set last

    def connect(self, connection: int, hello: PeerHello, said: int, routes: PlanRoutes) -> None:
        """Accept a hello. Replaces an older connection; rejects an older incarnation or another generation.

        The caller of a rejected connection reconnects.
        """
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
            self._causes.remove_peer(peer.container)
        self._connections.connect(peer, connection, hello.incarnation, hello.generation)
        self._accept_if_named(peer, routes)

    def open_data(self, peer: Peer) -> None:
        """Open the link of an accepted peer."""
        peer.data_open = True
        if not self._end_if_closed(peer):
            self._open(peer)

    def disconnected(self, peer: Peer) -> None:
        """Remove a connection that has ended, and the causes of the peer."""
        self._connections.disconnect(peer)
        self._suspend(peer)
        self._causes.remove_peer(peer.container)

    def control(self, peer: Peer, message: InstanceControl | PeerControl) -> None:
        """Handle a control message.

        Raises:
            ProtocolViolation: The message is not for a stream manager.
        """
        match message:
            case PeerCredit():
                self._forwarder.credit(peer, message.tasks)
                for task in message.tasks:
                    self._weights.update(task.task, task.tuple_weight)
            case CauseSet():
                self._causes.peer_set(peer.container, message)
            case CauseChange():
                self._causes.peer_change(peer.container, message)
            case Leave():
                self._effects.add(StopReplaced(f"{peer}: {message.reason}"))
            case _:
                raise ProtocolViolation(f"{type(message).__name__} is not for stream managers")

    def packet(self, peer: Peer, packet: Packet) -> None:
        """Handle a packet.

        Raises:
            ProtocolViolation: The packet breaks a rule. The parts before the violation have been handled.
        """
        flow, grants, traffic = self._forwarder, peer.grants, peer.traffic_in
        peer.accept(packet)
        if packet.inits or packet.verdicts:
            raise ProtocolViolation("inits and verdicts are not sent between containers")
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
        """Renew credit if half of it is used."""
        peer = self._connections.peers.get(grant.container)
        known = peer is not None and peer.accepted and peer.grants.get(grant.task) is grant
        if peer is not None and known and grant.renewal() is not None:
            self._send(peer, peer_credit([grant], self._weights.of))

    def send_weights(self, tasks: Collection[int], routes: PlanRoutes) -> None:
        """Send the changed weights of local tasks to the peers, together with their credit."""
        here = [task for task in tasks if routes.where.get(task) == routes.container]
        for peer in self._connections.peers.values():
            if peer.accepted:
                self._grant(peer, [task for task in here if task in peer.grants])

    def report_taken(self) -> None:
        """Send to each peer how much of its frames was taken, where that has changed."""
        for peer in self._connections.peers.values():
            if peer.accepted:
                self._grant(peer, [task for task, grant in peer.grants.items() if grant.taken != grant.reported])

    def announce_causes(self) -> None:
        """Send to all peers which causes of this container began and ended (Kulkarni et al. 2015, section 5.4)."""
        change = self._causes.take_change()
        if change is not None:
            self._send_all(change)

    def announce_all_causes(self, turns: int) -> None:
        """Send the whole cause set at a heartbeat, so that a missed change is repaired.

        After a change and while there are causes all peers receive it. Otherwise a part of the peers does, so that each
        hears from this stream manager once in ``turns`` heartbeats: k containers would else send k(k-1) messages per
        heartbeat, which is nearly all the work of an idle mesh.
        """
        whole = self._causes.announced()
        recipients = [peer for _, peer in sorted(self._connections.peers.items()) if peer.accepted]
        if not whole.causes and whole.number == self._repaired:
            number = max(CAUSE_SETS_PER_HEARTBEAT, -(-len(recipients) // turns))
            later = [peer for peer in recipients if peer.container > self._last_told]
            recipients = (later + recipients[: len(recipients) - len(later)])[:number]
            self._last_told = recipients[-1].container if recipients else 0
        self._repaired = whole.number
        for peer in recipients:
            self._send(peer, whole)

    def apply_plan(self, before: PlanRoutes, routes: PlanRoutes) -> None:
        """Apply a new plan: remove, suspend and accept peers."""
        for container in before.peers:
            if container not in routes.peers:
                peer = self._connections.remove_peer(container)
                if peer.connection is not None:
                    self._effects.add(EndConnection(peer.connection, f"{peer} has left the plan"))
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
            assert peer.link.is_open == (peer.accepted and peer.data_open), "only accepted peers receive packets"
            assert not (peer.accepted or peer.data_open) or peer.connection is not None, "an accepted peer is connected"
            named = current.routes.plan.stream_manager(peer.container)
            assert not peer.accepted or (named is not None and named.incarnation == peer.incarnation), (
                "an accepted peer is named by the plan"
            )
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
        self.announce_causes()  # to the other peers, so that the set below is current
        peer.accepted = True
        self._send(peer, self._causes.announced())
        for grant in peer.grants.values():
            grant.restart(open_now=True)
        self._grant(peer, routes.local_tasks)
        self._open(peer)

    def _reject_outdated(self, connection: int, peer: Peer) -> None:
        reason = f"{peer} has a newer stream manager"
        self._effects.add(SendMessage(connection, Leave(reason)), EndConnection(connection, reason))

    def _end_if_closed(self, peer: Peer) -> bool:
        """End the connection of a peer whose generation is closed; return True if it is."""
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
