from heron_runtime.wire.generated import heronry_topology_pb2 as _heronry_topology_pb2
from heron_runtime.wire.generated import heronry_control_pb2 as _heronry_control_pb2
from heron_runtime.wire.generated import heronry_metrics_pb2 as _heronry_metrics_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class InstanceInfo(_message.Message):
    __slots__ = ("task", "component", "pid", "incarnation")
    TASK_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    task: int
    component: str
    pid: int
    incarnation: int
    def __init__(self, task: _Optional[int] = ..., component: _Optional[str] = ..., pid: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Register(_message.Message):
    __slots__ = ("protocol", "topology_id", "stream_manager", "instances", "plan", "epoch")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_MANAGER_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    topology_id: str
    stream_manager: _heronry_topology_pb2.StreamManager
    instances: _containers.RepeatedCompositeFieldContainer[InstanceInfo]
    plan: _heronry_topology_pb2.PlanVersion
    epoch: int
    def __init__(self, protocol: _Optional[int] = ..., topology_id: _Optional[str] = ..., stream_manager: _Optional[_Union[_heronry_topology_pb2.StreamManager, _Mapping]] = ..., instances: _Optional[_Iterable[_Union[InstanceInfo, _Mapping]]] = ..., plan: _Optional[_Union[_heronry_topology_pb2.PlanVersion, _Mapping]] = ..., epoch: _Optional[int] = ...) -> None: ...

class Bottleneck(_message.Message):
    __slots__ = ("component", "task", "seconds", "in_call")
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    IN_CALL_FIELD_NUMBER: _ClassVar[int]
    component: str
    task: int
    seconds: float
    in_call: bool
    def __init__(self, component: _Optional[str] = ..., task: _Optional[int] = ..., seconds: _Optional[float] = ..., in_call: _Optional[bool] = ...) -> None: ...

class FlowStatus(_message.Message):
    __slots__ = ("in_flight", "stalled_ms", "holder")
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    STALLED_MS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    in_flight: int
    stalled_ms: int
    holder: Bottleneck
    def __init__(self, in_flight: _Optional[int] = ..., stalled_ms: _Optional[int] = ..., holder: _Optional[_Union[Bottleneck, _Mapping]] = ...) -> None: ...

class ParticipantReport(_message.Message):
    __slots__ = ("place", "incarnation", "report")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    place: _heronry_topology_pb2.Place
    incarnation: int
    report: _heronry_control_pb2.TaskReport
    def __init__(self, place: _Optional[_Union[_heronry_topology_pb2.Place, _Mapping]] = ..., incarnation: _Optional[int] = ..., report: _Optional[_Union[_heronry_control_pb2.TaskReport, _Mapping]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("causes", "spouts_paused", "plan", "instances", "flow", "epoch", "reports")
    CAUSES_FIELD_NUMBER: _ClassVar[int]
    SPOUTS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    FLOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    causes: _containers.RepeatedCompositeFieldContainer[_heronry_control_pb2.Cause]
    spouts_paused: bool
    plan: _heronry_topology_pb2.PlanVersion
    instances: _containers.RepeatedCompositeFieldContainer[InstanceInfo]
    flow: FlowStatus
    epoch: int
    reports: _containers.RepeatedCompositeFieldContainer[ParticipantReport]
    def __init__(self, causes: _Optional[_Iterable[_Union[_heronry_control_pb2.Cause, _Mapping]]] = ..., spouts_paused: _Optional[bool] = ..., plan: _Optional[_Union[_heronry_topology_pb2.PlanVersion, _Mapping]] = ..., instances: _Optional[_Iterable[_Union[InstanceInfo, _Mapping]]] = ..., flow: _Optional[_Union[FlowStatus, _Mapping]] = ..., epoch: _Optional[int] = ..., reports: _Optional[_Iterable[_Union[ParticipantReport, _Mapping]]] = ...) -> None: ...

class ToMaster(_message.Message):
    __slots__ = ("register", "heartbeat")
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    register: Register
    heartbeat: Heartbeat
    def __init__(self, register: _Optional[_Union[Register, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ("epoch", "holder", "wish")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    WISH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    holder: Bottleneck
    wish: _heronry_control_pb2.CheckpointCommand
    def __init__(self, epoch: _Optional[int] = ..., holder: _Optional[_Union[Bottleneck, _Mapping]] = ..., wish: _Optional[_Union[_heronry_control_pb2.CheckpointCommand, _Mapping]] = ...) -> None: ...

class FromMaster(_message.Message):
    __slots__ = ("plan_update", "heartbeat_reply", "leave")
    PLAN_UPDATE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_REPLY_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    plan_update: _heronry_control_pb2.PlanUpdate
    heartbeat_reply: HeartbeatReply
    leave: _heronry_control_pb2.Leave
    def __init__(self, plan_update: _Optional[_Union[_heronry_control_pb2.PlanUpdate, _Mapping]] = ..., heartbeat_reply: _Optional[_Union[HeartbeatReply, _Mapping]] = ..., leave: _Optional[_Union[_heronry_control_pb2.Leave, _Mapping]] = ...) -> None: ...

class SetState(_message.Message):
    __slots__ = ("state", "epoch")
    STATE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    state: str
    epoch: int
    def __init__(self, state: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class TakeCheckpoint(_message.Message):
    __slots__ = ("wait_seconds", "epoch", "hold")
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    wait_seconds: float
    epoch: int
    hold: bool
    def __init__(self, wait_seconds: _Optional[float] = ..., epoch: _Optional[int] = ..., hold: _Optional[bool] = ...) -> None: ...

class RestoreState(_message.Message):
    __slots__ = ("epoch", "checkpoint", "repeat_output")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    REPEAT_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    checkpoint: int
    repeat_output: bool
    def __init__(self, epoch: _Optional[int] = ..., checkpoint: _Optional[int] = ..., repeat_output: _Optional[bool] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StreamManagerStatus(_message.Message):
    __slots__ = ("container", "registered", "heartbeat_age_seconds", "spouts_paused", "causes", "flow")
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SPOUTS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    CAUSES_FIELD_NUMBER: _ClassVar[int]
    FLOW_FIELD_NUMBER: _ClassVar[int]
    container: int
    registered: bool
    heartbeat_age_seconds: float
    spouts_paused: bool
    causes: _containers.RepeatedCompositeFieldContainer[_heronry_control_pb2.Cause]
    flow: FlowStatus
    def __init__(self, container: _Optional[int] = ..., registered: _Optional[bool] = ..., heartbeat_age_seconds: _Optional[float] = ..., spouts_paused: _Optional[bool] = ..., causes: _Optional[_Iterable[_Union[_heronry_control_pb2.Cause, _Mapping]]] = ..., flow: _Optional[_Union[FlowStatus, _Mapping]] = ...) -> None: ...

class CheckpointSummary(_message.Message):
    __slots__ = ("number", "completed_at", "duration_ms", "bubble_ms", "bytes", "last_aligned")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_AT_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    BUBBLE_MS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_ALIGNED_FIELD_NUMBER: _ClassVar[int]
    number: int
    completed_at: float
    duration_ms: float
    bubble_ms: float
    bytes: int
    last_aligned: int
    def __init__(self, number: _Optional[int] = ..., completed_at: _Optional[float] = ..., duration_ms: _Optional[float] = ..., bubble_ms: _Optional[float] = ..., bytes: _Optional[int] = ..., last_aligned: _Optional[int] = ...) -> None: ...

class CheckpointStatus(_message.Message):
    __slots__ = ("generation", "phase", "cause", "restore_from", "missing", "under", "under_ms", "all_quiet", "waits_for", "last", "completed", "cancelled", "cancelled_why", "restores", "storage_fault", "phase_ms", "cancelled_last", "unconfirmed")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FROM_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    UNDER_FIELD_NUMBER: _ClassVar[int]
    UNDER_MS_FIELD_NUMBER: _ClassVar[int]
    ALL_QUIET_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_WHY_FIELD_NUMBER: _ClassVar[int]
    RESTORES_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FAULT_FIELD_NUMBER: _ClassVar[int]
    PHASE_MS_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_LAST_FIELD_NUMBER: _ClassVar[int]
    UNCONFIRMED_FIELD_NUMBER: _ClassVar[int]
    generation: int
    phase: str
    cause: str
    restore_from: int
    missing: _containers.RepeatedCompositeFieldContainer[_heronry_topology_pb2.Place]
    under: int
    under_ms: float
    all_quiet: bool
    waits_for: _containers.RepeatedScalarFieldContainer[int]
    last: CheckpointSummary
    completed: int
    cancelled: int
    cancelled_why: str
    restores: int
    storage_fault: str
    phase_ms: float
    cancelled_last: int
    unconfirmed: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, generation: _Optional[int] = ..., phase: _Optional[str] = ..., cause: _Optional[str] = ..., restore_from: _Optional[int] = ..., missing: _Optional[_Iterable[_Union[_heronry_topology_pb2.Place, _Mapping]]] = ..., under: _Optional[int] = ..., under_ms: _Optional[float] = ..., all_quiet: _Optional[bool] = ..., waits_for: _Optional[_Iterable[int]] = ..., last: _Optional[_Union[CheckpointSummary, _Mapping]] = ..., completed: _Optional[int] = ..., cancelled: _Optional[int] = ..., cancelled_why: _Optional[str] = ..., restores: _Optional[int] = ..., storage_fault: _Optional[str] = ..., phase_ms: _Optional[float] = ..., cancelled_last: _Optional[int] = ..., unconfirmed: _Optional[_Iterable[int]] = ...) -> None: ...

class MasterStatus(_message.Message):
    __slots__ = ("epoch", "state", "plan", "stream_managers", "leading", "tasks_state")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    STREAM_MANAGERS_FIELD_NUMBER: _ClassVar[int]
    LEADING_FIELD_NUMBER: _ClassVar[int]
    TASKS_STATE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    state: str
    plan: _heronry_topology_pb2.PlanVersion
    stream_managers: _containers.RepeatedCompositeFieldContainer[StreamManagerStatus]
    leading: bool
    tasks_state: CheckpointStatus
    def __init__(self, epoch: _Optional[int] = ..., state: _Optional[str] = ..., plan: _Optional[_Union[_heronry_topology_pb2.PlanVersion, _Mapping]] = ..., stream_managers: _Optional[_Iterable[_Union[StreamManagerStatus, _Mapping]]] = ..., leading: _Optional[bool] = ..., tasks_state: _Optional[_Union[CheckpointStatus, _Mapping]] = ...) -> None: ...

class PublishMetrics(_message.Message):
    __slots__ = ("container", "processes", "sent_time")
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    SENT_TIME_FIELD_NUMBER: _ClassVar[int]
    container: int
    processes: _containers.RepeatedCompositeFieldContainer[_heronry_metrics_pb2.ProcessMetrics]
    sent_time: float
    def __init__(self, container: _Optional[int] = ..., processes: _Optional[_Iterable[_Union[_heronry_metrics_pb2.ProcessMetrics, _Mapping]]] = ..., sent_time: _Optional[float] = ...) -> None: ...

class PublishReply(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class MetricsRequest(_message.Message):
    __slots__ = ("component", "interval_seconds", "names")
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    component: str
    interval_seconds: float
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, component: _Optional[str] = ..., interval_seconds: _Optional[float] = ..., names: _Optional[_Iterable[str]] = ...) -> None: ...

class MetricValue(_message.Message):
    __slots__ = ("component", "instance", "name", "total", "rate", "sketch", "kind", "minimum", "maximum", "mean")
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    SKETCH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    component: str
    instance: str
    name: str
    total: float
    rate: float
    sketch: bytes
    kind: str
    minimum: float
    maximum: float
    mean: float
    def __init__(self, component: _Optional[str] = ..., instance: _Optional[str] = ..., name: _Optional[str] = ..., total: _Optional[float] = ..., rate: _Optional[float] = ..., sketch: _Optional[bytes] = ..., kind: _Optional[str] = ..., minimum: _Optional[float] = ..., maximum: _Optional[float] = ..., mean: _Optional[float] = ...) -> None: ...

class MetricsReply(_message.Message):
    __slots__ = ("interval_seconds", "values")
    INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    interval_seconds: float
    values: _containers.RepeatedCompositeFieldContainer[MetricValue]
    def __init__(self, interval_seconds: _Optional[float] = ..., values: _Optional[_Iterable[_Union[MetricValue, _Mapping]]] = ...) -> None: ...

class TimelineRequest(_message.Message):
    __slots__ = ("component", "interval_seconds", "names", "ranges")
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    component: str
    interval_seconds: float
    names: _containers.RepeatedScalarFieldContainer[str]
    ranges: bool
    def __init__(self, component: _Optional[str] = ..., interval_seconds: _Optional[float] = ..., names: _Optional[_Iterable[str]] = ..., ranges: _Optional[bool] = ...) -> None: ...

class TimelineSeries(_message.Message):
    __slots__ = ("component", "instance", "name", "kind", "values", "minima", "maxima", "means")
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    MINIMA_FIELD_NUMBER: _ClassVar[int]
    MAXIMA_FIELD_NUMBER: _ClassVar[int]
    MEANS_FIELD_NUMBER: _ClassVar[int]
    component: str
    instance: str
    name: str
    kind: str
    values: _containers.RepeatedScalarFieldContainer[float]
    minima: _containers.RepeatedScalarFieldContainer[float]
    maxima: _containers.RepeatedScalarFieldContainer[float]
    means: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, component: _Optional[str] = ..., instance: _Optional[str] = ..., name: _Optional[str] = ..., kind: _Optional[str] = ..., values: _Optional[_Iterable[float]] = ..., minima: _Optional[_Iterable[float]] = ..., maxima: _Optional[_Iterable[float]] = ..., means: _Optional[_Iterable[float]] = ...) -> None: ...

class TimelineReply(_message.Message):
    __slots__ = ("start_time", "step_seconds", "series")
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    start_time: float
    step_seconds: float
    series: _containers.RepeatedCompositeFieldContainer[TimelineSeries]
    def __init__(self, start_time: _Optional[float] = ..., step_seconds: _Optional[float] = ..., series: _Optional[_Iterable[_Union[TimelineSeries, _Mapping]]] = ...) -> None: ...

class ExceptionsRequest(_message.Message):
    __slots__ = ("component",)
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    component: str
    def __init__(self, component: _Optional[str] = ...) -> None: ...

class ExceptionsReply(_message.Message):
    __slots__ = ("exceptions",)
    EXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    exceptions: _containers.RepeatedCompositeFieldContainer[_heronry_metrics_pb2.ExceptionReport]
    def __init__(self, exceptions: _Optional[_Iterable[_Union[_heronry_metrics_pb2.ExceptionReport, _Mapping]]] = ...) -> None: ...
