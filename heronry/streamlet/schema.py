"""Schemas: the fields of records and their types, declared once, the same for every engine.

Theory of operation. A user declares a schema as a dataclass or as a ``pyarrow.Schema``. Both become a ``RecordSchema``
of plain values, which can be sent to any process without the user's class. One rule in Python converts records to a
schema and determines which records are rejected (``RecordConverter``). An engine may do the same natively if the result
is the same (Catalyst over columns of Parquet), and may carry the fields as typed columns downstream.

The result of a conversion is a dict of exactly the schema's fields, in their order. Each value is an instance of
its exact type (not of a subclass), so that any engine can carry it as a column. A value is changed only if its meaning
is preserved: text of a number becomes the number, an int becomes an equal float, and a time without a zone is taken as
UTC. A value that would lose information (1.5 as an int, 2**53 + 1 as a float, more than 64 bits, nanoseconds) is
rejected. The error names every invalid field. docs/reference/streamlet-semantics.md (Schemas) has the rule as a table.
"""

from __future__ import annotations

import binascii
import dataclasses
import datetime as dt
import decimal
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from heron_runtime.failures import did_you_mean, listing
from heronry.api.errors import TopologyError
from heronry.streamlet.errors import shown
from heronry.streamlet.records import fields_of

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
        texts = [f"{f.name} {f.type_name}" + (f" = {f.default[0]!r}" if f.default else "") for f in self.fields]
        return f"{self.name} ({', '.join(texts)})"


def schema_of(given: Any, step: str) -> RecordSchema:
    """Return the schema that a dataclass or ``pyarrow.Schema`` declares.

    Raises:
        TopologyError: The declaration is invalid. The message names every invalid field.
    """
    if isinstance(given, RecordSchema):
        return given
    problems: list[str] = []
    if isinstance(given, type) and dataclasses.is_dataclass(given):
        schema = RecordSchema(given.__name__, _of_dataclass(given, problems))
    elif type(given).__module__.partition(".")[0] == "pyarrow" and type(given).__name__ == "Schema":
        schema = RecordSchema("schema", _of_arrow(given, problems))
    else:
        raise TopologyError(
            f"step {step!r}: {given!r} is not a schema; write a dataclass (the class, not one of its instances) or a "
            "pyarrow.Schema"
        )
    twice = sorted({field.name for field in schema.fields if [f.name for f in schema.fields].count(field.name) > 1})
    if twice:
        problems.append(f"it names {listing(twice)} twice; rename one")
    if not schema.fields and not problems:
        problems.append("it has no fields; give it at least one")
    if problems:
        raise TopologyError([f"step {step!r}: schema {schema.name}: {problem}" for problem in problems])
    _check_defaults(schema, step)
    return schema


def _of_dataclass(given: type, problems: list[str]) -> tuple[FieldType, ...]:
    try:
        hints = typing.get_type_hints(given)
    except Exception as error:  # annotations are code of the user
        problems.append(
            f"its annotations cannot be read ({error}); declare it, and what they name, at the top level of its module"
        )
        return ()
    fields = []
    for field in dataclasses.fields(given):
        inner, optional = _unwrapped(hints[field.name])
        kind = KINDS.get(inner) if isinstance(inner, type) else None
        if kind is None:
            problems.append(f"field {field.name!r} has the type {_named(hints[field.name])}; {_CURE}")
        elif field.default_factory is not dataclasses.MISSING:
            problems.append(f"field {field.name!r} has a default_factory; write a plain default, or none")
        else:
            default = () if field.default is dataclasses.MISSING else (field.default,)
            fields.append(FieldType(field.name, kind, optional, default))
    return tuple(fields)


