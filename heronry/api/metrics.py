"""Metrics of user code, registered with ``context.register_metric(name, metric)``.

Each metric keeps its own totals, so that it works in unit tests without a runtime, at the cost of an addition. The
executor calls ``collect`` before each report. Changes since the last report go to the telemetry of the process under
the name of the metric (keyed metrics: ``name/key``).
"""

from __future__ import annotations

from typing import Any, Protocol

from heron_runtime.model.sketch import Sketch, bin_of, value_of

MAX_KEYS = 1024


class MetricSink(Protocol):
    """Interface of the telemetry that metrics report to."""

    def count(self, name: str, n: float = 1) -> None:
        """Add to a counter."""

    def gauge(self, name: str, value: float) -> None:
        """Set a gauge."""

    def latency(self, name: str, milliseconds: float, weight: float = 1) -> None:
        """Record a duration."""


class Metric:
    """Base of metrics."""

    def collect(self, name: str, sink: MetricSink) -> None:
        """Report the changes since the last call to ``sink``."""
        raise NotImplementedError


class CountMetric(Metric):
    """Counter. It never decreases."""

    def __init__(self) -> None:
        self.value: float = 0
        self._reported: float = 0

    def incr(self, to_add: float = 1) -> None:
        """Increase the counter. Raises ValueError for a negative number."""
        if to_add < 0:
            raise ValueError("a counter never goes down: use GaugeMetric for a value that does")
        self.value += to_add

    def get_value(self) -> float:
        """Return the total."""
        return self.value

    def collect(self, name: str, sink: MetricSink) -> None:
        """Report the increase since the last call."""
        if self.value != self._reported:
            sink.count(name, self.value - self._reported)
            self._reported = self.value


class MultiCountMetric(Metric):
    """Counters by key. Keys beyond the first 1,024 are counted together as ``__other``."""

    def __init__(self) -> None:
        self._counts: dict[str, CountMetric] = {}

    def scope(self, key: str) -> CountMetric:
        """Return the counter of a key."""
        metric = self._counts.get(key)
        if metric is None:
            if len(self._counts) >= MAX_KEYS and key != "__other":
                return self.scope("__other")
            metric = self._counts[key] = CountMetric()
        return metric

    def incr(self, key: str, to_add: float = 1) -> None:
        """Increase the counter of a key."""
        self.scope(key).incr(to_add)

    def add_key(self, key: str) -> None:
        """Add a key with count 0."""
        self.scope(key)

    def get_value(self) -> dict[str, float]:
        """Return the total of each key."""
        return {key: count.value for key, count in self._counts.items()}

    def collect(self, name: str, sink: MetricSink) -> None:
        """Report the increase of each key since the last call."""
        for key, count in self._counts.items():
            count.collect(f"{name}/{key}", sink)


class GaugeMetric(Metric):
    """Gauge: the last value is reported."""

    def __init__(self, initial: float = 0) -> None:
        self.value: float = initial

    def set(self, value: float) -> None:
        """Set the value."""
        self.value = value

    update = set

    def get_value(self) -> float:
        """Return the value."""
        return self.value

    def collect(self, name: str, sink: MetricSink) -> None:
        """Report the current value."""
        sink.gauge(name, self.value)


class MeanMetric(Metric):
    """Mean of the values since the last report, as a gauge."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._count = 0

    def update(self, value: float) -> None:
        """Add a value."""
        self._sum += value
        self._count += 1

    def get_value(self) -> float | None:
        """Return the mean since the last report, None without values."""
        return self._sum / self._count if self._count else None

    def collect(self, name: str, sink: MetricSink) -> None:
        """Report the mean. An interval without values keeps the last mean."""
        if self._count:
            sink.gauge(name, self._sum / self._count)
            self._sum, self._count = 0.0, 0


class LatencyMetric(Metric):
    """Histogram of milliseconds or other values (DDSketch: quantiles within 1%)."""

    def __init__(self) -> None:
        self._bins: dict[int, float] = {}
        self._new: dict[int, float] = {}

    def update(self, value: float, weight: float = 1) -> None:
        """Add a value, ``weight`` times."""
        key = bin_of(value)
        self._new[key] = self._new.get(key, 0.0) + weight

    def quantile(self, q: float) -> float | None:
        """Return the quantile ``q`` (0 to 1) of all values, None without values."""
        bins = dict(self._bins)
        for key, weight in self._new.items():
            bins[key] = bins.get(key, 0.0) + weight
        return Sketch(bins).quantiles([q])[0]

    def collect(self, name: str, sink: MetricSink) -> None:
        """Report the values since the last call."""
        new, self._new = self._new, {}
        for key, weight in new.items():
            sink.latency(name, value_of(key), weight)
            self._bins[key] = self._bins.get(key, 0.0) + weight


def as_metric(metric: Any) -> Metric:
    """Return the argument. Raises TypeError if it is not a metric."""
    if not isinstance(metric, Metric):
        raise TypeError(
            f"{type(metric).__name__} is not a metric: register a CountMetric, MultiCountMetric, GaugeMetric, "
            "MeanMetric or LatencyMetric from heronry.api.metrics"
        )
    return metric
