"""Who is connected: the local instances and the peers, each with its outgoing link and what it may send here."""

from __future__ import annotations

from dataclasses import dataclass, field

from heronry.model.causes import Cause
from heronry.wire.data import Packet
from stream_manager.core.credit import Grant
from stream_manager.core.links import Link, Traffic


class ProtocolViolation(Exception):
    """The other end has broken a rule; its connection is ended and the reason logged."""


class SequenceFault(ProtocolViolation):
    """A packet was lost or came twice."""


@dataclass(slots=True)
class Incoming:
    """The incoming side of connections to one neighbour."""

    expected: int = 1  # number of the next packet
    traffic: Traffic = field(default_factory=Traffic)

    def accept(self, packet: Packet) -> None:
        """Check the number and count the packet. Raises SequenceFault."""
        if packet.sequence != self.expected:
            raise SequenceFault(f"packet {packet.sequence} instead of {self.expected}")
        self.expected += 1
        self.traffic.count(packet)


@dataclass(slots=True, eq=False)
class LocalInstance:
    """The instance of one task of this container, connected or not."""

    task: int
    link: Link
    upload: Grant
    incoming: Incoming = field(default_factory=Incoming)
    connection: int | None = None
    incarnation: int | None = None
    pid: int = 0
    fed: set[int] = field(default_factory=set)  # tasks it has sent frames to on this connection
    has_plan: bool = False
    told: tuple[Cause, ...] | None = None  # the causes of the last Pause, None before the first


@dataclass(slots=True, eq=False)
class Peer:
    """The stream manager of another container, connected or not."""

    container: int
    link: Link
    incoming: Incoming = field(default_factory=Incoming)
    connection: int | None = None
    incarnation: int | None = None
    accepted: bool = False  # it is the one the plan names
    data_open: bool = False
    grants: dict[int, Grant] = field(default_factory=dict)  # local task to what the peer may send for it