def _unwrapped(hint: Any) -> tuple[Any, bool]:
    """Return the type, and True if it may be None."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint, False
    inner = [one for one in typing.get_args(hint) if one is not type(None)]
    return (inner[0], True) if len(inner) == 1 else (hint, False)


def _named(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")


def _of_arrow(given: Any, problems: list[str]) -> tuple[FieldType, ...]:
    fields = []
    for field in given:
        kind, more = _arrow_kind(field.type)
        if kind:
            fields.append(FieldType(field.name, kind, field.nullable, **more))
        else:
            problems.append(
                f"field {field.name!r} has the type {field.type}, which is not carried; write one of string, int8 to "
                "int64, float64, bool, binary, date32, timestamp('us', 'UTC'), decimal128(…)"
            )
    return tuple(fields)


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
    fields = []
    for field in schema.fields:
        if field.kind == "Decimal":
            if field.scale is None:
                return None
            types["Decimal"] = pa.decimal128(field.digits, field.scale)
        of = ints[field.bits] if field.kind == "int" else types[field.kind]
        fields.append(pa.field(field.name, of, field.optional))
    return pa.schema(fields)


MAX_SHOWN = 80  # limit of characters of a value in a message
_INT = re.compile(r"[+-]?0*[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_NOT_FINITE = ("nan", "inf", "-inf")  # as Python formats them
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(_DATE.pattern + r"[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?:Z|[+-][0-9]{2}:[0-9]{2})?")
_TRUTH = {"true": True, "1": True, "false": False, "0": False}
_ABSENT = object()


class SchemaError(ValueError):
    """Error for a record that does not fit a schema. The message names each invalid field."""


class _Wrong(ValueError):
    """Reason why a value is rejected."""


class RecordConverter:
    """Function from a record to a dict of the schema's fields. Only the schema is serialized."""

    def __init__(self, schema: RecordSchema) -> None:
        self.schema = schema
        self._fields = [(field.name, _converter(field)) for field in schema.fields]

    def __call__(self, record: Any) -> dict[str, Any]:
        """Return the record as a dict of the schema's fields.

        Raises:
            SchemaError: The record does not fit.
        """
        given = record if record.__class__ is dict else fields_of(record)
        if given.__class__ is not dict and not isinstance(given, Mapping):
            raise SchemaError(
                f"{shown(record, MAX_SHOWN)} has no named fields for {self.schema.name}: write a dict, a named tuple "
                "or a dataclass"
            )
        get = given.get
        try:
            return {name: convert(get(name, _ABSENT)) for name, convert in self._fields}
        except _Wrong:
            raise SchemaError(self._list_problems(given)) from None

    def _list_problems(self, given: Mapping[Any, Any]) -> str:
        """Return a message with all problems of a record."""
        wrong = []
        for field, convert in self._fields:
            try:
                convert(given.get(field, _ABSENT))
            except _Wrong as error:
                near = did_you_mean(field, [str(one) for one in given]) if field not in given else ""
                wrong.append(f"field {field!r} {error}{near}")
        return f"the record does not fit {self.schema.name}: {'; '.join(wrong)}"

    def __reduce__(self) -> tuple[type, tuple[RecordSchema]]:
        return (RecordConverter, (self.schema,))

    def __repr__(self) -> str:
        return f"Conform({self.schema})"


def _converter(field: FieldType) -> Callable[[Any], Any]:
    """Return a function that converts the field's value, or its absence."""
    make = _MAKERS[field.kind](field)
    empties = field.optional and field.kind not in ("str", "bytes")

    def convert(value: Any) -> Any:
        if value is None:
            if field.optional:
                return None
            raise _Wrong("is None, and not optional")
        if value is _ABSENT:
            if field.default:
                return field.default[0]
            if field.optional:
                return None
            raise _Wrong("is missing")
        if empties and value.__class__ is str and not value:
            return None  # csv has an empty field for None
        return make(value)

    return convert


