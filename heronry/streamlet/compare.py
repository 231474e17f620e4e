"""Comparison of the results of two engines.

Values must be exactly equal, except for floats, which may differ by 1e-9 (relative, or absolute near zero).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from heron_runtime.model.keys import UnsupportedKey, encode

TOLERANCE = 1e-9


def close(a: Any, b: Any) -> bool:
    """Return True if ``a`` and ``b`` are equal up to the tolerance for floats, at any depth. NaN equals NaN."""
    if isinstance(a, float) or isinstance(b, float):
        if not isinstance(a, int | float) or not isinstance(b, int | float):
            return False
        return (a != a and b != b) or a == b or math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(close(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(close, a, b))
    return bool(a == b)


def canonical(record: Any) -> bytes:
    """Return a sort key for records of any kind.

    This is the canonical key encoding, or the ``repr`` of a value that is not a valid key.
    """
    try:
        return encode(_frozen(record))
    except UnsupportedKey:
        return repr(record).encode()


def _frozen(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")  # so that floats that differ only in their last digits have the same sort key
    if isinstance(value, Mapping):
        return tuple(sorted(((str(key), _frozen(item)) for key, item in value.items()), key=_name))
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    return value


def _name(pair: tuple[str, Any]) -> str:
    return pair[0]
