"""Copies of values that user code may change in place.

A topology copies the values passed to `emit`, so that later changes do not affect the tuple. A streamlet engine copies
a record if it is needed again: for a second reader of a stream, for a retry after a failure, and for each match with a
row of a lookup table. Immutable values are not copied.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any
from uuid import UUID

IMMUTABLE = frozenset(
    {str, bytes, int, float, bool, type(None), complex, Decimal, date, datetime, time, timedelta, UUID}
)


def copied(record: Any) -> Any:
    """Return a copy that shares nothing mutable with ``record``. Objects that cannot be copied are shared."""
    try:
        return _copied(record)
    except RecursionError:  # nested too deeply, or cyclic
        return _deep_copied(record)


def copies(records: Iterable[Any]) -> list[Any]:
    """Return a copy of each record. Records that share an object no longer do."""
    return [record if record.__class__ in IMMUTABLE else copied(record) for record in records]


def copied_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row whose values share nothing mutable with those of ``row``."""
    return tuple([value if value.__class__ in IMMUTABLE else copied(value) for value in row])


def copied_rows(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows whose values share nothing mutable with those of ``rows``.

    If all values are immutable, the same list is returned.
    """
    if IMMUTABLE.issuperset(map(type, chain.from_iterable(rows))):
        return rows
    return [copied_row(row) for row in rows]


def _copied(value: Any) -> Any:
    cls = value.__class__
    if cls is dict:
        return {key: each if each.__class__ in IMMUTABLE else _copied(each) for key, each in value.items()}
    if cls is list:
        if IMMUTABLE.issuperset(map(type, value)):
            return value[:]
        return [each if each.__class__ in IMMUTABLE else _copied(each) for each in value]
    return value if _is_immutable(value) else _deep_copied(value)


def _deep_copied(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # whatever a user's class raises
        return value


def _is_immutable(value: Any) -> bool:
    return value.__class__ in IMMUTABLE or (isinstance(value, tuple) and all(map(_is_immutable, value)))
