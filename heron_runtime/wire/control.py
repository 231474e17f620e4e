"""Control streams: instance and stream manager (``InstanceControl``), stream manager and peer (``PeerControl``).

Credit is a *limit*, not an increment: frames may be sent while the weight sent since the hello is below it. Repeating
a limit does no harm, and a link that starts afresh starts from zero on both sides. With the limit goes what a tuple
weighs for the task that gives it (``heron_runtime/model/dataflow.py``), and the weight of the frames that were taken of
those sent since the hello: what was sent and is not known to be taken is lost when the link breaks.
"""

from __future__ import annotations

from dataclasses import dataclass

from heron_runtime.model.checkpoints import CheckpointCommand, TaskReport
from heron_runtime.model.dataflow import Cause
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.wire.metrics import ProcessMetrics


@dataclass(frozen=True, slots=True)
class InstanceHello:
    """First message of an instance. ``incarnation`` is greater at each start of the task on one host.

    ``generation``: the one whose frames this connection carries; 0: none, where state is kept.
    """

    protocol: int
    topology_id: str
    task: int
    incarnation: int
    pid: int
    generation: int = 0


@dataclass(frozen=True, slots=True)
class StreamManagerHello:
    """The stream manager's answer. When the incarnation changes, the roots opened under the old one are lost."""

    protocol: int
    topology_id: str
    container: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class PlanUpdate:
    """A new physical plan, and the epoch of the master that speaks."""

    plan: PhysicalPlan
    epoch: int


@dataclass(frozen=True, slots=True)
class Credit:
    """The receiver of this message may send frames while it has sent less weight than this since the hello. From a
    bolt: ``tuple_weight`` is what a tuple weighs for it at least."""

    limit_bytes: int
    tuple_weight: int = 0
    taken_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CallDuration:
    """From a bolt: its user code has been in one call for so long; 0: it has returned."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class TaskWeight:
    """What a tuple for ``task`` weighs at least."""

    task: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TaskWeights:
    """To an instance: what tuples weigh for tasks it may send to. Tasks that are not named keep theirs."""

    tasks: tuple[TaskWeight, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """To a spout: emit nothing while ``paused``; acks and fails go on. ``causes`` says why."""

    paused: bool
    causes: tuple[Cause, ...] = ()


@dataclass(frozen=True, slots=True)
class Leave:
    """To a process that has been replaced: exit. ``epoch``: of the master that says so; 0 from others."""

    reason: str
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class PeerHello:
    """First message of a stream manager to a peer, in both directions."""

    protocol: int
    topology_id: str
    container: int
    incarnation: int
    epoch: int
    generation: int = 0


@dataclass(frozen=True, slots=True)
class TaskCredit:
    """The same for frames to one task of the sender of this message."""

    task: int
    limit_bytes: int
    tuple_weight: int = 0
    taken_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PeerCredit:
    """New limits, coalesced."""

    tasks: tuple[TaskCredit, ...]


@dataclass(frozen=True, slots=True)
class CauseSet:
    """All causes the sender owns; ``number`` grows with each change."""

    number: int
    causes: tuple[Cause, ...] = ()


@dataclass(frozen=True, slots=True)
class CauseChange:
    """StartBackPressure and StopBackPressure: the difference between set ``number`` - 1 and ``number``."""

    number: int
    start: tuple[Cause, ...] = ()
    stop: tuple[Cause, ...] = ()


# An instance's report goes along, for the metrics manager.
InstanceControl = (
    InstanceHello
    | StreamManagerHello
    | PlanUpdate
    | Credit
    | Pause
    | Leave
    | TaskWeights
    | ProcessMetrics
    | CallDuration
    | TaskReport
    | CheckpointCommand
)
PeerControl = PeerHello | PeerCredit | CauseSet | CauseChange | Leave
