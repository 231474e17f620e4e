"""Evaluation of the metrics query language: a tree and data to series.

Every series has at most one point a minute. A minute is named by the second at which it begins (a multiple of 60). A
result is *univariate* (one series without an instance: a number, a fold, a TS without ``*``) or *multivariate* (one
series per instance, and per text that a ``*`` in the metric's name matched, the *label*). Minutes without a value:

* SUM and COUNT have a point at every minute of the range; missing values count as 0.
* MAX, MIN, AVG and PERCENTILE have a point where at least one series has one. A number counts at every minute.
* SUBTRACT, MULTIPLY and DIVIDE have a point where both sides have one; a division by 0 has none.
* Two multivariate sides are joined on instance and label (a side without label joins with every label). Instances of
  only one side are omitted. A univariate side is used for every series of the other.
* RATE has a point where the minute before has one as well; it looks before the first minute of the range.
* A value beyond the range of floats is a minute without a value.

Evaluations are bounded: they touch at most ``MAX_POINTS`` points, counted before the work is done, and return at
most ``MAX_ANSWER_POINTS``. Beyond either limit they raise QueryError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from heron_tracker.core.query_language import (
    ConstantQuery,
    DefaultQuery,
    FoldQuery,
    JoinQuery,
    QueryError,
    QueryNode,
    RateQuery,
    TimeSeries,
    TopKQuery,
    rate_depth,
)

MINUTE = 60
MAX_POINTS = 4_000_000  # about half a second
MAX_ANSWER_POINTS = 250_000  # about 6 MB of JSON


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """Points by minute. ``instance`` and ``label`` are empty where they do not apply."""

    points: Mapping[int, float]
    instance: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Result of an operator."""

    series: tuple[MetricSeries, ...]
    multivariate: bool = False


Fetch = Callable[[TimeSeries], Sequence[MetricSeries]]


