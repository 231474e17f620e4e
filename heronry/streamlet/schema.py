"""Schemas: the fields of records and their types, declared once, the same for every engine.

Theory of operation. A user declares a schema as a dataclass or as a ``pyarrow.Schema``. Both become a ``RecordSchema``
of plain values, which can be sent to any process without the user's class. One rule in Python converts records to a
schema and determines which records are rejected (conform.py). An engine may do the same natively if the result is the
same (Catalyst over columns of Parquet), and may carry the fields as typed columns downstream.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import types
import typing
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from heron_runtime.failures import listing
from heronry.api.errors import TopologyError

KINDS: dict[type, str] = {
    str: "str", int: "int", float: "float", bool: "bool", bytes: "bytes", dt.datetime: "datetime", dt.date: "date",
    Decimal: "Decimal",
}  # fmt: skip
MAX_DIGITS = 38  # limit of Arrow and Spark for a Decimal
LONGEST = 64  # bits of an int
_CURE = (
    f"write one of {', '.join(KINDS.values())}, or Optional[…] of one; convert it in a map, before or after with_schema"
)


@dataclass(frozen=True, slots=True)
class FieldType:
    """Field of a schema.

    Attributes:
        name: Name of the field.
        kind: Name of its type, one of the values of ``KINDS``.
        optional: True if it may be None.
        default: Empty, or a tuple with the value for a record without the field.
        bits: Bits of an int, including the sign.
        digits: Digits of a Decimal.
        scale: Digits of a Decimal after the point. None: any number.
    """

    name: str
    kind: str
    optional: bool = False
    default: tuple[Any, ...] = ()
    bits: int = LONGEST
    digits: int = MAX_DIGITS
    scale: int | None = None

    @property
    def type_name(self) -> str:
        """Readable type: ``int``, ``int32``, ``Decimal(10, 2)``; with a ``?`` if it may be None."""
        own = self.kind if self.bits == LONGEST else f"{self.kind}{self.bits}"
        own = own if self.scale is None else f"{own}({self.digits}, {self.scale})"
        return f"{own}?" if self.optional else own


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """Fields of a record, in order. ``name`` is that of the dataclass."""

    name: str
    fields: tuple[FieldType, ...]

    def __str__(self) -> str:
        told = [f"{f.name} {f.type_name}" + (f" = {f.default[0]!r}" if f.default else "") for f in self.fields]
        return f"{self.name} ({', '.join(told)})"


def schema_of(given: Any, step: str) -> RecordSchema:
    """Return the schema that a dataclass or ``pyarrow.Schema`` declares.

    Raises:
        TopologyError: The declaration is invalid. The message names every invalid field.
    """
    if isinstance(given, RecordSchema):
        return given
    problems: list[str] = []
    if isinstance(given, type) and dataclasses.is_dataclass(given):
        found = RecordSchema(given.__name__, _of_dataclass(given, problems))
    elif type(given).__module__.partition(".")[0] == "pyarrow" and type(given).__name__ == "Schema":
        found = RecordSchema("schema", _of_arrow(given, problems))
    else:
        raise TopologyError(
            f"step {step!r}: {given!r} is not a schema; write a dataclass (the class, not one of its instances) or a "
            "pyarrow.Schema"
        )
    twice = sorted({field.name for field in found.fields if [f.name for f in found.fields].count(field.name) > 1})
    if twice:
        problems.append(f"it names {listing(twice)} twice; rename one")
    if not found.fields and not problems:
        problems.append("it has no fields; give it at least one")
    if problems:
        raise TopologyError([f"step {step!r}: schema {found.name}: {problem}" for problem in problems])
    _check_defaults(found, step)
    return found


def _of_dataclass(given: type, problems: list[str]) -> tuple[FieldType, ...]:
    try:
        hints = typing.get_type_hints(given)
    except Exception as error:  # annotations are code of the user
        problems.append(
            f"its annotations cannot be read ({error}); declare it, and what they name, at the top level of its module"
        )
        return ()
    found = []
    for field in dataclasses.fields(given):
        inner, optional = _unwrapped(hints[field.name])
        kind = KINDS.get(inner) if isinstance(inner, type) else None
        if kind is None:
            problems.append(f"field {field.name!r} has the type {_named(hints[field.name])}; {_CURE}")
        elif field.default_factory is not dataclasses.MISSING:
            problems.append(f"field {field.name!r} has a default_factory; write a plain default, or none")
        else:
            default = () if field.default is dataclasses.MISSING else (field.default,)
            found.append(FieldType(field.name, kind, optional, default))
    return tuple(found)


def _unwrapped(hint: Any) -> tuple[Any, bool]:
    """Return the type, and True if it may be None."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint, False
    inner = [one for one in typing.get_args(hint) if one is not type(None)]
    return (inner[0], True) if len(inner) == 1 else (hint, False)


