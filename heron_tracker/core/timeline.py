"""Points by minute from what a topology master replied, for ``/topologies/metrics/timeline`` and for queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from heron_runtime.model.metrics import MetricKind
from heron_runtime.wire.master import TimelineReply, TimelineRequest, TimelineSeries
from heron_tracker.core.plain import number
from heron_tracker.core.query_evaluation import MINUTE, Series, minutes_between
from heron_tracker.core.query_language import TimeSeries

LONGEST_RANGE = 3 * 3600  # what a topology master remembers
SHORTEST_MINUTES = 600  # shorter intervals are answered in points of 5 seconds


def request_for(component: str, names: Iterable[str], start: float, now: float) -> TimelineRequest:
    """The question whose answer covers everything since ``start``, in minutes."""
    seconds = min(max(now - start + MINUTE, SHORTEST_MINUTES), LONGEST_RANGE)
    return TimelineRequest(component, seconds, tuple(names))


def request_of(leaf: TimeSeries, start: float, now: float) -> TimelineRequest:
    """The question for a TS. A master knows no ``*``: what stands before its last slash narrows the answer."""
    component = "" if "*" in leaf.component else leaf.component
    head, star, _ = leaf.metric.partition("*")
    name = head.rpartition("/")[0] if star else leaf.metric
    return request_for(component, (name,) if name else (), start, now)


def points(reply: TimelineReply, values: Sequence[float]) -> dict[int, float]:
    """Value by minute. A point that is not a number is a minute without a value."""
    first, step = int(reply.start_time), int(reply.step_seconds)
    return {first + n * step: value for n, value in enumerate(values) if value == value}


def series_of(leaf: TimeSeries, reply: TimelineReply) -> list[Series]:
    """The series of a reply that a TS means. A ``*`` stands for any text; what it stood for in the metric's name is
    the label."""
    found = []
    for series in reply.series:
        if stars(leaf.component, series.component) is None or stars(leaf.instance, series.instance) is None:
            continue
        label = stars(leaf.metric, series.name)
        if label is not None:
            found.append(Series(points(reply, series.values), series.instance, ",".join(label)))
    return found


def heron_timeline(
    component: str, start: int, end: int, reply: TimelineReply, instances: Sequence[str], *, as_text: bool
) -> dict[str, Any]:
    """The shape of ``/topologies/metrics/timeline``: metric → instance → minute → value (text on the old path)."""
    wanted = frozenset(instances)
    inside = frozenset(minutes_between(start, end))
    timeline: dict[str, dict[str, dict[str, Any]]] = {}
    for series in reply.series:
        if wanted and series.instance not in wanted:
            continue
        shown = {
            str(minute): str(number(value)) if as_text else number(value)
            for minute, value in points(reply, series.values).items()
            if minute in inside
        }
        timeline.setdefault(series.name, {})[series.instance] = shown
    return {"component": component, "starttime": start, "endtime": end, "timeline": timeline}


def together(reply: TimelineReply, instance: str = "") -> dict[str, Any]:
    """Name → points of all instances together (or of one): a counter's are added, of gauges the greatest and the least
    of any instance stand side by side, of latencies the slowest instance's mean. None where nobody reported."""
    by_name: dict[str, list[TimelineSeries]] = {}
    for series in reply.series:
        if instance in ("", series.instance):
            by_name.setdefault(series.name, []).append(series)
    return {
        "starttime": reply.start_time,
        "step": reply.step_seconds,
        "series": [_together(name, found) for name, found in sorted(by_name.items())],
    }


def _together(name: str, found: Sequence[TimelineSeries]) -> dict[str, Any]:
    kind = found[0].kind
    if kind == MetricKind.GAUGE:
        return {
            "name": name,
            "kind": kind,
            "values": _each_point(max, [s.maxima or s.values for s in found]),
            "minima": _each_point(min, [s.minima or s.values for s in found]),
        }
    fold = sum if kind == MetricKind.COUNTER else max
    return {"name": name, "kind": kind, "values": _each_point(fold, [s.values for s in found]), "minima": None}


def _each_point(fold: Callable[[list[float]], float], columns: Sequence[Sequence[float]]) -> list[Any]:
    points = ([value for value in values if value == value] for values in zip(*columns, strict=True))
    return [number(fold(values)) if values else None for values in points]


def stars(pattern: str, text: str) -> tuple[str, ...] | None:
    """What each ``*`` of the pattern stands for in the text, the first ones as little as possible; None: no match.

    Quick for every pattern: where the parts between stars occur first is where they may as well be.
    """
    first, *rest = pattern.split("*")
    if not rest:
        return () if text == pattern else None
    *middle, last = rest
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return None
    found, at, end = [], len(first), len(text) - len(last)
    for part in middle:
        where = text.find(part, at, end)
        if where < 0:
            return None
        found.append(text[at:where])
        at = where + len(part)
    return (*found, text[at:end])
