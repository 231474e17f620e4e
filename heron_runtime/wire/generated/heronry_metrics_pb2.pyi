from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExceptionReport(_message.Message):
    __slots__ = ("component", "instance", "class_name", "message", "traceback", "count", "first_time", "last_time")
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    CLASS_NAME_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    FIRST_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_TIME_FIELD_NUMBER: _ClassVar[int]
    component: str
    instance: str
    class_name: str
    message: str
    traceback: str
    count: int
    first_time: float
    last_time: float
    def __init__(self, component: _Optional[str] = ..., instance: _Optional[str] = ..., class_name: _Optional[str] = ..., message: _Optional[str] = ..., traceback: _Optional[str] = ..., count: _Optional[int] = ..., first_time: _Optional[float] = ..., last_time: _Optional[float] = ...) -> None: ...

class TopologyEvent(_message.Message):
    __slots__ = ("time", "kind", "component", "count", "text", "detail")
    TIME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    time: float
    kind: str
    component: str
    count: int
    text: str
    detail: str
    def __init__(self, time: _Optional[float] = ..., kind: _Optional[str] = ..., component: _Optional[str] = ..., count: _Optional[int] = ..., text: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class ProcessMetrics(_message.Message):
    __slots__ = ("component", "instance", "container", "task", "incarnation", "time", "counters", "gauges", "sketches", "exceptions", "started", "happenings", "happened")
    class CountersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class GaugesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class SketchesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    GAUGES_FIELD_NUMBER: _ClassVar[int]
    SKETCHES_FIELD_NUMBER: _ClassVar[int]
    EXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    HAPPENINGS_FIELD_NUMBER: _ClassVar[int]
    HAPPENED_FIELD_NUMBER: _ClassVar[int]
    component: str
    instance: str
    container: int
    task: int
    incarnation: int
    time: float
    counters: _containers.ScalarMap[str, float]
    gauges: _containers.ScalarMap[str, float]
    sketches: _containers.ScalarMap[str, bytes]
    exceptions: _containers.RepeatedCompositeFieldContainer[ExceptionReport]
    started: float
    happenings: _containers.RepeatedCompositeFieldContainer[TopologyEvent]
    happened: int
    def __init__(self, component: _Optional[str] = ..., instance: _Optional[str] = ..., container: _Optional[int] = ..., task: _Optional[int] = ..., incarnation: _Optional[int] = ..., time: _Optional[float] = ..., counters: _Optional[_Mapping[str, float]] = ..., gauges: _Optional[_Mapping[str, float]] = ..., sketches: _Optional[_Mapping[str, bytes]] = ..., exceptions: _Optional[_Iterable[_Union[ExceptionReport, _Mapping]]] = ..., started: _Optional[float] = ..., happenings: _Optional[_Iterable[_Union[TopologyEvent, _Mapping]]] = ..., happened: _Optional[int] = ...) -> None: ...

class Reports(_message.Message):
    __slots__ = ("processes",)
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    processes: _containers.RepeatedCompositeFieldContainer[ProcessMetrics]
    def __init__(self, processes: _Optional[_Iterable[_Union[ProcessMetrics, _Mapping]]] = ...) -> None: ...

class MetricsAck(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
