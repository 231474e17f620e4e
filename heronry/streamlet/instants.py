"""Normalization of keys: times with a zone are converted to UTC, the same for every engine."""

from __future__ import annotations

import datetime as dt
from typing import Any

_PARTS = (dt.datetime, tuple, frozenset)


def keys_by_instant(keys: list[Any]) -> list[Any]:
    """Return keys with each time that has a zone converted to UTC, also within tuples and frozensets.

    Python regards the two instants of an hour that occurs twice as equal, so a table would merge them.
    """
    return list(map(key_by_instant, keys)) if any(issubclass(kind, _PARTS) for kind in {*map(type, keys)}) else keys


def key_by_instant(key: Any) -> Any:
    """Return one key with each time that has a zone converted to UTC. Its type is kept, also that of a subclass."""
    if isinstance(key, dt.datetime):
        if key.tzinfo is None or key.tzinfo is dt.UTC or key.utcoffset() is None:
            return key
        try:
            return key.astimezone(dt.UTC)
        except OverflowError:
            return key
    if isinstance(key, tuple | frozenset) and any(isinstance(part, _PARTS) for part in key):
        # A subclass may take other arguments, as that of a named tuple does.
        plain: Any = tuple if isinstance(key, tuple) else frozenset
        return plain.__new__(type(key), map(key_by_instant, key))
    return key
