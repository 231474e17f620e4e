"""Normalization of keys: times with a zone are converted to UTC, the same for every engine."""

from __future__ import annotations

import datetime as dt
from typing import Any

_PARTS = (dt.datetime, tuple)


def keys_by_instant(keys: list[Any]) -> list[Any]:
    """Return keys with each time that has a zone converted to UTC, also within tuples.

    Python regards the two instants of an hour that occurs twice as equal, so a table would merge them.
    """
    kinds = {*map(type, keys)}
    return list(map(key_by_instant, keys)) if not kinds.isdisjoint(_PARTS) else keys


def key_by_instant(key: Any) -> Any:
    """Return one key with each time that has a zone converted to UTC."""
    kind = type(key)
    if kind is dt.datetime:
        if key.tzinfo is None or key.tzinfo is dt.UTC or key.utcoffset() is None:
            return key
        try:
            return key.astimezone(dt.UTC)
        except OverflowError:
            return key
    if kind is tuple and any(type(part) in _PARTS for part in key):
        return tuple(map(key_by_instant, key))
    return key
