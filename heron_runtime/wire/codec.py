"""Codecs between frozen dataclasses and protobuf messages, by field name.

For every pair (dataclass, message) a converter is built once, at its first use, from the type hints:

=====================  ============================================
hint                   on the wire
=====================  ============================================
int float bool str     the field itself
bytes                  bytes
StrEnum                string
dataclass              a message
tuple[X, ...]          repeated X
Mapping[str, X]        map<string, X>
Mapping[str, Any]      bytes: msgpack of the map (user configuration)
tuple[int, ...] on     bytes: little-endian uint16 (key-group tables)
a bytes field
=====================  ============================================

These codecs serve the control plane, where clarity matters more than speed. Packets have a separate codec
(`data_codec`).
"""

from __future__ import annotations

import array
import dataclasses
import sys
import typing
from collections.abc import Callable
from enum import StrEnum
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from heron_runtime.wire.errors import UNREADABLE, MalformedMessage

T = TypeVar("T")


class Codec(typing.Generic[T]):
    """Codec between one dataclass and one message type."""

    def __init__(self, python_type: type[T], message_type: type[Message]) -> None:
        self._python = python_type
        self._message = message_type

    def prepare(self) -> None:
        """Build the converters now instead of at the first use."""
        _converter(self._python, self._message)

    def encode(self, value: T) -> bytes:
        """Return `value` as protobuf bytes."""
        message = self._message()
        _converter(self._python, self._message).fill(message, value)
        return message.SerializeToString()

    def decode(self, data: bytes) -> T:
        """Return the value in `data`. Raises MalformedMessage."""
        return self._read(_parse(self._message, data))

    def decode_strictly(self, data: bytes) -> T:
        """Decode bytes of an untrusted sender: unknown fields are refused.

        Raises:
            MalformedMessage: The bytes are invalid.
        """
        message = _parse(self._message, data)
        size = message.ByteSize()
        message.DiscardUnknownFields()
        if message.ByteSize() != size:
            name = self._message.DESCRIPTOR.name
            raise MalformedMessage(f"this {name} has unknown fields; it may come from a newer version")
        try:
            return self._read(message)
        except RecursionError:
            raise MalformedMessage("its configuration is nested too deeply") from None

    def _read(self, message: Message) -> T:
        return typing.cast(T, _converter(self._python, self._message).read(message))


class UnionCodec(typing.Generic[T]):
    """Codec of a message with one `oneof kind` and several dataclasses with the names of its messages."""

    def __init__(self, union: Any, message_type: type[Message]) -> None:
        self._message = message_type
        named = {python.__name__: python for python in typing.get_args(union)}
        members = {field.name: _message_class(field) for field in message_type.DESCRIPTOR.fields}
        if {member.DESCRIPTOR.name for member in members.values()} != set(named):
            raise TypeError(f"{message_type.DESCRIPTOR.name} has other members than {sorted(named)}")
        self._by_field = {name: (named[member.DESCRIPTOR.name], member) for name, member in members.items()}
        self._by_type = {python: (name, message) for name, (python, message) in self._by_field.items()}

    def prepare(self) -> None:
        """Build the converters now instead of at the first use."""
        for key in self._by_field.values():
            _converter(*key)

    def encode(self, value: T) -> bytes:
        """Return `value` as protobuf bytes. Raises TypeError for a type outside the union."""
        python = type(value)
        if python not in self._by_type:
            raise TypeError(f"{python.__name__} does not belong to {self._message.DESCRIPTOR.name}")
        name, message_type = self._by_type[python]
        envelope = self._message()
        target = getattr(envelope, name)
        target.SetInParent()
        _converter(python, message_type).fill(target, value)
        return envelope.SerializeToString()

    def decode(self, data: bytes) -> T:
        """Return the value in `data`. Raises MalformedMessage, also if no member is set."""
        envelope = _parse(self._message, data)
        name = envelope.WhichOneof("kind")
        if name is None:
            raise MalformedMessage(f"{self._message.DESCRIPTOR.name} without content")
        return typing.cast(T, _converter(*self._by_field[name]).read(getattr(envelope, name)))


def _parse(message_type: type[Message], data: bytes) -> Message:
    try:
        return message_type.FromString(data)
    except DecodeError as error:
        raise MalformedMessage(f"not a {message_type.DESCRIPTOR.name}: {error}") from None


class _Converter(typing.NamedTuple):
    """Pair of functions: ``fill(message, value)`` writes a value into a message, ``read(message)`` returns it."""

    fill: Callable[[Any, Any], None]
    read: Callable[[Any], Any]


