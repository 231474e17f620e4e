"""Control streams: instance and stream manager (``InstanceControl``), stream manager and peer (``PeerControl``).

Credit is a *limit*, not an increment: frames may be sent while the weight sent since the hello is below it. A repeated
limit is harmless, and a new link starts from zero on both sides. A credit message also carries the weight of a tuple
for the task that grants the credit (``heron_runtime/model/dataflow.py``), and the weight of the frames sent since the
hello that the receiver has taken. Frames that were sent and are not known to be taken are lost when the link breaks.
"""

from __future__ import annotations

from dataclasses import dataclass

from heron_runtime.model.checkpoints import CheckpointCommand, TaskReport
from heron_runtime.model.dataflow import Cause
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.wire.metrics import ProcessMetrics


@dataclass(frozen=True, slots=True)
class InstanceHello:
    """First message of an instance. ``incarnation`` increases with each start of the task on one host.

    ``generation`` is the generation whose frames this connection carries. In a stateful topology, 0 means none.
    """

    protocol: int
    topology_id: str
    task: int
    incarnation: int
    pid: int
    generation: int = 0


@dataclass(frozen=True, slots=True)
class StreamManagerHello:
    """Answer of the stream manager. If its incarnation has changed, roots opened under the old one are lost."""

    protocol: int
    topology_id: str
    container: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class PlanUpdate:
    """New physical plan, and the epoch of the master that sends it."""

    plan: PhysicalPlan
    epoch: int


@dataclass(frozen=True, slots=True)
class Credit:
    """Credit for the receiver of this message.

    It may send frames while the weight it has sent since the hello is below ``limit_bytes``. In a message of a bolt,
    ``tuple_weight`` is the minimal weight of a tuple for the bolt.
    """

    limit_bytes: int
    tuple_weight: int = 0
    taken_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CallDuration:
    """Duration of the current call of a bolt's user code, sent by the bolt. 0 means that the call has returned."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class TaskWeight:
    """Minimal weight of a tuple for `task`."""

    task: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TaskWeights:
    """Tuple weights of tasks that an instance may send to. The weights of other tasks do not change."""

    tasks: tuple[TaskWeight, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Command to a spout to emit nothing while ``paused``. Acks and fails continue. ``causes`` are the reasons."""

    paused: bool
    causes: tuple[Cause, ...] = ()


@dataclass(frozen=True, slots=True)
class Leave:
    """Command to a replaced process to exit. ``epoch`` is that of the sending master, or 0 from other senders."""

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
    """Credit for frames to one task of the sender of this message, with the fields of ``Credit``."""

    task: int
    limit_bytes: int
    tuple_weight: int = 0
    taken_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PeerCredit:
    """New credit limits of several tasks in one message."""

    tasks: tuple[TaskCredit, ...]


@dataclass(frozen=True, slots=True)
class CauseSet:
    """All backpressure causes that the sender owns. ``number`` increases with each change."""

    number: int
    causes: tuple[Cause, ...] = ()


@dataclass(frozen=True, slots=True)
class CauseChange:
    """Difference between cause sets ``number`` - 1 and ``number`` (StartBackPressure and StopBackPressure)."""

    number: int
    start: tuple[Cause, ...] = ()
    stop: tuple[Cause, ...] = ()


# ProcessMetrics is the report of an instance, relayed to the metrics manager.
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
