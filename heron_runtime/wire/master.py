"""What is said to the topology master. Each of its own messages carries its epoch."""

from __future__ import annotations

from dataclasses import dataclass

from heron_runtime.model.checkpoints import NO_WISH, CheckpointCommand, TaskReport
from heron_runtime.model.dataflow import Cause
from heron_runtime.model.plan import (
    NO_CHECKPOINT,
    NO_PLAN,
    GenerationPhase,
    ParticipantId,
    PlanVersion,
    StreamManagerInfo,
)
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.control import Leave, PlanUpdate
from heron_runtime.wire.metrics import ExceptionReport, ProcessMetrics


@dataclass(frozen=True, slots=True)
class InstanceInfo:
    """An instance that is connected to the stream manager that speaks."""

    task: int
    component: str
    pid: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Register:
    """First message of a stream manager to the master. ``epoch``: the highest it has heard of."""

    protocol: int
    topology_id: str
    stream_manager: StreamManagerInfo
    instances: tuple[InstanceInfo, ...] = ()
    plan: PlanVersion = NO_PLAN
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The task that most waits for: it will take so long for what is queued before it or, if that is longer, has been
    ``in_call`` for so long. No component: nothing waits."""

    component: str = ""
    task: int = 0
    seconds: float = 0.0
    in_call: bool = False

    def __str__(self) -> str:
        why = f"in one call for {self.seconds:.0f} s" if self.in_call else f"{self.seconds:.1f} s of work"
        return f"{self.component} task {self.task} ({why})"


NOBODY = Bottleneck()


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """Whether tuples get through: roots tracked by a stream manager, for how long none was acked (0 below the message
    timeout), and the task there that most waits for."""

    in_flight: int = 0
    stalled_ms: int = 0
    holder: Bottleneck = NOBODY


NO_FLOW = FlowStatus()


@dataclass(frozen=True, slots=True)
class ParticipantReport:
    """What a process says of its part in its generation."""

    place: ParticipantId
    incarnation: int
    report: TaskReport


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Once a second, with the whole set of causes the stream manager owns. ``epoch``: the highest it has heard of.

    ``reports``, where state is kept: its own and those of its instances; told at once when one of them changes.
    """

    causes: tuple[Cause, ...] = ()
    spouts_paused: bool = False
    plan: PlanVersion = NO_PLAN
    instances: tuple[InstanceInfo, ...] = ()
    flow: FlowStatus = NO_FLOW
    epoch: int = 0
    reports: tuple[ParticipantReport, ...] = ()


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The master is there, and this is its epoch. ``holder``: the task that most waits for in the topology."""

    epoch: int
    holder: Bottleneck = NOBODY
    wish: CheckpointCommand = NO_WISH


ToMaster = Register | Heartbeat
FromMaster = PlanUpdate | HeartbeatReply | Leave


@dataclass(frozen=True, slots=True)
class SetState:
    """Activate (RUNNING) or deactivate (PAUSED). Answered with MasterStatus once the plan that says so is stored.

    ``epoch`` is the one under which the store names the master that is asked; a master of a lower one steps down.
    """

    state: TopologyState
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class TakeCheckpoint:
    """Take a checkpoint now. Answered with MasterStatus: at once, or, if there is time to wait, when it is complete.
    ``hold``: nobody goes on behind it before another plan comes, or some seconds are over. ``epoch`` as in
    ``SetState``."""

    wait_seconds: float = 0.0
    epoch: int = 0
    hold: bool = False


@dataclass(frozen=True, slots=True)
class RestoreState:
    """All tasks go back to the last complete checkpoint, or to an older one: then those behind it are struck off, and
    what sinks have shown for them comes again, which has to be said. Answered with MasterStatus once the generation
    that begins from it is stored. ``epoch`` as in ``SetState``."""

    epoch: int = 0
    checkpoint: int = NO_CHECKPOINT
    repeat_output: bool = False


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """Ask for MasterStatus."""


@dataclass(frozen=True, slots=True)
class StreamManagerStatus:
    """What the master knows about one stream manager of the packing plan."""

    container: int
    registered: bool
    heartbeat_age_seconds: float = 0.0
    spouts_paused: bool = False
    causes: tuple[Cause, ...] = ()
    flow: FlowStatus = NO_FLOW


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """A complete checkpoint: when, how long it took, for how long spouts were silent, what was written."""

    number: int = NO_CHECKPOINT
    completed_at: float = 0.0  # seconds since 1970, UTC
    duration_ms: float = 0.0
    bubble_ms: float = 0.0
    bytes: int = 0
    last_aligned: int = 0  # the task that was waited for


@dataclass(frozen=True, slots=True)
class CheckpointStatus:
    """Where state is kept: the generation, and the checkpoints this master has seen. ``waits_for``: tasks that have
    not aligned, or not stored, for the checkpoint ``under`` way. ``phase_ms``: for how long it has been in its phase;
    ``last`` has no times if another master completed it; ``unconfirmed``: tasks that have not said yet that they
    have committed it."""

    generation: int = 0
    phase: GenerationPhase = GenerationPhase.RUNNING
    cause: str = ""
    restore_from: int = NO_CHECKPOINT
    missing: tuple[ParticipantId, ...] = ()
    under: int = NO_CHECKPOINT
    under_ms: float = 0.0
    all_quiet: bool = False
    waits_for: tuple[int, ...] = ()
    last: CheckpointSummary = CheckpointSummary()
    completed: int = 0
    cancelled: int = 0
    cancelled_why: str = ""
    restores: int = 0
    storage_fault: str = ""
    phase_ms: float = 0.0
    cancelled_last: int = NO_CHECKPOINT
    unconfirmed: tuple[int, ...] = ()


NO_STATE = CheckpointStatus()


@dataclass(frozen=True, slots=True)
class MasterStatus:
    """The master's view of the topology."""

    epoch: int
    state: TopologyState
    plan: PlanVersion
    stream_managers: tuple[StreamManagerStatus, ...] = ()
    leading: bool = True
    tasks_state: CheckpointStatus = NO_STATE