def _is_whole(value: Any) -> bool:
    """Return True for an int that is not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def _refused(value: Any, why: str) -> _Wrong:
    return _Wrong(f"is {shown(value, MAX_SHOWN)}, {why}")


# A maker for each kind returns the converter of a value that is present. The converter raises _Wrong.


def _str(_: FieldType) -> Callable[[Any], str]:
    def make(value: Any) -> str:
        if not isinstance(value, str):
            raise _refused(value, "which is not a str")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise _refused(value, "which is not valid text: it has half a surrogate pair") from None
        return value if value.__class__ is str else str.__str__(value)

    return make


def _int(field: FieldType) -> Callable[[Any], int]:
    high = 1 << (field.bits - 1)
    low = -high

    def make(value: Any) -> int:
        if value.__class__ is not int:
            if (isinstance(value, str) and _INT.fullmatch(value)) or (
                isinstance(value, int) and not isinstance(value, bool)
            ):
                value = int(value)
            else:
                raise _refused(value, "which is not an int")
        if low <= value < high:
            return int(value)
        raise _refused(value, f"which does not fit {field.bits} bits")

    return make


def _float(_: FieldType) -> Callable[[Any], float]:
    def make(value: Any) -> float:
        if value.__class__ is float:
            return float(value)
        if isinstance(value, str):
            if value in _NOT_FINITE:
                return float(value)
            if _NUMBER.fullmatch(value):
                number = float(value)
                if math.isinf(number) or (number == 0 and any(c in "123456789" for c in re.split("[eE]", value)[0])):
                    raise _refused(value, "which is beyond the range of a float")
                return number
        elif isinstance(value, float):
            return float(value)
        elif _is_whole(value):
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
            if number != value:
                raise _refused(value, "an int that a float cannot represent exactly")
            return number
        raise _refused(value, "which is not a float")

    return make


def _bool(_: FieldType) -> Callable[[Any], bool]:
    def make(value: Any) -> bool:
        if value.__class__ is bool:
            return bool(value)
        if isinstance(value, str) and value.lower() in _TRUTH:
            return _TRUTH[value.lower()]
        raise _refused(value, "which is not a bool")

    return make


def _bytes(_: FieldType) -> Callable[[Any], bytes]:
    def make(value: Any) -> bytes:
        if isinstance(value, bytes):
            return bytes(value)
        if isinstance(value, str):
            try:
                return binascii.a2b_base64(value, strict_mode=True)
            except ValueError:  # binascii.Error is a ValueError, as is the error for non-ASCII text
                raise _refused(value, "which is not base64, the text form of bytes") from None
        raise _refused(value, "which is not bytes")

    return make


def _datetime(_: FieldType) -> Callable[[Any], dt.datetime]:
    def make(value: Any) -> dt.datetime:
        moment: dt.datetime = value
        try:
            if isinstance(value, str):
                if not _TIME.fullmatch(value):
                    raise _refused(value, "which is not an ISO 8601 time with at most microseconds")
                moment = dt.datetime.fromisoformat(value)
            elif value.__class__ is not dt.datetime:
                raise _refused(value, "which is not a datetime")
            if moment.tzinfo is dt.UTC:
                return moment.replace(fold=0) if moment.fold else moment
            if moment.utcoffset() is None:
                return moment.replace(tzinfo=dt.UTC, fold=0)
            return moment.astimezone(dt.UTC)
        except OverflowError:
            raise _refused(value, "which is outside the years 1 to 9999 in UTC") from None
        except ValueError as error:
            raise error if isinstance(error, _Wrong) else _refused(value, f"an invalid time ({error})") from None

    return make


def _date(_: FieldType) -> Callable[[Any], dt.date]:
    def make(value: Any) -> dt.date:
        if value.__class__ is dt.date:
            return value
        if isinstance(value, str) and _DATE.fullmatch(value):
            try:
                return dt.date.fromisoformat(value)
            except ValueError as error:
                raise _refused(value, f"an invalid date ({error})") from None
        raise _refused(value, "which is not a date")

    return make


_EXACT = decimal.Context(prec=2 * MAX_DIGITS, traps=[decimal.Inexact, decimal.InvalidOperation])


def _decimal(field: FieldType) -> Callable[[Any], Decimal]:
    bound = Decimal(1).scaleb(field.digits - (field.scale or 0))
    unit = None if field.scale is None else Decimal(1).scaleb(-field.scale)

    def make(value: Any) -> Decimal:
        if isinstance(value, float):
            raise _refused(value, "a float, which does not keep decimal digits exactly: write text or an int")
        is_text = isinstance(value, str) and _NUMBER.fullmatch(value)
        if not is_text and not isinstance(value, Decimal) and not _is_whole(value):
            raise _refused(value, "which is not a Decimal")
        try:
            return _fitted(Decimal(value), bound, unit)
        except decimal.DecimalException:
            limit = field.type_name.removesuffix("?") if field.scale is not None else f"{MAX_DIGITS} digits"
            raise _refused(value, f"which does not fit {limit}") from None

    return make


def _fitted(value: Decimal, bound: Decimal, unit: Decimal | None) -> Decimal:
    """Return the same number in the form in which a column stores it.

    Raises:
        DecimalException: The number does not fit.
    """
    if not value.is_finite() or value.copy_abs() >= bound:
        raise decimal.InvalidOperation
    if not value:
        return unit - unit if unit is not None else Decimal(0)  # columns have only an unsigned zero
    if unit is not None:
        return value.quantize(unit, context=_EXACT)
    exponent = value.as_tuple().exponent
    if len(value.as_tuple().digits) > MAX_DIGITS or not isinstance(exponent, int) or exponent < -MAX_DIGITS:
        raise decimal.InvalidOperation
    return value


_MAKERS: dict[str, Callable[[FieldType], Callable[[Any], Any]]] = {
    "str": _str, "int": _int, "float": _float, "bool": _bool, "bytes": _bytes, "datetime": _datetime, "date": _date,
    "Decimal": _decimal,
}  # fmt: skip
