"""Every metric there is: its Heron name, its Prometheus name, its kind, its unit, what it means.

Inside Heronry a metric has its *Heron name*: a base and, for keyed metrics, a key behind a slash:
``__emit-count/default``, ``__execute-count/word/default``. Processes count under Heron names, the topology master and
the tracker serve them. The Prometheus sink translates with this table: prefix ``heron_``, base units, counters end in
``_total``, and no labels but ``topology, component, instance, stream, container`` (a label per key of a tuple would
grow without bound). What a key becomes there is said by ``Key``.

Names that users register themselves (anything that is not in this table) become ``heron_user_<name>``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from heron_runtime.model.ids import parse_instance_id
from heron_runtime.model.metric_kinds import Key, Metric, MetricKind
from heron_runtime.model.metric_table import METRIC_TABLE

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in METRIC_TABLE}


class SplitName(NamedTuple):
    """A Heron name taken apart. ``metric`` is None for a name of the user's own; ``key`` is "" without one."""

    metric: Metric | None
    base: str
    key: str


class PrometheusName(NamedTuple):
    """The Prometheus name, the labels that differ from the reporting process's own, and the factor to base units."""

    name: str
    labels: Mapping[str, str]
    scale: float
    help: str


def keyed(base: str, *keys: str) -> str:
    """The Heron name of a keyed metric: ``keyed("__execute-count", "word", "default")``."""
    return "/".join((base, *keys))


def split_name(name: str) -> SplitName:
    """Take a Heron name apart by its longest base in the table (a base may itself contain a slash)."""
    base, key = name, ""
    while base:
        metric = METRICS.get(base)
        if metric is not None and (metric.key is not Key.NONE or not key):
            return SplitName(metric, base, key)
        base, _, last = base.rpartition("/")
        key = f"{last}/{key}" if key else last
    base, _, key = name.partition("/")
    return SplitName(None, base, key)


def base_name(name: str) -> str:
    """The name without its key."""
    return split_name(name).base


def prometheus_name(name: str, kind: MetricKind) -> PrometheusName:
    """What a Heron name is called in Prometheus. ``kind`` is how it was reported; it names users' own metrics."""
    metric, base, key = split_name(name)
    if metric is None:
        text = "heron_user_" + re.sub(r"[^a-zA-Z0-9_]", "_", base)
        if kind is MetricKind.COUNTER and not text.endswith("_total"):
            text += "_total"
        return PrometheusName(text, {"stream": key} if key else {}, 1.0, f"registered by the topology as {base}")
    return PrometheusName(metric.prometheus, _labels(metric, key), metric.scale, metric.help)


def _labels(metric: Metric, key: str) -> dict[str, str]:
    if not key:
        return {}
    if metric.key is Key.INSTANCE:
        try:
            return {"instance": key, "component": parse_instance_id(key).component}
        except ValueError:
            return {"instance": key}
    return {"stream": key}
