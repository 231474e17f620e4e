"""The metrics query language: a tree and data to series.

Every series has at most one point a minute; a minute is the second at which it begins (a multiple of 60). A result is
*univariate* (one series that stands for no instance: a number, a fold, a TS without ``*``) or *multivariate* (a series
for each instance, and where the metric's name has a ``*`` for each text it stood for, the *label*). What happens to a
minute without a value:

* SUM and COUNT have a point at every minute of the range; what is missing counts as 0.
* MAX, MIN, AVG and PERCENTILE have a point where at least one series has one. A number counts at every minute.
* SUBTRACT, MULTIPLY and DIVIDE have a point where both sides have one; a division by 0 has none.
* Two multivariate sides are joined on instance and label (a side without label joins with every label); an instance
  that only one side has is left out. A univariate side is used for every series of the other.
* RATE has a point where the minute before has one, too; it looks before the first minute of the range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from heron_tracker.core.query_language import Default, Fold, Join, Node, Number, Rate, TimeSeries, TopK, rates_deep

MINUTE = 60


@dataclass(frozen=True, slots=True)
class Series:
    """Points by minute. ``instance`` and ``label`` are "" where the series stands for none."""

    points: Mapping[int, float]
    instance: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What an operator gives."""

    series: tuple[Series, ...]
    multivariate: bool = False


Fetch = Callable[[TimeSeries], Sequence[Series]]


def minutes_between(start: float, end: float) -> range:
    """The minutes that begin within [start rounded down to its minute, end]."""
    first = int(start // MINUTE) * MINUTE
    return range(first, int(end) + 1, MINUTE)


def evaluate(query: Node, fetch: Fetch, start: float, end: float) -> Result:
    """The result over a range of time (seconds since 1970). ``fetch`` gives the series that a TS matches."""
    wanted = minutes_between(start, end)
    padded = minutes_between(start - MINUTE * rates_deep(query), end)
    result = _evaluate(query, fetch, padded)
    inside = frozenset(wanted)
    return Result(
        tuple(
            Series({t: v for t, v in sorted(s.points.items()) if t in inside and math.isfinite(v)}, s.instance, s.label)
            for s in result.series
        ),
        result.multivariate,
    )


def _evaluate(node: Node, fetch: Fetch, minutes: range) -> Result:
    match node:
        case Number(value):
            return Result((Series(dict.fromkeys(minutes, value)),))
        case TimeSeries():
            return _fetch(node, fetch, minutes)
        case Default(value, operand):
            return _default(value, _evaluate(operand, fetch, minutes), minutes)
        case Fold(operator, operands, q):
            series = [s for operand in operands for s in _evaluate(operand, fetch, minutes).series]
            return Result((Series(_fold(operator, q, series, minutes)),))
        case Join(operator, left, right):
            return _join(operator, _evaluate(left, fetch, minutes), _evaluate(right, fetch, minutes))
        case Rate(operand):
            found = _evaluate(operand, fetch, minutes)
            return Result(tuple(Series(_rate(s.points), s.instance, s.label) for s in found.series), found.multivariate)
        case TopK(k, operand):
            found = _evaluate(operand, fetch, minutes)
            best = sorted(found.series, key=lambda s: (-math.fsum(s.points.values()), s.instance, s.label))
            return Result(tuple(best[:k]), found.multivariate)


def _fetch(node: TimeSeries, fetch: Fetch, minutes: range) -> Result:
    several = any("*" in pattern for pattern in (node.component, node.instance, node.metric))
    inside = frozenset(minutes)
    series = tuple(Series({t: v for t, v in s.points.items() if t in inside}, s.instance, s.label) for s in fetch(node))
    return Result(series, several)


def _default(value: float, found: Result, minutes: range) -> Result:
    if not found.series:
        return Result((Series(dict.fromkeys(minutes, value)),))
    filled = (Series({**dict.fromkeys(minutes, value), **s.points}, s.instance, s.label) for s in found.series)
    return Result(tuple(filled), found.multivariate)


def _fold(operator: str, q: float, series: Sequence[Series], minutes: range) -> dict[int, float]:
    folded: dict[int, float] = {}
    for minute in minutes:
        values = [s.points[minute] for s in series if minute in s.points]
        if operator == "SUM":
            folded[minute] = math.fsum(values)
        elif operator == "COUNT":
            folded[minute] = float(len(values))
        elif values:
            folded[minute] = _fold_values(operator, q, values)
    return folded


def _fold_values(operator: str, q: float, values: list[float]) -> float:
    if operator == "MAX":
        return max(values)
    if operator == "MIN":
        return min(values)
    if operator == "AVG":
        return math.fsum(values) / len(values)
    return sorted(values)[int(q * (len(values) - 1) / 100)]


def _join(operator: str, left: Result, right: Result) -> Result:
    joined = []
    for a in left.series:
        for b in right.series:
            if left.multivariate and right.multivariate and not _belong(a, b):
                continue
            points: dict[int, float] = {}
            for minute in a.points.keys() & b.points.keys():
                value = _apply(operator, a.points[minute], b.points[minute])
                if value is not None:
                    points[minute] = value
            named = (a, b) if left.multivariate or not right.multivariate else (b, a)
            instance = named[0].instance
            label = named[0].label or (named[1].label if left.multivariate and right.multivariate else "")
            joined.append(Series(points, instance, label))
    return Result(tuple(joined), left.multivariate or right.multivariate)


def _belong(a: Series, b: Series) -> bool:
    return a.instance == b.instance and (a.label == b.label or not a.label or not b.label)


def _apply(operator: str, a: float, b: float) -> float | None:
    if operator == "SUBTRACT":
        return a - b
    if operator == "MULTIPLY":
        return a * b
    return a / b if b else None


def _rate(points: Mapping[int, float]) -> dict[int, float]:
    return {t: value - points[t - MINUTE] for t, value in points.items() if t - MINUTE in points}
