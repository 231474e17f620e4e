"""What a metric is: its kind, its key, its names. The metrics themselves are in ``metric_table``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum


class MetricKind(StrEnum):
    """How values of one metric add up: counters sum, the last gauge wins, latencies are distributions (sketches)."""

    COUNTER = "counter"
    GAUGE = "gauge"
    LATENCY = "latency"


class Key(Enum):
    """What stands behind the base name, and the label it becomes.

    NONE nothing; STREAM ``/stream`` and SOURCE ``/component/stream`` become the label ``stream`` as they are (a spout
    keys its acks by stream, a bolt by source, so one metric may see both); INSTANCE ``/container_1_word_3``: the metric
    is *about* that instance and replaces the labels ``instance`` and ``component``; OTHER (a peer, a link, a reason)
    becomes ``stream`` too.
    """

    NONE = "none"
    STREAM = "stream"
    SOURCE = "source"
    INSTANCE = "instance"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. ``scale`` turns Heron's unit into Prometheus' base unit (seconds, bytes)."""

    name: str
    prometheus: str
    kind: MetricKind
    help: str
    key: Key = Key.NONE
    scale: float = 1.0


COUNTER, GAUGE, LATENCY = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.LATENCY
NS, US, MS = 1e-9, 1e-6, 1e-3  # to seconds
