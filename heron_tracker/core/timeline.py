"""Points by minute from what a topology master replied, for ``/topologies/metrics/timeline`` and for queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from heron_tracker.core.plain import number
from heron_tracker.core.query_evaluation import MINUTE, Series, minutes_between
from heron_tracker.core.query_language import TimeSeries
from heronry.wire.master import TimelineReply, TimelineRequest

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
