from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class ExecutionState(_message.Message):
    __slots__ = ("topology", "topology_id", "cluster", "role", "environ", "state", "submission_user", "submitted_at", "release_version", "home")
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ENVIRON_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SUBMISSION_USER_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_AT_FIELD_NUMBER: _ClassVar[int]
    RELEASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    HOME_FIELD_NUMBER: _ClassVar[int]
    topology: str
    topology_id: str
    cluster: str
    role: str
    environ: str
    state: str
    submission_user: str
    submitted_at: float
    release_version: str
    home: str
    def __init__(self, topology: _Optional[str] = ..., topology_id: _Optional[str] = ..., cluster: _Optional[str] = ..., role: _Optional[str] = ..., environ: _Optional[str] = ..., state: _Optional[str] = ..., submission_user: _Optional[str] = ..., submitted_at: _Optional[float] = ..., release_version: _Optional[str] = ..., home: _Optional[str] = ...) -> None: ...

class MasterLocation(_message.Message):
    __slots__ = ("topology_id", "host", "port", "epoch", "pid", "container")
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    topology_id: str
    host: str
    port: int
    epoch: int
    pid: int
    container: int
    def __init__(self, topology_id: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., epoch: _Optional[int] = ..., pid: _Optional[int] = ..., container: _Optional[int] = ...) -> None: ...

class SchedulerLocation(_message.Message):
    __slots__ = ("topology_id", "host", "port", "pid")
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    topology_id: str
    host: str
    port: int
    pid: int
    def __init__(self, topology_id: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., pid: _Optional[int] = ...) -> None: ...

class ContainerLocation(_message.Message):
    __slots__ = ("topology_id", "container", "host", "port", "pid", "incarnation", "metrics_port")
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    METRICS_PORT_FIELD_NUMBER: _ClassVar[int]
    topology_id: str
    container: int
    host: str
    port: int
    pid: int
    incarnation: int
    metrics_port: int
    def __init__(self, topology_id: _Optional[str] = ..., container: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., pid: _Optional[int] = ..., incarnation: _Optional[int] = ..., metrics_port: _Optional[int] = ...) -> None: ...

class MasterEpoch(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class WantedState(_message.Message):
    __slots__ = ("topology_id", "state")
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    topology_id: str
    state: str
    def __init__(self, topology_id: _Optional[str] = ..., state: _Optional[str] = ...) -> None: ...

class CheckpointRecord(_message.Message):
    __slots__ = ("generation", "begun", "complete")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    generation: int
    begun: int
    complete: int
    def __init__(self, generation: _Optional[int] = ..., begun: _Optional[int] = ..., complete: _Optional[int] = ...) -> None: ...
