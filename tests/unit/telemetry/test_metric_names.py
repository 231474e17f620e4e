"""Metric registry: one Heron name, one Prometheus name, without ambiguity."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from heron_runtime.model import metrics
from heron_runtime.model.metrics import (
    CONTAINER_METRICS,
    EXECUTOR_METRICS,
    GATEWAY_METRICS,
    METRICS,
    METRICS_MANAGER_METRICS,
    PROCESS_METRICS,
    STREAM_MANAGER_METRICS,
    TOPOLOGY_MASTER_METRICS,
    MetricDefinition,
    MetricKey,
    MetricKind,
    keyed,
    prometheus_name,
    split_name,
)


def test_every_entry_follows_the_conventions_of_prometheus() -> None:
    for metric in METRICS.values():
        assert metric.name.startswith("__")
        assert re.fullmatch(r"heron_[a-z0-9_]+", metric.prometheus), metric
        assert metric.prometheus.endswith("_total") == (metric.kind is MetricKind.COUNTER), metric
        assert "_ms" not in metric.prometheus
        assert metric.help


def test_shared_prometheus_name_implies_the_same_kind_and_help() -> None:
    by_name: dict[str, MetricDefinition] = {}
    for metric in METRICS.values():
        other = by_name.setdefault(metric.prometheus, metric)
        assert (other.kind, other.help) == (metric.kind, metric.help)


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda m: m.name)
def test_keyed_name_is_split_into_its_parts(metric: MetricDefinition) -> None:
    assert split_name(metric.name) == (metric, metric.name, "")
    key = {MetricKey.NONE: "", MetricKey.STREAM: "default", MetricKey.SOURCE: "word/default"}.get(
        metric.key, "container_1_word_3"
    )
    if key:
        assert split_name(keyed(metric.name, key)) == (metric, metric.name, key)


def test_keys_become_labels() -> None:
    assert prometheus_name("__execute-count/word/default", MetricKind.COUNTER)[:2] == (
        "heron_executed_total",
        {"stream": "word/default"},
    )
    by_instance = prometheus_name("__time_spent_back_pressure_by_compid/container_1_my_word_3", MetricKind.COUNTER)
    assert by_instance.labels == {"instance": "container_1_my_word_3", "component": "my_word"}
    assert by_instance.scale == pytest.approx(1e-3)


def test_user_names_get_a_prefix_and_safe_characters() -> None:
    assert prometheus_name("cache hits/by-day", MetricKind.COUNTER)[:2] == (
        "heron_user_cache_hits_total",
        {"stream": "by-day"},
    )
    assert prometheus_name("größe", MetricKind.GAUGE).name == "heron_user_gr__e"


def test_every_counted_name_is_registered() -> None:
    root = Path(__file__).resolve().parents[3]
    rooms = (
        "stream_manager", "heron_instance", "topology_master", "metrics_manager", "heron_container", "heron_scheduler",
    )  # fmt: skip
    quoted = re.compile(r"""(?:count|gauge|latency|keyed)\(\s*f?"(__[^"{]+)(?="|/\{)""")
    unknown = {
        f"{path.relative_to(root)}: {name}"
        for room in rooms
        for path in (root / room).rglob("*.py")
        for name in quoted.findall(path.read_text())
        if split_name(name).metric is None
    }
    assert sorted(unknown) == []


def test_every_registered_metric_is_counted() -> None:
    root = Path(__file__).resolve().parents[3]
    names = {
        "stream_manager": STREAM_MANAGER_METRICS, "topology_master": TOPOLOGY_MASTER_METRICS,
        "metrics_manager": METRICS_MANAGER_METRICS, "heron_container": CONTAINER_METRICS,
        "heron_instance": EXECUTOR_METRICS + GATEWAY_METRICS,
        "heron_runtime/*.py heron_runtime/telemetry/*.py": PROCESS_METRICS,
    }  # fmt: skip
    constants = {
        value: name
        for name, value in vars(metrics).items()
        if name.isupper() and isinstance(value, str) and value.startswith("__")
    }
    silent = []
    for room, table in names.items():
        patterns = room.split() if "*" in room else [f"{room}/**/*.py"]
        files = [path for pattern in patterns for path in root.glob(pattern)]
        source = "".join(path.read_text() for path in files)
        for metric in table:
            made = re.sub(r"generation-\d", "generation-{number}", metric.name)  # names assembled from parts
            parts = re.match(r"__server/__([a-z]+(?:_tuples)?)_((?:to|from)_(?:workers|stmgrs))(_lost)?$", metric.name)
            found = made in source or constants.get(metric.name, "no constant") in source
            if not found and parts is not None:
                found = f'"{parts[1]}"' in source and f'"{parts[2]}"' in source
            if not found:
                silent.append(metric.name)
    assert silent == []