def _named(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")


def _of_arrow(given: Any, problems: list[str]) -> tuple[FieldType, ...]:
    found = []
    for field in given:
        kind, more = _arrow_kind(field.type)
        if kind:
            found.append(FieldType(field.name, kind, field.nullable, **more))
        else:
            problems.append(
                f"field {field.name!r} has the type {field.type}, which is not carried; write one of string, int8 to "
                "int64, float64, bool, binary, date32, timestamp('us', 'UTC'), decimal128(…)"
            )
    return tuple(found)


def _arrow_kind(of: Any) -> tuple[str, dict[str, Any]]:
    """Return the kind of an Arrow type, and its further properties. The kind is "" for an unsupported type."""
    import pyarrow as pa

    if pa.types.is_signed_integer(of):
        return "int", {"bits": of.bit_width}
    if pa.types.is_decimal128(of):
        return ("Decimal", {"digits": of.precision, "scale": of.scale}) if of.scale >= 0 else ("", {})
    kinds = {
        pa.string(): "str", pa.large_string(): "str", pa.float64(): "float", pa.bool_(): "bool", pa.binary(): "bytes",
        pa.large_binary(): "bytes", pa.date32(): "date", pa.timestamp("us", "UTC"): "datetime",
    }  # fmt: skip
    return kinds.get(of, ""), {}


def _check_defaults(schema: RecordSchema, step: str) -> None:
    """Check that each default is a value of its field.

    Raises:
        TopologyError: A default is invalid.
    """
    from heronry.streamlet.conform import RecordConverter, SchemaError

    given = {field.name: field.default[0] for field in schema.fields if field.default}
    own = RecordSchema(schema.name, tuple(field for field in schema.fields if field.default))
    try:
        made = RecordConverter(own)(given)
    except SchemaError as error:
        raise TopologyError(f"step {step!r}: a default of schema {schema.name} is wrong: {error}") from error
    for name, value in given.items():
        if type(made[name]) is not type(value) or (made[name] != value and value == value):
            raise TopologyError(
                f"step {step!r}: schema {schema.name}: the default of {name!r} is {value!r}, which would become "
                f"{made[name]!r}; write that"
            )


def arrow_schema(schema: RecordSchema) -> Any:
    """Return the Arrow schema of a table of such records. None if a Decimal has a scale that depends on its values."""
    import pyarrow as pa

    types = {
        "str": pa.string(), "float": pa.float64(), "bool": pa.bool_(), "bytes": pa.binary(), "date": pa.date32(),
        "datetime": pa.timestamp("us", "UTC"),
    }  # fmt: skip
    ints = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
    found = []
    for field in schema.fields:
        if field.kind == "Decimal":
            if field.scale is None:
                return None
            types["Decimal"] = pa.decimal128(field.digits, field.scale)
        of = ints[field.bits] if field.kind == "int" else types[field.kind]
        found.append(pa.field(field.name, of, field.optional))
    return pa.schema(found)
