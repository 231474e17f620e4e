"""When two engines' results are the same: exactly equal, but floats within 1e-9 (relative, or absolute near zero)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from heronry.model.keys import UnsupportedKey, encode

TOLERANCE = 1e-9


def close(a: Any, b: Any) -> bool:
    """True if ``a`` and ``b`` are equal up to the tolerance for floats, at any depth. NaN equals NaN."""
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
    """A sort key for records of any kind: the canonical key encoding, or the text of what is no key."""
    try:
        return encode(_frozen(record))
    except UnsupportedKey:
        return repr(record).encode()


def _frozen(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")  # so that floats which differ in their last digits sort alike
    if isinstance(value, Mapping):
        return tuple(sorted(((str(key), _frozen(item)) for key, item in value.items()), key=_name))
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    return value


def _name(pair: tuple[str, Any]) -> str:
    return pair[0]


def same_records(a: Iterable[Any], b: Iterable[Any]) -> bool:
    """True if both hold the same records, whatever their order."""
    return not difference(a, b)


def difference(a: Iterable[Any], b: Iterable[Any], limit: int = 5) -> str:
    """The first records in which two results differ, as text; empty if they are the same up to order and tolerance."""
    ours, theirs = sorted(a, key=canonical), sorted(b, key=canonical)
    if len(ours) == len(theirs) and all(map(close, ours, theirs)):
        return ""
    only_a = _without(ours, theirs)
    only_b = _without(theirs, ours)
    if not only_a and not only_b:
        return ""
    return f"{len(only_a)} only in the first: {only_a[:limit]!r}; {len(only_b)} only in the second: {only_b[:limit]!r}"


def _without(records: list[Any], taken: list[Any]) -> list[Any]:
    """The records that have no counterpart. Those with equal sort keys are tried first, then all others."""
    left: dict[bytes, list[Any]] = {}
    for record in taken:
        left.setdefault(canonical(record), []).append(record)
    missing: list[Any] = []
    for record in records:
        near = left.get(canonical(record), [])
        # Floats that differ in their last digits may be rounded apart; so few do that all others may be tried.
        if not (_take(record, near) or (len(missing) < _TRIED and any(_take(record, far) for far in left.values()))):
            missing.append(record)
    return missing


_TRIED = 100


def _take(record: Any, candidates: list[Any]) -> bool:
    """Remove the first candidate that is close to the record; False if there is none."""
    for place, other in enumerate(candidates):
        if close(record, other):
            candidates.pop(place)
            return True
    return False