@dataclass(frozen=True, slots=True)
class PublishMetrics:
    """From a metrics manager: the processes of its container.

    ``sent_time`` is of the clock that ``ProcessMetrics.time`` is of, so their difference is the age of a report on any
    other host, too; 0 is not said.
    """

    container: int
    processes: tuple[ProcessMetrics, ...]
    sent_time: float = 0.0


@dataclass(frozen=True, slots=True)
class PublishReply:
    """A reply with a new epoch tells the metrics manager to send everything again."""

    epoch: int


@dataclass(frozen=True, slots=True)
class MetricsRequest:
    """Empty ``component`` and ``names`` mean all; a negative interval means since the start."""

    component: str = ""
    interval_seconds: float = -1.0
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricValue:
    """One metric of one instance over the interval. ``kind`` is counter, gauge or latency.

    ``total`` of a gauge is its last value; ``minimum``, ``maximum`` and ``mean`` are gauges' within the interval.
    """

    component: str
    instance: str
    name: str
    kind: str
    total: float = 0.0
    rate: float = 0.0
    sketch: bytes = b""
    minimum: float = 0.0
    maximum: float = 0.0
    mean: float = 0.0


@dataclass(frozen=True, slots=True)
class MetricsReply:
    """The values, and the interval they really cover."""

    interval_seconds: float
    values: tuple[MetricValue, ...] = ()


@dataclass(frozen=True, slots=True)
class TimelineRequest:
    """The points of the last ``interval_seconds``: of 5 s up to 595 s, of a minute up to 3 hours."""

    component: str = ""
    interval_seconds: float = 595.0
    names: tuple[str, ...] = ()
    ranges: bool = False


@dataclass(frozen=True, slots=True)
class TimelineSeries:
    """One metric of one instance. ``values`` per point: a counter's growth, a gauge's last value (NaN: nobody
    reported), a latency's mean in milliseconds. ``minima``, ``maxima`` and ``means`` are gauges', where asked for."""

    component: str
    instance: str
    name: str
    kind: str
    values: tuple[float, ...] = ()
    minima: tuple[float, ...] = ()
    maxima: tuple[float, ...] = ()
    means: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class TimelineReply:
    """Points begin at ``start_time`` (seconds since 1970, UTC); the last one is not over yet."""

    start_time: float
    step_seconds: float
    series: tuple[TimelineSeries, ...] = ()


@dataclass(frozen=True, slots=True)
class ExceptionsRequest:
    """Empty ``component`` means all."""

    component: str = ""


@dataclass(frozen=True, slots=True)
class ExceptionsReply:
    """The exceptions user code raised, most recent last."""

    exceptions: tuple[ExceptionReport, ...] = ()
