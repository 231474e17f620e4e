"""What the core wants done. The shell does it, in order, before it hands the core the next event.

``connection`` is the number the shell gave a connection at its hello: an effect for one that is gone does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from heronry.model.plan import PhysicalPlan
from heronry.wire.control import InstanceControl, PeerControl
from heronry.wire.master import ToMaster
from stream_manager.core.links import Link


@dataclass(frozen=True, slots=True)
class ToInstance:
    """Send on the control stream of an instance."""

    connection: int
    message: InstanceControl


@dataclass(frozen=True, slots=True)
class ToPeer:
    """Send on the control stream of a peer."""

    connection: int
    message: PeerControl


@dataclass(frozen=True, slots=True)
class TellMaster:
    """Send to the master, if it is there."""

    message: ToMaster


@dataclass(frozen=True, slots=True)
class Wake:
    """The link has something to send."""

    link: Link


@dataclass(frozen=True, slots=True)
class End:
    """End a connection, once what was sent to it is out; say why."""

    connection: int
    reason: str


@dataclass(frozen=True, slots=True)
class PlanAccepted:
    """A new plan holds: store it, connect to its peers."""

    plan: PhysicalPlan


@dataclass(frozen=True, slots=True)
class MasterRefused:
    """The master that speaks is deposed: leave it and look for the acting one."""

    reason: str


@dataclass(frozen=True, slots=True)
class Exit:
    """This stream manager has been replaced."""

    reason: str


Effect = ToInstance | ToPeer | TellMaster | Wake | End | PlanAccepted | MasterRefused | Exit