def minutes_between(start: float, end: float) -> range:
    """Return the minutes that begin within [start rounded down to its minute, end]."""
    first = int(start // MINUTE) * MINUTE
    return range(first, int(end) + 1, MINUTE)


def evaluate(query: QueryNode, fetch: Fetch, start: float, end: float) -> QueryResult:
    """Evaluate a query over a range of time.

    Args:
        query: tree of the query.
        fetch: returns the series that a TS selects; called once per TS.
        start: seconds since 1970.
        end: seconds since 1970.

    Raises:
        QueryError: the work would exceed a limit.
    """
    padded = minutes_between(start - MINUTE * rate_depth(query), end)
    result = _Evaluation(fetch, padded).result(query)
    inside = frozenset(minutes_between(start, end))
    if len(result.series) * len(inside) > MAX_ANSWER_POINTS:
        points = sum(len(inside & s.points.keys()) for s in result.series)
        if points > MAX_ANSWER_POINTS:
            raise QueryError(f"the answer would have {points} points, at most {MAX_ANSWER_POINTS} are allowed; {_CURE}")
    return QueryResult(
        tuple(
            MetricSeries(
                {t: v for t, v in sorted(s.points.items()) if t in inside and math.isfinite(v)}, s.instance, s.label
            )
            for s in result.series
        ),
        result.multivariate,
    )


_CURE = "name components or instances instead of *, or request a shorter time"


class _Evaluation:
    """One walk over a tree. ``_left`` is the number of points it may still touch."""

    def __init__(self, fetch: Fetch, minutes: range) -> None:
        self._fetch = fetch
        self._minutes = minutes
        self._inside = frozenset(minutes)
        self._points_left = MAX_POINTS
        self._fetched: dict[TimeSeries, QueryResult] = {}

    def result(self, node: QueryNode) -> QueryResult:
        """Return the result of a node."""
        minutes = self._minutes
        match node:
            case ConstantQuery(value):
                self._touch(len(minutes))
                return QueryResult((MetricSeries(dict.fromkeys(minutes, value)),))
            case TimeSeries():
                return self._time_series(node)
            case DefaultQuery(value, operand):
                return self._default(value, self.result(operand))
            case FoldQuery(operator, operands, q):
                series = [s for operand in operands for s in self.result(operand).series]
                self._touch(len(series) * len(minutes))
                return QueryResult((MetricSeries(_fold(operator, q, series, minutes)),))
            case JoinQuery(operator, left, right):
                return self._join(operator, self.result(left), self.result(right))
            case RateQuery(operand):
                result = self._touched(self.result(operand))
                rates = tuple(MetricSeries(_rate(s.points), s.instance, s.label) for s in result.series)
                return QueryResult(rates, result.multivariate)
            case TopKQuery(k, operand):
                result = self._touched(self.result(operand))
                best = sorted(result.series, key=lambda s: (-_sum(s.points.values()), s.instance, s.label))
                return QueryResult(tuple(best[:k]), result.multivariate)

    def _touch(self, points: int) -> None:
        self._points_left -= points
        if self._points_left < 0:
            raise QueryError(f"the query would process more than {MAX_POINTS} points; {_CURE}")

    def _touched(self, result: QueryResult) -> QueryResult:
        self._touch(sum(len(s.points) for s in result.series))
        return result

    def _time_series(self, node: TimeSeries) -> QueryResult:
        if node not in self._fetched:
            several = any("*" in pattern for pattern in (node.component, node.instance, node.metric))
            result = self._touched(QueryResult(tuple(self._fetch(node)), several))
            inside = self._inside
            self._fetched[node] = QueryResult(
                tuple(
                    MetricSeries({t: v for t, v in s.points.items() if t in inside}, s.instance, s.label)
                    for s in result.series
                ),
                several,
            )
        return self._fetched[node]

    def _default(self, value: float, result: QueryResult) -> QueryResult:
        minutes = self._minutes
        self._touch(max(1, len(result.series)) * len(minutes))
        if not result.series:
            return QueryResult((MetricSeries(dict.fromkeys(minutes, value)),))
        filled = (
            MetricSeries({**dict.fromkeys(minutes, value), **s.points}, s.instance, s.label) for s in result.series
        )
        return QueryResult(tuple(filled), result.multivariate)

    def _join(self, operator: str, left: QueryResult, right: QueryResult) -> QueryResult:
        joined = []
        for a in left.series:
            self._touch(len(right.series))
            for b in right.series:
                if left.multivariate and right.multivariate and not _belong(a, b):
                    continue
                self._touch(len(a.points))
                points: dict[int, float] = {}
                for minute in a.points.keys() & b.points.keys():
                    value = _apply(operator, a.points[minute], b.points[minute])
                    if value is not None:
                        points[minute] = value
                named = (a, b) if left.multivariate or not right.multivariate else (b, a)
                instance = named[0].instance
                label = named[0].label or (named[1].label if left.multivariate and right.multivariate else "")
                joined.append(MetricSeries(points, instance, label))
        return QueryResult(tuple(joined), left.multivariate or right.multivariate)


def _fold(operator: str, q: float, series: Sequence[MetricSeries], minutes: range) -> dict[int, float]:
    folded: dict[int, float] = {}
    for minute in minutes:
        values = [s.points[minute] for s in series if minute in s.points]
        if operator == "SUM":
            folded[minute] = _sum(values)
        elif operator == "COUNT":
            folded[minute] = float(len(values))
        elif values:
            folded[minute] = _fold_values(operator, q, values)
    return folded


def _sum(values: Iterable[float]) -> float:
    """Return the exact sum, or an infinity or NaN where ``fsum`` raises."""
    numbers = tuple(values)
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):
        return sum(numbers)


def _fold_values(operator: str, q: float, values: list[float]) -> float:
    if operator == "MAX":
        return max(values)
    if operator == "MIN":
        return min(values)
    if operator == "AVG":
        total = _sum(values)
        return total / len(values) if math.isfinite(total) else _sum(v / len(values) for v in values)
    return sorted(values)[int(q * (len(values) - 1) / 100)]


def _belong(a: MetricSeries, b: MetricSeries) -> bool:
    return a.instance == b.instance and (a.label == b.label or not a.label or not b.label)


def _apply(operator: str, a: float, b: float) -> float | None:
    if operator == "SUBTRACT":
        return a - b
    if operator == "MULTIPLY":
        return a * b
    return a / b if b else None


def _rate(points: Mapping[int, float]) -> dict[int, float]:
    return {t: value - points[t - MINUTE] for t, value in points.items() if t - MINUTE in points}
