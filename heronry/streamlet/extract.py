"""How a key, a value or an event time is taken from a record: the whole record, a field by name or place, a function.

``Whole`` and ``Field`` are *plain*: an engine may read them as a column without calling Python. A field name reads
``record[name]`` of a mapping and ``record.name`` of anything else (named tuples, dataclasses); a place reads
``record[place]``.
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
    """The record has other fields; the text names them."""

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would show its argument's repr


@dataclass(frozen=True, slots=True)
class Whole:
    """The record itself."""

    plain = True

    def __call__(self, record: Any) -> Any:
        return record


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the record. Raises NoSuchField, AttributeError or IndexError where there is none."""

    name: str | int
    plain = True

    def __call__(self, record: Any) -> Any:
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
        return getattr(record, name)  # type: ignore[arg-type]  # an int has been dealt with

    def column(self, records: list[Any]) -> list[Any]:
        """The field of many records; one pass in C where all of them are dicts or the field is a place."""
        if self.name.__class__ is int or {*map(type, records)} == {dict}:
            return list(map(itemgetter(self.name), records))
        return list(map(self, records))


@dataclass(frozen=True, slots=True)
class Function:
    """What the user's function returns. The function must depend on the record alone."""

    function: Callable[[Any], Any]
    plain = False

    def __call__(self, record: Any) -> Any:
        return self.function(record)


Extractor: TypeAlias = Whole | Field | Function
WHOLE = Whole()


def as_extractor(given: Any) -> Extractor:
    """None is the whole record; a str or int names a field; a callable is called. Raises TypeError for the rest."""
    if given is None:
        return WHOLE
    if isinstance(given, Whole | Field | Function):
        return given
    if isinstance(given, str) or (isinstance(given, int) and not isinstance(given, bool)):
        return Field(given)
    if callable(given):
        return Function(given)
    raise TypeError(f"{given!r} is neither a field's name, a place nor a function of the record")


def column(extractor: Extractor, records: list[Any]) -> list[Any]:
    """The extractor over many records."""
    if isinstance(extractor, Whole):
        return records
    if isinstance(extractor, Field):
        return extractor.column(records)
    return list(map(extractor.function, records))
