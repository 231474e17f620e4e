"""Table of local instances and peers, each with its outgoing link and its credit.

A connection is a number that the shell assigns. A number that is not in the table belongs to a connection that has
ended or been replaced; messages that still arrive on it are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from heron_runtime.model.checkpoints import TaskReport
from heron_runtime.model.dataflow import Cause
from heron_runtime.wire.data import Packet
from stream_manager.core.credit import CreditGrant, memory_bound
from stream_manager.core.links import Link, LinkTraffic


class ProtocolViolation(Exception):
    """The remote end has violated the protocol. Its connection is ended and the reason logged."""


class SequenceFault(ProtocolViolation):
    """A packet was lost or duplicated."""


@dataclass(slots=True, eq=False)
class Neighbour:
    """A local instance or a peer, connected or not."""

    link: Link
    connection: int | None = None
    incarnation: int | None = None
    generation: int = 0  # of the connection: only in this one it carries frames
    data_open: bool = False
    expected: int = 1  # number of the next packet to come
    traffic_in: LinkTraffic = field(default_factory=LinkTraffic)

    def accept(self, packet: Packet) -> None:
        """Check the sequence number of a packet and count it.

        Raises:
            SequenceFault: The packet is not the next one.
        """
        if packet.sequence != self.expected:
            raise SequenceFault(f"packet {packet.sequence} instead of {self.expected}")
        self.expected += 1
        self.traffic_in.count(packet)

    def __str__(self) -> str:
        return f"container {self.link.container}" if self.link.container else f"task {self.link.task}"


@dataclass(slots=True, eq=False)
class LocalInstance(Neighbour):
    """Instance of one task of this container."""

    task: int = field(kw_only=True)
    upload: CreditGrant = field(kw_only=True)
    pid: int = 0
    in_call_ms: int = 0  # how long its user code has been in one call, if long
    fed: set[int] = field(default_factory=set)  # tasks it has sent frames to
    sent_causes: tuple[Cause, ...] | None = None  # those of the last Pause, None before the first
    report: TaskReport | None = None  # its last one on this connection


@dataclass(slots=True, eq=False)
class Peer(Neighbour):
    """Stream manager of another container."""

    container: int = field(kw_only=True)
    accepted: bool = False  # the plan names this incarnation
    grants: dict[int, CreditGrant] = field(default_factory=dict)  # local task to the credit for it


class ConnectionTable:
    """All neighbours of one stream manager, including those that its plan does not contain yet."""

    def __init__(self, upload_window: int, peer_window: int) -> None:
        self.instances: dict[int, LocalInstance] = {}  # by task
        self.peers: dict[int, Peer] = {}  # by container
        self.dirty: dict[Neighbour, None] = {}  # neighbours whose link has something to send
        self._upload_window = upload_window
        self._peer_window = peer_window
        self._open: dict[int, Neighbour] = {}  # by connection
        self._gone: dict[
            int, tuple[LinkTraffic, LinkTraffic, dict[int, int]]
        ] = {}  # totals of peers that left, by container

    def instance(self, task: int) -> LocalInstance:
        """Return the instance of a task; create it if it is unknown."""
        instance = self.instances.get(task)
        if instance is None:
            upload = CreditGrant(self._upload_window, 0, task, open_now=False)
            instance = self.instances[task] = LocalInstance(Link(task=task), task=task, upload=upload)
        return instance

    def peer(self, container: int) -> Peer:
        """Return the peer of a container; create it if it is unknown."""
        peer = self.peers.get(container)
        if peer is None:
            peer = self.peers[container] = Peer(Link(container=container), container=container)
            if container in self._gone:
                peer.traffic_in, peer.link.traffic_out, peer.link.lost = self._gone.pop(container)
        return peer

    def remove_peer(self, container: int) -> Peer:
        """Remove the peer of a container that has left the plan. If it returns, its totals continue."""
        peer = self.peers.pop(container)
        self._gone[container] = peer.traffic_in, peer.link.traffic_out, peer.link.lost
        return peer

    def grant(self, peer: Peer, task: int) -> CreditGrant:
        """Return the credit of a peer for a local task; create it if needed."""
        return peer.grants.setdefault(task, CreditGrant(self._peer_window, peer.container, task))

    def at(self, connection: int) -> Neighbour | None:
        """Return the neighbour that a connection belongs to, or None if it has ended."""
        return self._open.get(connection)

    def connect(self, neighbour: Neighbour, connection: int, incarnation: int, generation: int) -> None:
        """Assign a new connection, which begins with packet 1. The previous one must have ended."""
        neighbour.connection, neighbour.incarnation = connection, incarnation
        neighbour.generation = generation
        neighbour.expected = 1
        self._open[connection] = neighbour

    def disconnect(self, neighbour: Neighbour) -> None:
        """Remove the connection of a neighbour. Idempotent."""
        if neighbour.connection is not None:
            del self._open[neighbour.connection]
            neighbour.connection = None
            neighbour.data_open = False

    def take_dirty(self) -> list[Neighbour]:
        """Return the neighbours whose link has received something to send since the last call."""
        dirty = list(self.dirty)
        self.dirty.clear()
        return dirty

    def all(self) -> list[Neighbour]:
        """Return all instances, then all peers."""
        return [*self.instances.values(), *self.peers.values()]

    def check(self, high: int, largest_frame: int) -> None:
        """Assert every invariant; the high mark and the largest frame seen bound each queue."""
        connected = {n.connection: n for n in self.all() if n.connection is not None}
        assert connected == self._open, "every connection belongs to one known neighbour"
        assert all(task == i.task == i.link.task for task, i in self.instances.items()), "instances are found by task"
        assert all(c == p.container == p.link.container for c, p in self.peers.items()), "peers are found by container"
        assert not self.dirty, "links with work are woken by the end of each event"
        windows = (self._upload_window, self._peer_window)
        bound = memory_bound(high, *windows, largest_frame, len(self.instances), len(self.peers))
        for neighbour in self.all():
            link = neighbour.link
            assert not link.is_open or neighbour.connection is not None, "an open link has a connection"
            for queue in link.destinations.values():
                assert queue.weight <= bound, f"the queue of task {queue.task} is bounded: {queue.weight} <= {bound}"
