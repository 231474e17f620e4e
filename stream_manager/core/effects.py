"""What the core wants done. The shell does it, in order, before it hands the core the next event.

An effect for a connection that is gone does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.wire.control import InstanceControl, PeerControl
from heron_runtime.wire.master import ToMaster


@dataclass(frozen=True, slots=True)
class Send:
    """Send on the control stream."""

    connection: int
    message: InstanceControl | PeerControl


@dataclass(frozen=True, slots=True)
class Wake:
    """There is a packet to write on the data stream."""

    connection: int


@dataclass(frozen=True, slots=True)
class End:
    """End a connection, once what was sent to it is out; say why."""

    connection: int
    reason: str


@dataclass(frozen=True, slots=True)
class TellMaster:
    """Send to the master, if it is there."""

    message: ToMaster


@dataclass(frozen=True, slots=True)
class RefuseMaster:
    """The master that speaks is deposed: leave it and look for the acting one."""

    reason: str


@dataclass(frozen=True, slots=True)
class PlanAccepted:
    """A new plan holds: store it, and connect to the peers of ``call`` (the others connect to us)."""

    plan: PhysicalPlan
    epoch: int
    call: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EpochHeard:
    """A higher epoch than ever: store it."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Replaced:
    """Another stream manager has taken this place: end."""

    reason: str


Effect = Send | Wake | End | TellMaster | RefuseMaster | PlanAccepted | EpochHeard | Replaced


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
