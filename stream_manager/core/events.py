"""Facts that reach the core, but for packets: those come by ``StreamManager.packet``, since they are many.

``connection`` is the number that the shell gave a connection when its first message came.
"""

from __future__ import annotations

from dataclasses import dataclass

from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.wire.control import InstanceControl, InstanceHello, PeerControl, PeerHello
from heron_runtime.wire.master import FromMaster, ToMaster


@dataclass(frozen=True, slots=True)
class Listening:
    """Peers can reach this stream manager at this port."""

    port: int


@dataclass(frozen=True, slots=True)
class ConnectionOpened:
    """An instance has said hello on its control stream, or a peer, whoever opened the channel.

    ``said``: the generation that the own hello has named to the peer.
    """

    connection: int
    hello: InstanceHello | PeerHello
    said: int = 0


@dataclass(frozen=True, slots=True)
class PeerRejected:
    """A peer has answered a hello by telling this stream manager to leave."""

    container: int
    reason: str


@dataclass(frozen=True, slots=True)
class DataStreamOpened:
    """The data stream of this connection is there."""

    connection: int


@dataclass(frozen=True, slots=True)
class ControlReceived:
    """A message on the control stream, after the hello."""

    connection: int
    message: InstanceControl | PeerControl


@dataclass(frozen=True, slots=True)
class ConnectionEnded:
    """A stream of this connection has ended; ``malformed``: by a message that could not be decoded."""

    connection: int
    malformed: bool = False


@dataclass(frozen=True, slots=True)
class PlanLoaded:
    """The plan that was on disk, and the epoch it was heard with."""

    plan: PhysicalPlan
    epoch: int


@dataclass(frozen=True, slots=True)
class MasterConnected:
    """There is a stream to the topology master."""


@dataclass(frozen=True, slots=True)
class MasterMessage:
    """The topology master says something."""

    message: FromMaster


@dataclass(frozen=True, slots=True)
class MasterDisconnected:
    """The stream to the topology master has ended."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes (``now_ms`` is monotonic). To be told each 100 ms or so, 500 ms while ``idle``, after reading what
    waits."""

    now_ms: int


ConnectionEvent = ConnectionOpened | DataStreamOpened | ControlReceived | ConnectionEnded
MasterEvent = PlanLoaded | MasterConnected | MasterMessage | MasterDisconnected
Event = ConnectionEvent | MasterEvent | Listening | PeerRejected | Tick


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send on the control stream."""

    connection: int
    message: InstanceControl | PeerControl


@dataclass(frozen=True, slots=True)
class WakeLink:
    """There is a packet to write on the data stream."""

    connection: int


@dataclass(frozen=True, slots=True)
class EndConnection:
    """End a connection, once what was sent to it is out; say why."""

    connection: int
    reason: str


@dataclass(frozen=True, slots=True)
class SendToMaster:
    """Send to the master, if it is there."""

    message: ToMaster


@dataclass(frozen=True, slots=True)
class LeaveMaster:
    """The master that speaks is deposed: leave it and look for the acting one."""

    reason: str


@dataclass(frozen=True, slots=True)
class PlanAccepted:
    """A new plan holds: store it, and connect to the peers of ``call`` (the others connect to us)."""

    plan: PhysicalPlan
    epoch: int
    call: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EpochRaised:
    """A higher epoch than ever: store it."""

    epoch: int


@dataclass(frozen=True, slots=True)
class StopReplaced:
    """Another stream manager has taken this place: end."""

    reason: str


Effect = SendMessage | WakeLink | EndConnection | SendToMaster | LeaveMaster | PlanAccepted | EpochRaised | StopReplaced


class EffectBuffer:
    """What one event leads to, in order. Shared by the parts of the core and emptied at the end of each event."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []

    def add(self, *effects: Effect) -> None:
        """Do these next."""
        self._effects.extend(effects)

    def take(self) -> list[Effect]:
        """All effects since the last call."""
        effects, self._effects = self._effects, []
        return effects
