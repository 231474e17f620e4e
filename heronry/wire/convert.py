"""Frozen dataclasses to protobuf messages and back, by field name.

Theory of operation: for every pair (dataclass, message) a table of converters is made once from the type hints. What a
hint means on the wire:

=====================  ============================================
int float bool str     the field itself
bytes                  bytes
StrEnum                string
dataclass              a message
tuple[X, ...]          repeated X
X | None               optional presence of a message
Mapping[str, X]        map<string, X>
Mapping[str, Any]      bytes: msgpack of the map (user configuration)
tuple[int, ...] on     bytes: little-endian uint16 (key-group tables)
a bytes field
=====================  ============================================

This is for the control plane: clear, not fast. Packets have a codec of their own (``data_codec``).
"""

from __future__ import annotations

import array
import dataclasses
import sys
import types
import typing
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from heronry.wire.errors import MalformedMessage

T = TypeVar("T")
Convert = Callable[[Any], Any]


class Codec(typing.Generic[T]):
    """Bytes of one message type to one dataclass and back."""

    def __init__(self, python_type: type[T], message_type: type[Message]) -> None:
        self._python = python_type
        self._message = message_type

    def encode(self, value: T) -> bytes:
        """``value`` as protobuf bytes."""
        return to_message(value, self._message).SerializeToString()

    def decode(self, data: bytes) -> T:
        """The value in ``data``. Raises MalformedMessage."""
        return typing.cast(T, from_message(_parse(self._message, data), self._python))

    def decode_strictly(self, data: bytes) -> T:
        """As ``decode``, for bytes of somebody who is not trusted: fields that are not known are refused, too.

        Raises MalformedMessage, whatever the bytes are.
        """
        message = _parse(self._message, data)
        size = message.ByteSize()
        message.DiscardUnknownFields()
        if message.ByteSize() != size:
            name = self._message.DESCRIPTOR.name
            raise MalformedMessage(f"this {name} holds fields that are not known here; was it made by a newer version?")
        try:
            return typing.cast(T, from_message(message, self._python))
        except RecursionError:
            raise MalformedMessage("its configuration is nested too deeply") from None


class UnionCodec(typing.Generic[T]):
    """Bytes of a message with one ``oneof kind`` to one of several dataclasses and back."""

    def __init__(self, message_type: type[Message], **members: type) -> None:
        self._message = message_type
        self._by_field = members
        self._by_type = {python: name for name, python in members.items()}

    def encode(self, value: T) -> bytes:
        """``value`` as protobuf bytes. Raises TypeError for a type that is no member."""
        name = self._by_type.get(type(value))
        if name is None:
            raise TypeError(f"{type(value).__name__} does not belong to {self._message.DESCRIPTOR.name}")
        envelope = self._message()
        target = getattr(envelope, name)
        target.SetInParent()
        _fill(value, target)
        return envelope.SerializeToString()

    def decode(self, data: bytes) -> T:
        """The value in ``data``. Raises MalformedMessage, also when no member is set."""
        envelope = _parse(self._message, data)
        name = envelope.WhichOneof("kind")
        if name is None:
            raise MalformedMessage(f"{self._message.DESCRIPTOR.name} without content")
        return typing.cast(T, from_message(getattr(envelope, name), self._by_field[name]))


def _parse(message_type: type[Message], data: bytes) -> Message:
    try:
        return message_type.FromString(data)
    except DecodeError as error:
        raise MalformedMessage(f"not a {message_type.DESCRIPTOR.name}: {error}") from None


def to_message(value: Any, message_type: type[Message]) -> Message:
    """The dataclass instance ``value`` as a message."""
    message = message_type()
    _fill(value, message)
    return message


def _fill(value: Any, message: Message) -> None:
    for name, (hint, descriptor) in _table(type(value), type(message)).items():
        _put(message, name, getattr(value, name), hint, descriptor)


