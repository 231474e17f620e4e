"""Events that the core receives, and effects that it requests.

The shell passes each event to ``StreamManager.handle`` and runs the returned effects in order, before the next event.
Packets are not events: they are many, so they reach the core through ``StreamManager.packet``.

``connection`` is the number that the shell assigned when the first message of a connection arrived. An effect for a
connection that has ended does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.wire.control import InstanceControl, InstanceHello, PeerControl, PeerHello
from heron_runtime.wire.master import FromMaster, ToMaster


@dataclass(frozen=True, slots=True)
class Listening:
    """The server for peers listens on this port."""

    port: int


@dataclass(frozen=True, slots=True)
class ConnectionOpened:
    """An instance or a peer has sent its hello on a control stream.

    Attributes:
        said: The generation that this stream manager named in its own hello to the peer.
    """

    connection: int
    hello: InstanceHello | PeerHello
    said: int = 0


@dataclass(frozen=True, slots=True)
class PeerRejected:
    """A peer has answered the hello of this stream manager with ``Leave``."""

    container: int
    reason: str


@dataclass(frozen=True, slots=True)
class DataStreamOpened:
    """The data stream of a connection has been opened."""

    connection: int


@dataclass(frozen=True, slots=True)
class ControlReceived:
    """A message has arrived on a control stream after the hello."""

    connection: int
    message: InstanceControl | PeerControl


@dataclass(frozen=True, slots=True)
class ConnectionEnded:
    """A stream of a connection has ended. ``malformed``: because a message could not be decoded."""

    connection: int
    malformed: bool = False


@dataclass(frozen=True, slots=True)
class PlanLoaded:
    """A plan and its epoch have been loaded from disk at the start."""

    plan: PhysicalPlan
    epoch: int


@dataclass(frozen=True, slots=True)
class MasterConnected:
    """The stream to the topology master has been opened."""


@dataclass(frozen=True, slots=True)
class MasterMessage:
    """A message of the topology master has arrived."""

    message: FromMaster


@dataclass(frozen=True, slots=True)
class MasterDisconnected:
    """The stream to the topology master has ended."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; ``now_ms`` is monotonic.

    The shell sends one every 100 ms, or every 500 ms while ``StreamManager.is_idle``, after it has read what waits in
    its sockets.
    """

    now_ms: int


ConnectionEvent = ConnectionOpened | DataStreamOpened | ControlReceived | ConnectionEnded
MasterEvent = PlanLoaded | MasterConnected | MasterMessage | MasterDisconnected
Event = ConnectionEvent | MasterEvent | Listening | PeerRejected | Tick


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send a message on the control stream of a connection."""

    connection: int
    message: InstanceControl | PeerControl


@dataclass(frozen=True, slots=True)
class WakeLink:
    """A packet waits to be written on the data stream of a connection."""

    connection: int


@dataclass(frozen=True, slots=True)
class EndConnection:
    """End a connection after its queued control messages have been written. ``reason`` is logged."""

    connection: int
    reason: str


@dataclass(frozen=True, slots=True)
class SendToMaster:
    """Send a message to the topology master if it is connected."""

    message: ToMaster


@dataclass(frozen=True, slots=True)
class LeaveMaster:
    """Disconnect from a topology master whose epoch is outdated and look for the leader."""

    reason: str


@dataclass(frozen=True, slots=True)
class PlanAccepted:
    """Store a new plan and connect to the peers in ``call``. The other peers connect to this stream manager."""

    plan: PhysicalPlan
    epoch: int
    call: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EpochRaised:
    """Store a higher epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class StopReplaced:
    """Stop the process: another stream manager has replaced it."""

    reason: str


Effect = SendMessage | WakeLink | EndConnection | SendToMaster | LeaveMaster | PlanAccepted | EpochRaised | StopReplaced


class EffectBuffer:
    """Effects of one event, in order. The parts of the core share it, and each event ends by emptying it."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []

    def add(self, *effects: Effect) -> None:
        """Append effects."""
        self._effects.extend(effects)

    def take(self) -> list[Effect]:
        """Return the effects since the last call and clear the buffer."""
        effects, self._effects = self._effects, []
        return effects