_CONVERTERS: dict[tuple[type, type[Message]], _Converter] = {}


def _converter(python_type: type, message_type: type[Message]) -> _Converter:
    key = python_type, message_type
    converter = _CONVERTERS.get(key)
    if converter is None:
        converter = _CONVERTERS[key] = _make_converter(*key)
    return converter


def _make_converter(python_type: type, message_type: type[Message]) -> _Converter:
    hints = typing.get_type_hints(python_type)
    names = [field.name for field in dataclasses.fields(python_type)]
    descriptors = message_type.DESCRIPTOR.fields_by_name
    if set(names) != set(descriptors):
        differ = sorted(set(names) ^ set(descriptors))
        raise TypeError(f"{python_type.__name__} and {message_type.DESCRIPTOR.name} differ in {differ}")
    fields = [_field(name, hints[name], typing.cast(FieldDescriptor, descriptors[name])) for name in names]
    puts = [(attrgetter(name), field.fill) for name, field in zip(names, fields, strict=True)]
    gets = [field.read for field in fields]

    def fill(message: Message, value: Any) -> None:
        for get, put in puts:
            put(message, get(value))

    return _Converter(fill, lambda message: python_type(*[get(message) for get in gets]))


def _field(name: str, hint: Any, descriptor: FieldDescriptor) -> _Converter:
    """Return the converter of one field, with ``fill(message, value of the field)`` and ``read(message)``."""
    inside = attrgetter(name)
    if descriptor.message_type is not None:
        if descriptor.message_type.GetOptions().map_entry:
            return _Converter(lambda message, items: inside(message).update(items), lambda m: dict(inside(m)))
        return _message_field(name, hint, descriptor)
    if descriptor.is_repeated:
        return _Converter(lambda message, items: inside(message).extend(items), lambda m: tuple(inside(m)))
    if descriptor.type == FieldDescriptor.TYPE_BYTES and hint is not bytes:
        pack, unpack = _BITS if hint is int else _COLUMN if typing.get_origin(hint) is tuple else _CONFIGURATION
        return _Converter(lambda message, item: setattr(message, name, pack(item)), lambda m: unpack(inside(m)))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _Converter(
            lambda message, item: setattr(message, name, item.value), lambda m: _member(hint, inside(m), name)
        )
    return _Converter(lambda message, item: setattr(message, name, item), inside)


def _message_field(name: str, hint: Any, descriptor: FieldDescriptor) -> _Converter:
    inside = attrgetter(name)
    message_type = _message_class(descriptor)
    if not descriptor.is_repeated:
        one = _converter(hint, message_type)

        def put(message: Message, item: Any) -> None:
            target = inside(message)
            target.SetInParent()
            one.fill(target, item)

        return _Converter(put, lambda m: one.read(inside(m)))
    element = _converter(typing.get_args(hint)[0], message_type)

    def put_all(message: Message, items: Any) -> None:
        add = inside(message).add
        for item in items:
            element.fill(add(), item)

    return _Converter(put_all, lambda m: tuple([element.read(item) for item in inside(m)]))


def _message_class(descriptor: Any) -> type[Message]:
    made: type[Message] = GetMessageClass(descriptor.message_type)
    return made


def _member(kind: type[StrEnum], text: str, name: str) -> StrEnum:
    try:
        return kind(text)
    except ValueError:
        raise MalformedMessage(f"{name}: {text!r} is not a valid {kind.__name__}") from None


def _pack_column(numbers: tuple[int, ...]) -> bytes:
    return _little_endian(array.array("H", numbers)).tobytes()


def _unpack_column(data: bytes) -> tuple[int, ...]:
    column = array.array("H")
    if len(data) % 2:
        raise MalformedMessage(f"a uint16 column cannot have {len(data)} bytes")
    column.frombytes(data)
    return tuple(_little_endian(column))


def _little_endian(column: array.array[int]) -> array.array[int]:
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _unpack_configuration(data: bytes) -> Any:
    try:
        return msgspec.msgpack.decode(data) if data else {}
    except UNREADABLE as error:
        raise MalformedMessage(f"configuration: {error}") from None


def _pack_bits(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _unpack_bits(data: bytes) -> int:
    return int.from_bytes(data, "little")


_COLUMN = _pack_column, _unpack_column
_BITS = _pack_bits, _unpack_bits
_CONFIGURATION = (lambda values: msgspec.msgpack.encode(dict(values))), _unpack_configuration
