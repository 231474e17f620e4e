"""Extractors of a key, a value or an event time from a record.

An extractor takes the whole record, a field by name or index, or the result of a function.

``Whole`` and ``Field`` are *plain*: an engine may read them as a column without calling Python. A field name reads
``record[name]`` of a mapping and ``record.name`` of any other record (named tuples, dataclasses). An index reads
``record[index]``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

from heron_runtime.failures import did_you_mean, listing

T = TypeVar("T")

#: A field, a place, or a function of a record; None means the whole record.
Selector: TypeAlias = str | int | Callable[[T], Any] | None


class NoSuchField(KeyError):
    """Error for a missing field. The message names the fields that the record has."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError itself would show the repr of its argument


@dataclass(frozen=True, slots=True)
class Whole:
    """Extractor of the record itself."""

    plain = True

    def __call__(self, record: Any) -> Any:
        """Return the record."""
        return record


@dataclass(frozen=True, slots=True)
class Field:
    """Extractor of one field of the record.

    It raises NoSuchField, AttributeError or IndexError if the record does not have the field.
    """

    name: str | int
    plain = True

    def __call__(self, record: Any) -> Any:
        """Return the field of the record."""
        name = self.name
        if name.__class__ is int:
            return record[name]
        if isinstance(record, Mapping):
            try:
                return record[name]
            except KeyError:
                there = [str(field) for field in record]
                raise NoSuchField(
                    f"the record has no field {name!r}, it has {listing(there)}{did_you_mean(str(name), there)}"
                ) from None
        return getattr(record, name)  # type: ignore[arg-type]  # an int was handled above

    def column(self, records: list[Any]) -> list[Any]:
        """Return the field of many records.

        This is one pass in C if all of them are dicts, or if the field is an index.
        """
        if self.name.__class__ is int or {*map(type, records)} == {dict}:
            return list(map(itemgetter(self.name), records))
        return list(map(self, records))


@dataclass(frozen=True, slots=True)
class Function:
    """Extractor that calls the user's function. The function must depend only on the record."""

    function: Callable[[Any], Any]
    plain = False

    def __call__(self, record: Any) -> Any:
        """Return the function's value for the record."""
        return self.function(record)


Extractor: TypeAlias = Whole | Field | Function
WHOLE = Whole()


def as_extractor(given: Any) -> Extractor:
    """Return the extractor for None (the whole record), a str or int (a field), or a function.

    Raises:
        TypeError: The value is none of these.
    """
    if given is None:
        return WHOLE
    if isinstance(given, Whole | Field | Function):
        return given
    if isinstance(given, str) or (isinstance(given, int) and not isinstance(given, bool)):
        return Field(given)
    if callable(given):
        return Function(given)
    raise TypeError(f"{given!r} is not a field name, a position or a function of the record")


def column(extractor: Extractor, records: list[Any]) -> list[Any]:
    """Return the results of the extractor over many records."""
    if isinstance(extractor, Whole):
        return records
    if isinstance(extractor, Field):
        return extractor.column(records)
    return list(map(extractor.function, records))
