"""Metrics of the user's own: made by the component, registered with ``context.register_metric(name, metric)``.

Each metric keeps its totals itself, so it works in a unit test without a runtime, and is as cheap as an addition. The
executor calls ``collect`` before each report; what has changed since the last time goes to the process's telemetry
under the metric's name (keyed metrics: ``name/key``).
"""

from __future__ import annotations

from typing import Any, Protocol

from heron_runtime.model.sketch import Sketch, bin_of, value_of

MAX_KEYS = 1024


class Sink(Protocol):
    """The part of the process's telemetry that metrics use."""

    def count(self, name: str, n: float = 1) -> None:
        """Add to a counter."""

    def gauge(self, name: str, value: float) -> None:
        """Set a gauge."""

    def latency(self, name: str, milliseconds: float, weight: float = 1) -> None:
        """Count a duration."""


class Metric:
    """The base: something that has a value and can hand over what is new."""

    def collect(self, name: str, sink: Sink) -> None:
        """Give to ``sink`` what has come since the last call."""
        raise NotImplementedError


class CountMetric(Metric):
    """A counter. Never goes down."""

    def __init__(self) -> None:
        self.value: float = 0
        self._told: float = 0

    def incr(self, to_add: float = 1) -> None:
        """Add. Raises ValueError for a negative number."""
        if to_add < 0:
            raise ValueError("a counter never goes down: use GaugeMetric for a value that does")
        self.value += to_add

    def get_value(self) -> float:
        """The total."""
        return self.value

    def collect(self, name: str, sink: Sink) -> None:
        """The increase."""
        if self.value != self._told:
            sink.count(name, self.value - self._told)
            self._told = self.value


class MultiCountMetric(Metric):
    """A counter for each key; the keys beyond the first 1 024 are counted together as ``__other``."""

    def __init__(self) -> None:
        self._counts: dict[str, CountMetric] = {}

    def scope(self, key: str) -> CountMetric:
        """The counter of ``key``."""
        found = self._counts.get(key)
        if found is None:
            if len(self._counts) >= MAX_KEYS and key != "__other":
                return self.scope("__other")
            found = self._counts[key] = CountMetric()
        return found

    def incr(self, key: str, to_add: float = 1) -> None:
        """Add to the counter of ``key``."""
        self.scope(key).incr(to_add)

    def add_key(self, key: str) -> None:
        """Have the key from the start, with 0."""
        self.scope(key)

    def get_value(self) -> dict[str, float]:
        """Key to total."""
        return {key: count.value for key, count in self._counts.items()}

    def collect(self, name: str, sink: Sink) -> None:
        """The increase of each key."""
        for key, count in self._counts.items():
            count.collect(f"{name}/{key}", sink)


class GaugeMetric(Metric):
    """A value that goes up and down; the last one counts."""

    def __init__(self, initial: float = 0) -> None:
        self.value: float = initial

    def set(self, value: float) -> None:
        """The value from now on."""
        self.value = value

    update = set

    def get_value(self) -> float:
        """The value."""
        return self.value

    def collect(self, name: str, sink: Sink) -> None:
        """The value as it is."""
        sink.gauge(name, self.value)


class MeanMetric(Metric):
    """The mean of what was measured since the last report, as a gauge."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._count = 0

    def update(self, value: float) -> None:
        """One measurement."""
        self._sum += value
        self._count += 1

    def get_value(self) -> float | None:
        """The mean since the last report; None when nothing was measured."""
        return self._sum / self._count if self._count else None

    def collect(self, name: str, sink: Sink) -> None:
        """The mean; an interval without measurements leaves the last one standing."""
        if self._count:
            sink.gauge(name, self._sum / self._count)
            self._sum, self._count = 0.0, 0


class LatencyMetric(Metric):
    """A histogram (DDSketch: quantiles within 1 %), of milliseconds or of whatever is measured."""

    def __init__(self) -> None:
        self._bins: dict[int, float] = {}
        self._new: dict[int, float] = {}

    def update(self, value: float, weight: float = 1) -> None:
        """Count ``value`` (milliseconds), ``weight`` times."""
        key = bin_of(value)
        self._new[key] = self._new.get(key, 0.0) + weight

    def quantile(self, q: float) -> float | None:
        """The value below which a fraction ``q`` lies; None when nothing was measured."""
        bins = dict(self._bins)
        for key, weight in self._new.items():
            bins[key] = bins.get(key, 0.0) + weight
        return Sketch(bins).quantiles([q])[0]

    def collect(self, name: str, sink: Sink) -> None:
        """What was measured since the last call."""
        new, self._new = self._new, {}
        for key, weight in new.items():
            sink.latency(name, value_of(key), weight)
            self._bins[key] = self._bins.get(key, 0.0) + weight


def as_metric(metric: Any) -> Metric:
    """``metric`` if it is one. Raises TypeError, naming the cure."""
    if not isinstance(metric, Metric):
        raise TypeError(
            f"{type(metric).__name__} is no metric: register a CountMetric, MultiCountMetric, GaugeMetric, "
            "MeanMetric or LatencyMetric from heronry.api.metrics"
        )
    return metric
