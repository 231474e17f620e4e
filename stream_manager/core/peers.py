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
from stream_manager.core.backpressure import Pressure
from stream_manager.core.connections import Connections, Peer, ProtocolViolation
from stream_manager.core.credit import Grant, Weights
from stream_manager.core.events import EffectBuffer, End, Replaced, Send
from stream_manager.core.forwarding import Forwarding
from stream_manager.core.links import peer_credit
from stream_manager.core.plan import InForce, Routes, Standing

FEW_PEERS = 4  # are told at each heartbeat


class PeerSide:
    """Speaks with the peers of one stream manager. A peer is *accepted* when it is the one the plan names; a newer one
    waits for its plan to come, an older one is told to leave."""

    def __init__(
        self,
        connections: Connections,
        flow: Forwarding,
        pressure: Pressure,
        weights: Weights,
        generation: InForce,
        effects: EffectBuffer,
    ) -> None:
        self._connections = connections
        self._flow = flow
        self._pressure = pressure
        self._weights = weights
        self._generation = generation
        self._effects = effects
        self._repaired = 0  # the number of the set that every peer was told whole at a heartbeat
        self._last_told = 0  # whose turn it was

    def hello(self, connection: int, hello: PeerHello, said: int, routes: Routes) -> None:
        """A new connection; it replaces an older one, unless it comes from an older stream manager, or one of the two
        stood in another generation when it said hello: whoever has called calls again."""
        peer = self._connections.peer(hello.container)
        if peer.connection is not None and (peer.incarnation or 0) > hello.incarnation:
            self._send_away(connection, peer)
            return
        named = routes.plan.stream_manager(peer.container)
        replaced = named is not None and hello.incarnation < named.incarnation
        mismatch = self._generation.mismatch(hello.generation, said)
        if mismatch and not replaced:
            self._effects.add(End(connection, f"{peer}: {mismatch}"))
            return
        if peer.connection is not None:
            self._effects.add(End(peer.connection, f"{peer}: replaced by a newer connection"))
            self.lost(peer)
        if peer.incarnation != hello.incarnation:
            self._pressure.peer_gone(peer.container)
        self._connections.connect(peer, connection, hello.incarnation, hello.generation)
        self._consider(peer, routes)

    def data(self, peer: Peer) -> None:
        """The data stream is there."""
        peer.data_open = True
        if not self._refused(peer):
            self._open(peer)

    def lost(self, peer: Peer) -> None:
        """The connection has ended, and the peer's causes with it."""
        self._connections.disconnect(peer)
        self._suspend(peer)
        self._pressure.peer_gone(peer.container)

    def control(self, peer: Peer, message: InstanceControl | PeerControl) -> None:
        """Whatever a peer says after its hello. Raises ProtocolViolation."""
        match message:
            case PeerCredit():
                self._flow.credit(peer, message.tasks)
                for task in message.tasks:
                    self._weights.tell(task.task, task.tuple_weight)
            case CauseSet():
                self._pressure.peer_set(peer.container, message)
            case CauseChange():
                self._pressure.peer_change(peer.container, message)
            case Leave():
                self._effects.add(Replaced(f"{peer}: {message.reason}"))
            case _:
                raise ProtocolViolation(f"{type(message).__name__} after the hello")

    def packet(self, peer: Peer, packet: Packet) -> None:
        """Take a packet. Raises ProtocolViolation; what came before the fault in the packet is done."""
        flow, grants, traffic = self._flow, peer.grants, peer.traffic_in
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

    def renew(self, grant: Grant) -> None:
        """Give credit if half of it is used up."""
        peer = self._connections.peers.get(grant.container)
        known = peer is not None and peer.accepted and peer.grants.get(grant.task) is grant
        if peer is not None and known and grant.renewal() is not None:
            self._tell(peer, peer_credit([grant], self._weights.of))

    def tell_weights(self, tasks: Collection[int], routes: Routes) -> None:
        """The weight of these tasks has changed: tell every peer of those that live here, with what it may send."""
        here = [task for task in tasks if routes.where.get(task) == routes.container]
        for peer in self._connections.peers.values():
            if peer.accepted:
                self._grant(peer, [task for task in here if task in peer.grants])

    def tell_taken(self) -> None:
        """What has been taken since it was told last."""
        for peer in self._connections.peers.values():
            if peer.accepted:
                self._grant(peer, [task for task, grant in peer.grants.items() if grant.taken != grant.told])

    def announce(self) -> None:
        """StartBackPressure and StopBackPressure to every peer, if the own causes have changed."""
        change = self._pressure.announce()
        if change is not None:
            self._tell_all(change)

    def announce_whole(self, turns: int) -> None:
        """The whole set, at a heartbeat: to every peer after a change and while there are causes, so that what was
        missed is repaired; else to some in turn, so that each hears from us once in ``turns`` heartbeats.

        With k containers k(k-1) messages for each heartbeat were nearly all that an idle mesh did.
        """
        whole = self._pressure.whole()
        told = [peer for _, peer in sorted(self._connections.peers.items()) if peer.accepted]
        if not whole.causes and whole.number == self._repaired:
            number = max(FEW_PEERS, -(-len(told) // turns))
            later = [peer for peer in told if peer.container > self._last_told]
            told = (later + told[: len(told) - len(later)])[:number]
            self._last_told = told[-1].container if told else 0
        self._repaired = whole.number
        for peer in told:
            self._tell(peer, whole)

    def review(self, before: Routes, routes: Routes) -> None:
        """A new plan, once it is routed by: who goes, who is still the right one, who waited for it."""
        for container in before.peers:
            if container not in routes.peers:
                peer = self._connections.remove_peer(container)
                if peer.connection is not None:
                    self._effects.add(End(peer.connection, f"{peer} is not in the plan any more"))
                self.lost(peer)
                self._flow.drop_peer(peer)
        for container in routes.peers:
            peer = self._connections.peer(container)
            if peer.connection is not None and peer.generation != self._generation.number:
                self._effects.add(End(peer.connection, f"{peer}: generation {peer.generation} is over"))
                self.lost(peer)
            named = routes.plan.stream_manager(container)
            if peer.accepted and (named is None or named.incarnation != peer.incarnation):
                self._suspend(peer)
            elif peer.accepted:
                self._grant(peer, [task for task in routes.local_tasks if task not in peer.grants])
            self._consider(peer, routes)

    def check(self, standing: Standing) -> None:
        """Assert every invariant."""
        for peer in self._connections.peers.values():
            assert peer.link.is_open == (peer.accepted and peer.data_open), "only peers of the plan get packets"
            assert not (peer.accepted or peer.data_open) or peer.connection is not None, "an accepted peer is connected"
            named = standing.routes.plan.stream_manager(peer.container)
            assert not peer.accepted or (named is not None and named.incarnation == peer.incarnation), "it is the one"
        for container in standing.routes.peers:
            assert container in self._connections.peers, "peers of the plan are known"

    def _consider(self, peer: Peer, routes: Routes) -> None:
        if peer.connection is None or peer.accepted:
            return
        named = routes.plan.stream_manager(peer.container)
        if named is None or peer.incarnation is None or named.incarnation < peer.incarnation:
            return
        if named.incarnation > peer.incarnation:
            self._send_away(peer.connection, peer)
            self.lost(peer)
            return
        if self._refused(peer):
            return
        self.announce()  # to the others, so that the whole set below is up to date
        peer.accepted = True
        self._tell(peer, self._pressure.whole())
        for grant in peer.grants.values():
            grant.restart(open_now=True)
        self._grant(peer, routes.local_tasks)
        self._open(peer)

    def _send_away(self, connection: int, peer: Peer) -> None:
        reason = f"{peer} has a newer stream manager"
        self._effects.add(Send(connection, Leave(reason)), End(connection, reason))

    def _refused(self, peer: Peer) -> bool:
        """End a connection that comes too late for its generation."""
        over = self._generation.over()
        if peer.connection is not None and over:
            self._effects.add(End(peer.connection, f"{peer}: {over}"))
            self.lost(peer)
        return bool(over)

    def _open(self, peer: Peer) -> None:
        if peer.accepted and peer.data_open:
            self._flow.open(peer)

    def _suspend(self, peer: Peer) -> None:
        if peer.accepted:
            self._generation.ended(peer)
        peer.accepted = False
        for grant in peer.grants.values():
            grant.restart(open_now=False)
        self._flow.close(peer)

    def _grant(self, peer: Peer, tasks: Iterable[int]) -> None:
        grants = [self._connections.grant(peer, task) for task in tasks]
        if grants:
            self._tell(peer, peer_credit(grants, self._weights.of))

    def _tell_all(self, message: PeerControl) -> None:
        for peer in self._connections.peers.values():
            if peer.accepted:
                self._tell(peer, message)

    def _tell(self, peer: Peer, message: PeerControl) -> None:
        if peer.connection is not None:
            self._effects.add(Send(peer.connection, message))