def _put(message: Message, name: str, item: Any, hint: Any, descriptor: FieldDescriptor) -> None:
    if item is None:
        return
    if descriptor.type == FieldDescriptor.TYPE_BYTES and not descriptor.is_repeated:
        setattr(message, name, _to_bytes(item, hint))
    elif _is_map(descriptor):
        getattr(message, name).update(item)
    elif descriptor.is_repeated:
        target = getattr(message, name)
        if descriptor.type == FieldDescriptor.TYPE_MESSAGE:
            for element in item:
                _fill(element, target.add())
        else:
            target.extend(item)
    elif descriptor.type == FieldDescriptor.TYPE_MESSAGE:
        target = getattr(message, name)
        target.SetInParent()
        _fill(item, target)
    else:
        setattr(message, name, item.value if isinstance(item, StrEnum) else item)


def from_message(message: Message, python_type: type) -> Any:
    """``message`` as an instance of the dataclass. Raises MalformedMessage for a value outside its enum."""
    values = {
        name: _get(message, name, hint, descriptor)
        for name, (hint, descriptor) in _table(python_type, type(message)).items()
    }
    return python_type(**values)


def _get(message: Message, name: str, hint: Any, descriptor: FieldDescriptor) -> Any:
    raw = getattr(message, name)
    if descriptor.type == FieldDescriptor.TYPE_BYTES and not descriptor.is_repeated:
        return _from_bytes(raw, hint)
    if _is_map(descriptor):
        return dict(raw)
    if descriptor.is_repeated:
        element = typing.get_args(hint)[0]
        if descriptor.type == FieldDescriptor.TYPE_MESSAGE:
            return tuple(from_message(m, element) for m in raw)
        return tuple(raw)
    inner, optional = _strip_optional(hint)
    if descriptor.type == FieldDescriptor.TYPE_MESSAGE:
        return from_message(raw, inner) if message.HasField(name) or not optional else None
    if isinstance(inner, type) and issubclass(inner, StrEnum):
        try:
            return inner(raw)
        except ValueError:
            raise MalformedMessage(f"{name}: {raw!r} is no {inner.__name__}") from None
    return raw


def _to_bytes(item: Any, hint: Any) -> bytes:
    if isinstance(item, bytes):
        return item
    if isinstance(item, Mapping):
        return msgspec.msgpack.encode(dict(item))
    return _little_endian(array.array("H", item)).tobytes()


def _from_bytes(raw: bytes, hint: Any) -> Any:
    if hint is bytes:
        return raw
    if typing.get_origin(hint) is tuple:
        column = array.array("H")
        if len(raw) % 2:
            raise MalformedMessage(f"{len(raw)} bytes are no uint16 column")
        column.frombytes(raw)
        return tuple(_little_endian(column))
    try:
        return msgspec.msgpack.decode(raw) if raw else {}
    except msgspec.DecodeError as error:
        raise MalformedMessage(f"configuration: {error}") from None


def _little_endian(column: array.array[int]) -> array.array[int]:
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _is_map(descriptor: FieldDescriptor) -> bool:
    entry = descriptor.message_type
    return entry is not None and entry.GetOptions().map_entry


def _strip_optional(hint: Any) -> tuple[Any, bool]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        inner = [a for a in typing.get_args(hint) if a is not type(None)]
        return inner[0], True
    return hint, False


def _table(python_type: type, message_type: type[Message]) -> dict[str, tuple[Any, FieldDescriptor]]:
    table = _TABLES.get((python_type, message_type))
    if table is None:
        table = _TABLES[python_type, message_type] = _make_table(python_type, message_type)
    return table


_TABLES: dict[tuple[type, type[Message]], dict[str, tuple[Any, FieldDescriptor]]] = {}


def _make_table(python_type: type, message_type: type[Message]) -> dict[str, tuple[Any, FieldDescriptor]]:
    hints = typing.get_type_hints(python_type)
    fields = {f.name for f in dataclasses.fields(python_type)}
    descriptors = message_type.DESCRIPTOR.fields_by_name
    if fields != set(descriptors):
        raise TypeError(
            f"{python_type.__name__} and {message_type.DESCRIPTOR.name} differ in "
            f"{sorted(fields ^ set(descriptors))}"
        )
    return {name: (hints[name], typing.cast(FieldDescriptor, descriptors[name])) for name in descriptors}
