from heron_runtime.wire.generated import heronry_topology_pb2 as _heronry_topology_pb2
from heron_runtime.wire.generated import heronry_metrics_pb2 as _heronry_metrics_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Cause(_message.Message):
    __slots__ = ("kind", "component", "task", "container", "peer")
    KIND_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    kind: str
    component: str
    task: int
    container: int
    peer: int
    def __init__(self, kind: _Optional[str] = ..., component: _Optional[str] = ..., task: _Optional[int] = ..., container: _Optional[int] = ..., peer: _Optional[int] = ...) -> None: ...

class InstanceHello(_message.Message):
    __slots__ = ("protocol", "topology_id", "task", "incarnation", "pid", "generation")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    topology_id: str
    task: int
    incarnation: int
    pid: int
    generation: int
    def __init__(self, protocol: _Optional[int] = ..., topology_id: _Optional[str] = ..., task: _Optional[int] = ..., incarnation: _Optional[int] = ..., pid: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class StreamManagerHello(_message.Message):
    __slots__ = ("protocol", "topology_id", "container", "incarnation")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    topology_id: str
    container: int
    incarnation: int
    def __init__(self, protocol: _Optional[int] = ..., topology_id: _Optional[str] = ..., container: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class PlanUpdate(_message.Message):
    __slots__ = ("plan", "epoch")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    plan: _heronry_topology_pb2.PhysicalPlan
    epoch: int
    def __init__(self, plan: _Optional[_Union[_heronry_topology_pb2.PhysicalPlan, _Mapping]] = ..., epoch: _Optional[int] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("limit_bytes", "tuple_weight", "taken_bytes")
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    TUPLE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    TAKEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    limit_bytes: int
    tuple_weight: int
    taken_bytes: int
    def __init__(self, limit_bytes: _Optional[int] = ..., tuple_weight: _Optional[int] = ..., taken_bytes: _Optional[int] = ...) -> None: ...

class TaskWeight(_message.Message):
    __slots__ = ("task", "bytes")
    TASK_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    task: int
    bytes: int
    def __init__(self, task: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class TaskWeights(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskWeight]
    def __init__(self, tasks: _Optional[_Iterable[_Union[TaskWeight, _Mapping]]] = ...) -> None: ...

class CallDuration(_message.Message):
    __slots__ = ("milliseconds",)
    MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    milliseconds: int
    def __init__(self, milliseconds: _Optional[int] = ...) -> None: ...

class Token(_message.Message):
    __slots__ = ("checkpoint", "name")
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    checkpoint: int
    name: str
    def __init__(self, checkpoint: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("component", "task", "incarnation", "generation", "checkpoint", "turn", "size", "checksum", "groups", "tokens")
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    component: str
    task: int
    incarnation: int
    generation: int
    checkpoint: int
    turn: int
    size: int
    checksum: str
    groups: bytes
    tokens: _containers.RepeatedCompositeFieldContainer[Token]
    def __init__(self, component: _Optional[str] = ..., task: _Optional[int] = ..., incarnation: _Optional[int] = ..., generation: _Optional[int] = ..., checkpoint: _Optional[int] = ..., turn: _Optional[int] = ..., size: _Optional[int] = ..., checksum: _Optional[str] = ..., groups: _Optional[bytes] = ..., tokens: _Optional[_Iterable[_Union[Token, _Mapping]]] = ...) -> None: ...

class TaskReport(_message.Message):
    __slots__ = ("generation", "restored", "aligned", "stored", "declined", "declined_why", "confirmed", "lost", "failed")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RESTORED_FIELD_NUMBER: _ClassVar[int]
    ALIGNED_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    DECLINED_FIELD_NUMBER: _ClassVar[int]
    DECLINED_WHY_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    generation: int
    restored: bool
    aligned: int
    stored: _containers.RepeatedCompositeFieldContainer[Part]
    declined: int
    declined_why: str
    confirmed: int
    lost: str
    failed: str
    def __init__(self, generation: _Optional[int] = ..., restored: _Optional[bool] = ..., aligned: _Optional[int] = ..., stored: _Optional[_Iterable[_Union[Part, _Mapping]]] = ..., declined: _Optional[int] = ..., declined_why: _Optional[str] = ..., confirmed: _Optional[int] = ..., lost: _Optional[str] = ..., failed: _Optional[str] = ...) -> None: ...

class CheckpointCommand(_message.Message):
    __slots__ = ("generation", "under", "turn", "over", "complete", "timeout_ms")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    UNDER_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    under: int
    turn: int
    over: int
    complete: int
    timeout_ms: float
    def __init__(self, generation: _Optional[int] = ..., under: _Optional[int] = ..., turn: _Optional[int] = ..., over: _Optional[int] = ..., complete: _Optional[int] = ..., timeout_ms: _Optional[float] = ...) -> None: ...

class Pause(_message.Message):
    __slots__ = ("paused", "causes")
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    CAUSES_FIELD_NUMBER: _ClassVar[int]
    paused: bool
    causes: _containers.RepeatedCompositeFieldContainer[Cause]
    def __init__(self, paused: _Optional[bool] = ..., causes: _Optional[_Iterable[_Union[Cause, _Mapping]]] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ("reason", "epoch")
    REASON_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    reason: str
    epoch: int
    def __init__(self, reason: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class InstanceControl(_message.Message):
    __slots__ = ("instance_hello", "stream_manager_hello", "plan_update", "credit", "pause", "leave", "task_weights", "process_metrics", "in_call", "task_report", "checkpoint_wish")
    INSTANCE_HELLO_FIELD_NUMBER: _ClassVar[int]
    STREAM_MANAGER_HELLO_FIELD_NUMBER: _ClassVar[int]
    PLAN_UPDATE_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    TASK_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_METRICS_FIELD_NUMBER: _ClassVar[int]
    IN_CALL_FIELD_NUMBER: _ClassVar[int]
    TASK_REPORT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_WISH_FIELD_NUMBER: _ClassVar[int]
    instance_hello: InstanceHello
    stream_manager_hello: StreamManagerHello
    plan_update: PlanUpdate
    credit: Credit
    pause: Pause
    leave: Leave
    task_weights: TaskWeights
    process_metrics: _heronry_metrics_pb2.ProcessMetrics
    in_call: CallDuration
    task_report: TaskReport
    checkpoint_wish: CheckpointCommand
    def __init__(self, instance_hello: _Optional[_Union[InstanceHello, _Mapping]] = ..., stream_manager_hello: _Optional[_Union[StreamManagerHello, _Mapping]] = ..., plan_update: _Optional[_Union[PlanUpdate, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., pause: _Optional[_Union[Pause, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ..., task_weights: _Optional[_Union[TaskWeights, _Mapping]] = ..., process_metrics: _Optional[_Union[_heronry_metrics_pb2.ProcessMetrics, _Mapping]] = ..., in_call: _Optional[_Union[CallDuration, _Mapping]] = ..., task_report: _Optional[_Union[TaskReport, _Mapping]] = ..., checkpoint_wish: _Optional[_Union[CheckpointCommand, _Mapping]] = ...) -> None: ...

class PeerHello(_message.Message):
    __slots__ = ("protocol", "topology_id", "container", "incarnation", "epoch", "generation")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    topology_id: str
    container: int
    incarnation: int
    epoch: int
    generation: int
    def __init__(self, protocol: _Optional[int] = ..., topology_id: _Optional[str] = ..., container: _Optional[int] = ..., incarnation: _Optional[int] = ..., epoch: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class TaskCredit(_message.Message):
    __slots__ = ("task", "limit_bytes", "tuple_weight", "taken_bytes")
    TASK_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    TUPLE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    TAKEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    task: int
    limit_bytes: int
    tuple_weight: int
    taken_bytes: int
    def __init__(self, task: _Optional[int] = ..., limit_bytes: _Optional[int] = ..., tuple_weight: _Optional[int] = ..., taken_bytes: _Optional[int] = ...) -> None: ...

class PeerCredit(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskCredit]
    def __init__(self, tasks: _Optional[_Iterable[_Union[TaskCredit, _Mapping]]] = ...) -> None: ...

class CauseSet(_message.Message):
    __slots__ = ("number", "causes")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CAUSES_FIELD_NUMBER: _ClassVar[int]
    number: int
    causes: _containers.RepeatedCompositeFieldContainer[Cause]
    def __init__(self, number: _Optional[int] = ..., causes: _Optional[_Iterable[_Union[Cause, _Mapping]]] = ...) -> None: ...

class CauseChange(_message.Message):
    __slots__ = ("number", "start", "stop")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    number: int
    start: _containers.RepeatedCompositeFieldContainer[Cause]
    stop: _containers.RepeatedCompositeFieldContainer[Cause]
    def __init__(self, number: _Optional[int] = ..., start: _Optional[_Iterable[_Union[Cause, _Mapping]]] = ..., stop: _Optional[_Iterable[_Union[Cause, _Mapping]]] = ...) -> None: ...

class PeerControl(_message.Message):
    __slots__ = ("peer_hello", "peer_credit", "cause_set", "cause_change", "leave")
    PEER_HELLO_FIELD_NUMBER: _ClassVar[int]
    PEER_CREDIT_FIELD_NUMBER: _ClassVar[int]
    CAUSE_SET_FIELD_NUMBER: _ClassVar[int]
    CAUSE_CHANGE_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    peer_hello: PeerHello
    peer_credit: PeerCredit
    cause_set: CauseSet
    cause_change: CauseChange
    leave: Leave
    def __init__(self, peer_hello: _Optional[_Union[PeerHello, _Mapping]] = ..., peer_credit: _Optional[_Union[PeerCredit, _Mapping]] = ..., cause_set: _Optional[_Union[CauseSet, _Mapping]] = ..., cause_change: _Optional[_Union[CauseChange, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ...) -> None: ...
