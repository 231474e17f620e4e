from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StreamSchema(_message.Message):
    __slots__ = ("name", "fields", "direct")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    DIRECT_FIELD_NUMBER: _ClassVar[int]
    name: str
    fields: _containers.RepeatedScalarFieldContainer[str]
    direct: bool
    def __init__(self, name: _Optional[str] = ..., fields: _Optional[_Iterable[str]] = ..., direct: _Optional[bool] = ...) -> None: ...

class Grouping(_message.Message):
    __slots__ = ("kind", "fields", "python_class", "arguments")
    KIND_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    PYTHON_CLASS_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    fields: _containers.RepeatedScalarFieldContainer[str]
    python_class: str
    arguments: bytes
    def __init__(self, kind: _Optional[str] = ..., fields: _Optional[_Iterable[str]] = ..., python_class: _Optional[str] = ..., arguments: _Optional[bytes] = ...) -> None: ...

class Input(_message.Message):
    __slots__ = ("component", "stream", "grouping")
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    GROUPING_FIELD_NUMBER: _ClassVar[int]
    component: str
    stream: str
    grouping: Grouping
    def __init__(self, component: _Optional[str] = ..., stream: _Optional[str] = ..., grouping: _Optional[_Union[Grouping, _Mapping]] = ...) -> None: ...

class Component(_message.Message):
    __slots__ = ("name", "kind", "python_class", "parallelism", "outputs", "inputs", "config")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PYTHON_CLASS_FIELD_NUMBER: _ClassVar[int]
    PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    python_class: str
    parallelism: int
    outputs: _containers.RepeatedCompositeFieldContainer[StreamSchema]
    inputs: _containers.RepeatedCompositeFieldContainer[Input]
    config: bytes
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., python_class: _Optional[str] = ..., parallelism: _Optional[int] = ..., outputs: _Optional[_Iterable[_Union[StreamSchema, _Mapping]]] = ..., inputs: _Optional[_Iterable[_Union[Input, _Mapping]]] = ..., config: _Optional[bytes] = ...) -> None: ...

class Topology(_message.Message):
    __slots__ = ("name", "id", "components", "config")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    COMPONENTS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: str
    components: _containers.RepeatedCompositeFieldContainer[Component]
    config: bytes
    def __init__(self, name: _Optional[str] = ..., id: _Optional[str] = ..., components: _Optional[_Iterable[_Union[Component, _Mapping]]] = ..., config: _Optional[bytes] = ...) -> None: ...

class Resources(_message.Message):
    __slots__ = ("cpu", "ram_bytes", "disk_bytes")
    CPU_FIELD_NUMBER: _ClassVar[int]
    RAM_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    cpu: float
    ram_bytes: int
    disk_bytes: int
    def __init__(self, cpu: _Optional[float] = ..., ram_bytes: _Optional[int] = ..., disk_bytes: _Optional[int] = ...) -> None: ...

class InstancePlan(_message.Message):
    __slots__ = ("task", "component", "component_index", "resources")
    TASK_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_INDEX_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    task: int
    component: str
    component_index: int
    resources: Resources
    def __init__(self, task: _Optional[int] = ..., component: _Optional[str] = ..., component_index: _Optional[int] = ..., resources: _Optional[_Union[Resources, _Mapping]] = ...) -> None: ...

class ContainerPlan(_message.Message):
    __slots__ = ("container", "instances", "resources")
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    container: int
    instances: _containers.RepeatedCompositeFieldContainer[InstancePlan]
    resources: Resources
    def __init__(self, container: _Optional[int] = ..., instances: _Optional[_Iterable[_Union[InstancePlan, _Mapping]]] = ..., resources: _Optional[_Union[Resources, _Mapping]] = ...) -> None: ...

class PackingPlan(_message.Message):
    __slots__ = ("topology", "containers", "next_task")
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_TASK_FIELD_NUMBER: _ClassVar[int]
    topology: str
    containers: _containers.RepeatedCompositeFieldContainer[ContainerPlan]
    next_task: int
    def __init__(self, topology: _Optional[str] = ..., containers: _Optional[_Iterable[_Union[ContainerPlan, _Mapping]]] = ..., next_task: _Optional[int] = ...) -> None: ...

class PlanVersion(_message.Message):
    __slots__ = ("epoch", "number")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    number: int
    def __init__(self, epoch: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class StreamManager(_message.Message):
    __slots__ = ("container", "host", "port", "incarnation", "pid")
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    container: int
    host: str
    port: int
    incarnation: int
    pid: int
    def __init__(self, container: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., incarnation: _Optional[int] = ..., pid: _Optional[int] = ...) -> None: ...

class KeyGroups(_message.Message):
    __slots__ = ("component", "tasks")
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    component: str
    tasks: bytes
    def __init__(self, component: _Optional[str] = ..., tasks: _Optional[bytes] = ...) -> None: ...

class Place(_message.Message):
    __slots__ = ("kind", "number")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    kind: str
    number: int
    def __init__(self, kind: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("place", "incarnation")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    place: Place
    incarnation: int
    def __init__(self, place: _Optional[_Union[Place, _Mapping]] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Generation(_message.Message):
    __slots__ = ("number", "phase", "restore_from", "members", "failures", "cause")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FROM_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    number: int
    phase: str
    restore_from: int
    members: _containers.RepeatedCompositeFieldContainer[Member]
    failures: int
    cause: str
    def __init__(self, number: _Optional[int] = ..., phase: _Optional[str] = ..., restore_from: _Optional[int] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., failures: _Optional[int] = ..., cause: _Optional[str] = ...) -> None: ...

class PhysicalPlan(_message.Message):
    __slots__ = ("version", "routing_version", "topology", "packing", "stream_managers", "key_groups", "state", "generation", "standstill", "undrained")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROUTING_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    PACKING_FIELD_NUMBER: _ClassVar[int]
    STREAM_MANAGERS_FIELD_NUMBER: _ClassVar[int]
    KEY_GROUPS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STANDSTILL_FIELD_NUMBER: _ClassVar[int]
    UNDRAINED_FIELD_NUMBER: _ClassVar[int]
    version: PlanVersion
    routing_version: int
    topology: Topology
    packing: PackingPlan
    stream_managers: _containers.RepeatedCompositeFieldContainer[StreamManager]
    key_groups: _containers.RepeatedCompositeFieldContainer[KeyGroups]
    state: str
    generation: Generation
    standstill: str
    undrained: str
    def __init__(self, version: _Optional[_Union[PlanVersion, _Mapping]] = ..., routing_version: _Optional[int] = ..., topology: _Optional[_Union[Topology, _Mapping]] = ..., packing: _Optional[_Union[PackingPlan, _Mapping]] = ..., stream_managers: _Optional[_Iterable[_Union[StreamManager, _Mapping]]] = ..., key_groups: _Optional[_Iterable[_Union[KeyGroups, _Mapping]]] = ..., state: _Optional[str] = ..., generation: _Optional[_Union[Generation, _Mapping]] = ..., standstill: _Optional[str] = ..., undrained: _Optional[str] = ...) -> None: ...
