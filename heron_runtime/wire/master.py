"""Messages to and from the topology master. Each message of the master carries the master's epoch."""

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
    """Instance that is connected to the stream manager that sends the message."""

    task: int
    component: str
    pid: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Register:
    """First message of a stream manager to the master. ``epoch`` is the highest epoch it has received."""

    protocol: int
    topology_id: str
    stream_manager: StreamManagerInfo
    instances: tuple[InstanceInfo, ...] = ()
    plan: PlanVersion = NO_PLAN
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """Task with the longest backlog.

    ``seconds`` is the estimated time to process the task's backlog. If the task has been in one call of user code for
    longer than that, ``in_call`` is True and ``seconds`` is the duration of the call. The component is empty if no task
    has a backlog.
    """

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
    """Progress of tuples at one stream manager.

    ``in_flight`` is the number of tracked roots. ``stalled_ms`` is the time since the last ack, or 0 below the message
    timeout. ``holder`` is the bottleneck among the tasks there.
    """

    in_flight: int = 0
    stalled_ms: int = 0
    holder: Bottleneck = NOBODY


NO_FLOW = FlowStatus()


@dataclass(frozen=True, slots=True)
class ParticipantReport:
    """Report of one participant of a generation."""

    place: ParticipantId
    incarnation: int
    report: TaskReport


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Heartbeat of a stream manager to the master, once a second.

    ``causes`` is the whole set of backpressure causes that the stream manager owns. ``epoch`` is the highest epoch it
    has received. For a stateful topology, ``reports`` holds the reports of the stream manager and its instances; a
    change of one of them is sent at once.
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
    """Reply of the master to a heartbeat. ``holder`` is the bottleneck of the topology."""

    epoch: int
    holder: Bottleneck = NOBODY
    wish: CheckpointCommand = NO_WISH


ToMaster = Register | Heartbeat
FromMaster = PlanUpdate | HeartbeatReply | Leave


@dataclass(frozen=True, slots=True)
class SetState:
    """Request to activate (RUNNING) or deactivate (PAUSED) the topology.

    The master replies with MasterStatus once the plan with the new state is stored. ``epoch`` is the epoch that the
    store records for the addressed master. A master with a lower epoch steps down.
    """

    state: TopologyState
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class TakeCheckpoint:
    """Request to take a checkpoint now.

    The master replies with MasterStatus, at once if ``wait_seconds`` is 0 and otherwise when the checkpoint is
    complete. With ``hold``, tasks wait after the checkpoint until another plan arrives or some seconds have passed.
    ``epoch`` is as in ``SetState``.
    """

    wait_seconds: float = 0.0
    epoch: int = 0
    hold: bool = False


@dataclass(frozen=True, slots=True)
class RestoreState:
    """Request to restore all tasks from the last complete checkpoint, or from an older one.

    A restore from an older ``checkpoint`` discards the later ones, and sinks repeat the output of these. The request
    must allow that with ``repeat_output``. The master replies with MasterStatus once the generation that starts from
    the checkpoint is stored. ``epoch`` is as in ``SetState``.
    """

    epoch: int = 0
    checkpoint: int = NO_CHECKPOINT
    repeat_output: bool = False


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """Request for MasterStatus."""


@dataclass(frozen=True, slots=True)
class StreamManagerStatus:
    """Status of one stream manager of the packing plan."""

    container: int
    registered: bool
    heartbeat_age_seconds: float = 0.0
    spouts_paused: bool = False
    causes: tuple[Cause, ...] = ()
    flow: FlowStatus = NO_FLOW


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """Complete checkpoint: completion time, duration, pause of the spouts (``bubble_ms``), and bytes written."""

    number: int = NO_CHECKPOINT
    completed_at: float = 0.0  # seconds since 1970, UTC
    duration_ms: float = 0.0
    bubble_ms: float = 0.0
    bytes: int = 0
    last_aligned: int = 0  # the task that was waited for


@dataclass(frozen=True, slots=True)
class CheckpointStatus:
    """Generation of a stateful topology, and the checkpoints that this master has seen.

    ``under`` is the checkpoint in progress, and ``waits_for`` are the tasks that have not yet aligned for it or not yet
    stored their part. ``phase_ms`` is the time since the generation entered its phase. ``last`` lacks times if another
    master completed it. ``unconfirmed`` are the tasks that have not yet reported that they have committed it.
    """

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
    """Reports of the processes of one container, sent by its metrics manager.

    ``sent_time`` is from the same clock as ``ProcessMetrics.time``, so their difference is the age of a report even on
    another host. 0 means unknown.
    """

    container: int
    processes: tuple[ProcessMetrics, ...]
    sent_time: float = 0.0


@dataclass(frozen=True, slots=True)
class PublishReply:
    """Reply to PublishMetrics. After a new epoch, the metrics manager sends everything again."""

    epoch: int


@dataclass(frozen=True, slots=True)
class MetricsRequest:
    """Request for metrics. Empty ``component`` and ``names`` mean all; a negative interval means since the start."""

    component: str = ""
    interval_seconds: float = -1.0
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricValue:
    """One metric of one instance over the interval. ``kind`` is counter, gauge or latency.

    ``total`` of a gauge is its last value. ``minimum``, ``maximum`` and ``mean`` are set for gauges only, and refer to
    the interval.
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
    """Reply to MetricsRequest: values, and the interval that they actually cover."""

    interval_seconds: float
    values: tuple[MetricValue, ...] = ()


@dataclass(frozen=True, slots=True)
class TimelineRequest:
    """Request for the points of the last ``interval_seconds``: 5 s apart up to 595 s, a minute apart up to 3 hours."""

    component: str = ""
    interval_seconds: float = 595.0
    names: tuple[str, ...] = ()
    ranges: bool = False


@dataclass(frozen=True, slots=True)
class TimelineSeries:
    """Timeline of one metric of one instance.

    ``values`` holds for each point the growth of a counter, the last value of a gauge (NaN if it was not reported), or
    the mean of a latency in milliseconds. ``minima``, ``maxima`` and ``means`` are set for gauges if requested.
    """

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
    """Reply to TimelineRequest. Points begin at ``start_time`` (seconds since 1970, UTC). The last is incomplete."""

    start_time: float
    step_seconds: float
    series: tuple[TimelineSeries, ...] = ()


@dataclass(frozen=True, slots=True)
class ExceptionsRequest:
    """Request for exceptions. Empty ``component`` means all."""

    component: str = ""


@dataclass(frozen=True, slots=True)
class ExceptionsReply:
    """Exceptions that user code raised, most recent last."""

    exceptions: tuple[ExceptionReport, ...] = ()
