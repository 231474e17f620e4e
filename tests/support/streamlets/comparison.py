"""Describe the records in which the results of two engines differ."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heronry.streamlet.compare import canonical, close


def difference(a: Iterable[Any], b: Iterable[Any], limit: int = 5) -> str:
    """Return the first records in which two results differ, as text; empty if equal up to order and tolerance."""
    ours, theirs = sorted(a, key=canonical), sorted(b, key=canonical)
    if len(ours) == len(theirs) and all(map(close, ours, theirs)):
        return ""
    only_a = _without(ours, theirs)
    only_b = _without(theirs, ours)
    if not only_a and not only_b:
        return ""
    return f"{len(only_a)} only in the first: {only_a[:limit]!r}; {len(only_b)} only in the second: {only_b[:limit]!r}"


def _without(records: list[Any], taken: list[Any]) -> list[Any]:
    """Return the records without a counterpart. Those with equal sort keys are tried first, then all others."""
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
    """Remove the first candidate that is close to the record; return False if there is none."""
    for place, other in enumerate(candidates):
        if close(record, other):
            candidates.pop(place)
            return True
    return False
