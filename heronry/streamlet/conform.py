"""Conversion of records to a schema: one function, which every engine calls or matches exactly. Pure.

Theory of operation. The result is a dict of exactly the schema's fields, in their order. Each value is an instance of
its exact type (not of a subclass), so that any engine can carry it as a column. A value is changed only if its meaning
is preserved: text of a number becomes the number, an int becomes an equal float, and a time without a zone is taken as
UTC. A value that would lose information (1.5 as an int, 2**53 + 1 as a float, more than 64 bits, nanoseconds) is
rejected. The error names every invalid field. docs/reference/streamlet-semantics.md (Schemas) has the rule as a table.
"""

from __future__ import annotations

import binascii
import datetime as dt
import decimal
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from heron_runtime.failures import did_you_mean
from heronry.streamlet.errors import shown
from heronry.streamlet.records import fields_of
from heronry.streamlet.schema import MAX_DIGITS, FieldType, RecordSchema

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
                found = float(value)
                if math.isinf(found) or (found == 0 and any(c in "123456789" for c in re.split("[eE]", value)[0])):
                    raise _refused(value, "which is beyond the range of a float")
                return found
        elif isinstance(value, float):
            return float(value)
        elif _is_whole(value):
            try:
                found = float(value)
            except OverflowError:
                found = math.inf
            if found != value:
                raise _refused(value, "an int that a float cannot represent exactly")
            return found
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
        found: dt.datetime = value
        try:
            if isinstance(value, str):
                if not _TIME.fullmatch(value):
                    raise _refused(value, "which is not an ISO 8601 time with at most microseconds")
                found = dt.datetime.fromisoformat(value)
            elif value.__class__ is not dt.datetime:
                raise _refused(value, "which is not a datetime")
            if found.tzinfo is dt.UTC:
                return found.replace(fold=0) if found.fold else found
            if found.utcoffset() is None:
                return found.replace(tzinfo=dt.UTC, fold=0)
            return found.astimezone(dt.UTC)
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
            told = field.type_name.removesuffix("?") if field.scale is not None else f"{MAX_DIGITS} digits"
            raise _refused(value, f"which does not fit {told}") from None

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
