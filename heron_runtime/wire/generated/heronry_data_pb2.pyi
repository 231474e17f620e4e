from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Init(_message.Message):
    __slots__ = ("task", "first_root", "xors")
    TASK_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROOT_FIELD_NUMBER: _ClassVar[int]
    XORS_FIELD_NUMBER: _ClassVar[int]
    task: int
    first_root: int
    xors: bytes
    def __init__(self, task: _Optional[int] = ..., first_root: _Optional[int] = ..., xors: _Optional[bytes] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("task", "roots", "xors")
    TASK_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    XORS_FIELD_NUMBER: _ClassVar[int]
    task: int
    roots: bytes
    xors: bytes
    def __init__(self, task: _Optional[int] = ..., roots: _Optional[bytes] = ..., xors: _Optional[bytes] = ...) -> None: ...

class Reason(_message.Message):
    __slots__ = ("kind", "component", "task", "message", "traceback")
    KIND_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    kind: str
    component: str
    task: int
    message: str
    traceback: str
    def __init__(self, kind: _Optional[str] = ..., component: _Optional[str] = ..., task: _Optional[int] = ..., message: _Optional[str] = ..., traceback: _Optional[str] = ...) -> None: ...

class Fail(_message.Message):
    __slots__ = ("task", "roots", "reason")
    TASK_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    task: int
    roots: bytes
    reason: Reason
    def __init__(self, task: _Optional[int] = ..., roots: _Optional[bytes] = ..., reason: _Optional[_Union[Reason, _Mapping]] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("task", "roots", "reason")
    TASK_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    task: int
    roots: bytes
    reason: Reason
    def __init__(self, task: _Optional[int] = ..., roots: _Optional[bytes] = ..., reason: _Optional[_Union[Reason, _Mapping]] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("source_task", "stream", "destination_task", "count", "routing_version", "codec", "offsets", "roots", "keys", "values", "tuple_weight")
    SOURCE_TASK_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_TASK_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ROUTING_VERSION_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    TUPLE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    source_task: int
    stream: int
    destination_task: int
    count: int
    routing_version: int
    codec: int
    offsets: bytes
    roots: bytes
    keys: bytes
    values: bytes
    tuple_weight: int
    def __init__(self, source_task: _Optional[int] = ..., stream: _Optional[int] = ..., destination_task: _Optional[int] = ..., count: _Optional[int] = ..., routing_version: _Optional[int] = ..., codec: _Optional[int] = ..., offsets: _Optional[bytes] = ..., roots: _Optional[bytes] = ..., keys: _Optional[bytes] = ..., values: _Optional[bytes] = ..., tuple_weight: _Optional[int] = ...) -> None: ...

class Packet(_message.Message):
    __slots__ = ("sequence", "inits", "acks", "fails", "verdicts", "frames")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    INITS_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    FAILS_FIELD_NUMBER: _ClassVar[int]
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    inits: _containers.RepeatedCompositeFieldContainer[Init]
    acks: _containers.RepeatedCompositeFieldContainer[Ack]
    fails: _containers.RepeatedCompositeFieldContainer[Fail]
    verdicts: _containers.RepeatedCompositeFieldContainer[Verdict]
    frames: _containers.RepeatedCompositeFieldContainer[Frame]
    def __init__(self, sequence: _Optional[int] = ..., inits: _Optional[_Iterable[_Union[Init, _Mapping]]] = ..., acks: _Optional[_Iterable[_Union[Ack, _Mapping]]] = ..., fails: _Optional[_Iterable[_Union[Fail, _Mapping]]] = ..., verdicts: _Optional[_Iterable[_Union[Verdict, _Mapping]]] = ..., frames: _Optional[_Iterable[_Union[Frame, _Mapping]]] = ...) -> None: ...
