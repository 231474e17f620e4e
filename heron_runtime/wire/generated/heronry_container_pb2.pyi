from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProcessStatus(_message.Message):
    __slots__ = ("kind", "name", "container", "component", "task", "pid", "state", "since", "restarts", "last_error", "last_lines", "doing", "young_deaths")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    LAST_LINES_FIELD_NUMBER: _ClassVar[int]
    DOING_FIELD_NUMBER: _ClassVar[int]
    YOUNG_DEATHS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    container: int
    component: str
    task: int
    pid: int
    state: str
    since: float
    restarts: int
    last_error: str
    last_lines: _containers.RepeatedScalarFieldContainer[str]
    doing: str
    young_deaths: int
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., container: _Optional[int] = ..., component: _Optional[str] = ..., task: _Optional[int] = ..., pid: _Optional[int] = ..., state: _Optional[str] = ..., since: _Optional[float] = ..., restarts: _Optional[int] = ..., last_error: _Optional[str] = ..., last_lines: _Optional[_Iterable[str]] = ..., doing: _Optional[str] = ..., young_deaths: _Optional[int] = ...) -> None: ...

class ContainerStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ContainerStatus(_message.Message):
    __slots__ = ("container", "host", "incarnation", "processes", "trouble")
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    container: int
    host: str
    incarnation: int
    processes: _containers.RepeatedCompositeFieldContainer[ProcessStatus]
    trouble: str
    def __init__(self, container: _Optional[int] = ..., host: _Optional[str] = ..., incarnation: _Optional[int] = ..., processes: _Optional[_Iterable[_Union[ProcessStatus, _Mapping]]] = ..., trouble: _Optional[str] = ...) -> None: ...

class ListFiles(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    def __init__(self, path: _Optional[str] = ...) -> None: ...

class FileInfo(_message.Message):
    __slots__ = ("path", "size_bytes", "modified_at", "folder")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_AT_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    path: str
    size_bytes: int
    modified_at: float
    folder: bool
    def __init__(self, path: _Optional[str] = ..., size_bytes: _Optional[int] = ..., modified_at: _Optional[float] = ..., folder: _Optional[bool] = ...) -> None: ...

class FileList(_message.Message):
    __slots__ = ("files",)
    FILES_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[FileInfo]
    def __init__(self, files: _Optional[_Iterable[_Union[FileInfo, _Mapping]]] = ...) -> None: ...

class ReadFile(_message.Message):
    __slots__ = ("path", "offset", "length")
    PATH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    path: str
    offset: int
    length: int
    def __init__(self, path: _Optional[str] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class FileData(_message.Message):
    __slots__ = ("offset", "data", "size_bytes")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    size_bytes: int
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class RestartContainer(_message.Message):
    __slots__ = ("container",)
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    container: int
    def __init__(self, container: _Optional[int] = ...) -> None: ...

class RestartReply(_message.Message):
    __slots__ = ("containers",)
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    containers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, containers: _Optional[_Iterable[int]] = ...) -> None: ...

class SchedulerStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SchedulerStatus(_message.Message):
    __slots__ = ("scheduler", "containers")
    SCHEDULER_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    scheduler: ProcessStatus
    containers: _containers.RepeatedCompositeFieldContainer[ProcessStatus]
    def __init__(self, scheduler: _Optional[_Union[ProcessStatus, _Mapping]] = ..., containers: _Optional[_Iterable[_Union[ProcessStatus, _Mapping]]] = ...) -> None: ...

class StacksRequest(_message.Message):
    __slots__ = ("process",)
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    process: str
    def __init__(self, process: _Optional[str] = ...) -> None: ...

class Stacks(_message.Message):
    __slots__ = ("process", "pid", "text")
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    process: str
    pid: int
    text: str
    def __init__(self, process: _Optional[str] = ..., pid: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...
