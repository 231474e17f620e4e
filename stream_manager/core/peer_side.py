"""The side of the stream manager that faces its peers: hellos, who is the right one, credit for local tasks, causes."""

from __future__ import annotations

from collections.abc import Iterable

from heronry.wire.control import CauseChange, CauseSet, Leave, PeerControl, PeerCredit, PeerHello
from heronry.wire.data import Packet
from stream_manager.core.backpressure import Pressure
from stream_manager.core.control_outbox import peer_credit
from stream_manager.core.credit import Grant
from stream_manager.core.effects import End, Exit, ToPeer
from stream_manager.core.forwarding import Forwarding
from stream_manager.core.links import Link
from stream_manager.core.neighbours import Peer, ProtocolViolation
from stream_manager.core.outcome import Outcome
from stream_manager.core.routing import Routes


class PeerSide:
    """All peers of one stream manager. A peer is *accepted* when it is the one the plan names; a newer one waits for
    its plan to come, an older one is told to leave."""

    def __init__(self, peer_window: int, flow: Forwarding, pressure: Pressure, outcome: Outcome) -> None:
        self.routes: Routes | None = None
        self.peer_window = peer_window
        self._flow = flow
        self._pressure = pressure
        self._out = outcome
        self._strangers: dict[int, Peer] = {}  # connected before the first plan, or in none yet

    def of_container(self, container: int) -> Peer:
        """The peer of a container, known or new."""
        known = self._flow.peers.get(container)
        return known or self._strangers.setdefault(container, Peer(container, Link(container=container)))

    def connected(self, connection: int, container: int) -> Peer | None:
        """The peer, if this is its connection now."""
        peer = self._flow.peers.get(container) or self._strangers.get(container)
        return peer if peer is not None and peer.connection == connection else None

    def hello(self, connection: int, hello: PeerHello) -> None:
        """A new connection; it replaces an older one, unless it comes from an older stream manager."""
        peer = self.of_container(hello.container)
        if peer.connection is not None and (peer.incarnation or 0) > hello.incarnation:
            self._send_away(connection, hello.container)
            return
        if peer.connection is not None:
            self._out.add(End(peer.connection, f"container {peer.container}: replaced by a newer connection"))
            self.lost(peer)
        if peer.incarnation != hello.incarnation:
            self._pressure.peer_gone(peer.container)
        peer.connection, peer.incarnation = connection, hello.incarnation
        peer.incoming.expected = 1
        self._consider(peer)

    def data(self, peer: Peer) -> None:
        """The data stream is there."""
        peer.data_open = True
        self._open(peer)

    def lost(self, peer: Peer) -> None:
        """The connection has ended, and the peer's causes with it."""
        peer.connection = None
        peer.data_open = False
        self._suspend(peer)
        self._pressure.peer_gone(peer.container)

    def control(self, peer: Peer, message: PeerControl) -> None:
        """Whatever a peer says after its hello. Raises ProtocolViolation."""
        match message:
            case PeerCredit():
                for credit in message.tasks:
                    peer.link.set_limit(credit.task, credit.limit_bytes)
                self._flow.dirty[peer.link] = None
                if peer.link.bytes >= self._flow.high:
                    self._flow.observe_link(peer.link)
            case CauseSet():
                self._pressure.peer_set(peer.container, message)
            case CauseChange():
                self._pressure.peer_change(peer.container, message)
            case Leave():
                self._out.add(Exit(f"container {peer.container}: {message.reason}"))
            case PeerHello():
                raise ProtocolViolation("a second hello")

    def packet(self, peer: Peer, packet: Packet) -> None:
        """Take a packet. Raises ProtocolViolation; what came before the fault in the packet is done."""
        flow, grants, traffic = self._flow, peer.grants, peer.incoming.traffic
        peer.incoming.accept(packet)
        if packet.inits or packet.verdicts:
            raise ProtocolViolation("inits and verdicts stay within a container")
        for ack in packet.acks:
            flow.ack(ack)
        for fail in packet.fails:
            flow.fail(fail)
        for frame in packet.frames:
            size = frame.size_bytes()
            grant = grants.get(frame.destination_task)
            if grant is None or not grant.receive(size):
                raise ProtocolViolation(f"frames for task {frame.destination_task} without credit")
            traffic.bytes += size
            flow.forward(frame, size, grant, peer.container)

    def renew(self, grants: Iterable[Grant]) -> None:
        """Send the limits that have moved on by half a window, one message per peer."""
        limits: dict[int, dict[int, int]] = {}
        for grant in grants:
            peer = self._flow.peers.get(grant.container)
            if peer is not None and peer.accepted and peer.grants.get(grant.task) is grant:
                limit = grant.renewal()
                if limit is not None:
                    limits.setdefault(grant.container, {})[grant.task] = limit
        for container, tasks in limits.items():
            self._tell(self._flow.peers[container], peer_credit(tasks))

    def announce(self) -> None:
        """StartBackPressure and StopBackPressure to every peer, if the own causes have changed."""
        change = self._pressure.announce()
        if change is not None:
            for peer in self._flow.peers.values():
                if peer.accepted:
                    self._tell(peer, change)

    def announce_whole(self) -> None:
        """The whole set to every peer."""
        for peer in self._flow.peers.values():
            if peer.accepted:
                self._tell(peer, self._pressure.whole())

    def add_peers(self, routes: Routes) -> None:
        """A new plan, before it is routed by."""
        self.routes = routes
        for container in routes.peers:
            if container not in self._flow.peers:
                self._flow.peers[container] = self.of_container(container)
                self._strangers.pop(container, None)

    def review(self, routes: Routes) -> None:
        """A new plan, once it is routed by: who goes, who is still the right one, who waited for it."""
        for container in [number for number in self._flow.peers if number not in routes.peers]:
            peer = self._flow.peers.pop(container)
            if peer.connection is not None:
                self._out.add(End(peer.connection, f"container {container} is not in the plan any more"))
            self.lost(peer)
            self._flow.drop_peer(peer)
        for peer in self._flow.peers.values():
            named = routes.plan.stream_manager(peer.container)
            if peer.accepted and (named is None or named.incarnation != peer.incarnation):
                self._suspend(peer)
            elif peer.accepted:
                self._grant(peer, [task for task in routes.local_tasks if task not in peer.grants])
            self._consider(peer)

    def check(self) -> None:
        """Assert every invariant."""
        for peer in self._flow.peers.values():
            assert peer.link.is_open == (peer.accepted and peer.data_open), "only peers of the plan get packets"
            assert not peer.accepted or peer.connection is not None, "an accepted peer is connected"

    def _consider(self, peer: Peer) -> None:
        if peer.connection is None or peer.accepted or self.routes is None:
            return
        named = self.routes.plan.stream_manager(peer.container)
        if named is None or peer.incarnation is None or named.incarnation < peer.incarnation:
            return
        if named.incarnation > peer.incarnation:
            self._send_away(peer.connection, peer.container)
            self.lost(peer)
            return
        self.announce()  # to the others, so that the whole set below is up to date
        peer.accepted = True
        self._tell(peer, self._pressure.whole())
        for grant in peer.grants.values():
            grant.restart(open_now=True)
        self._grant(peer, self.routes.local_tasks)
        self._open(peer)

    def _send_away(self, connection: int, container: int) -> None:
        reason = f"container {container} has a newer stream manager"
        self._out.add(ToPeer(connection, Leave(reason)), End(connection, reason))

    def _open(self, peer: Peer) -> None:
        if peer.accepted and peer.data_open:
            peer.link.open()
            self._flow.observe_all(peer.link)
            self._flow.dirty[peer.link] = None

    def _suspend(self, peer: Peer) -> None:
        peer.accepted = False
        for grant in peer.grants.values():
            grant.restart(open_now=False)
        peer.link.close()
        self._flow.observe_all(peer.link)

    def _grant(self, peer: Peer, tasks: Iterable[int]) -> None:
        limits = {}
        for task in tasks:
            grant = peer.grants.get(task)
            if grant is None:
                grant = peer.grants[task] = Grant(self.peer_window, peer.container, task)
            limits[task] = grant.limit
        if limits:
            self._tell(peer, peer_credit(limits))

    def _tell(self, peer: Peer, message: PeerControl) -> None:
        if peer.connection is not None:
            self._out.add(ToPeer(peer.connection, message))
