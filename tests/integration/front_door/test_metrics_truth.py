"""``heron metrics`` and the Prometheus endpoints report exact totals of a finite topology.

This holds although the metrics managers are killed between two halves of the data.
"""

from __future__ import annotations

import os
import signal
import urllib.request
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from heron_runtime.model.metrics import ACK_COUNT, EMIT_COUNT, EXECUTE_COUNT, FAIL_COUNT, base_name
from tests.integration.front_door import finite_topology
from tests.integration.front_door.finite_topology import NUMBERS, truth
from tests.support.heron_command import HeronCommand, unique
from tests.support.waiting import wait_until_equal

COUNTED = (EMIT_COUNT, EXECUTE_COUNT, ACK_COUNT, FAIL_COUNT)
IN_PROMETHEUS = {"heron_emitted": EMIT_COUNT, "heron_executed": EXECUTE_COUNT, "heron_acked": ACK_COUNT,
                 "heron_failed": FAIL_COUNT}  # fmt: skip


def counted(heron: HeronCommand, name: str) -> dict[str, dict[str, float]]:
    """Return the totals of the metrics with known true values."""
    found = {
        component: {metric: total for metric, total in metrics.items() if base_name(metric) in COUNTED}
        for component, metrics in heron.totals(name).items()
    }
    return {component: metrics for component, metrics in found.items() if metrics}


def scraped(metrics_folder: Path) -> dict[str, dict[str, float]]:
    """Return the same from every metrics manager's endpoint, by their Heron names."""
    found: dict[str, dict[str, float]] = {}
    for file in metrics_folder.glob("prometheus-*.port"):
        with urllib.request.urlopen(f"http://127.0.0.1:{file.read_text().strip()}/metrics", timeout=10) as reply:
            text = reply.read().decode()
        for family in text_string_to_metric_families(text):
            base = IN_PROMETHEUS.get(family.name)
            for sample in family.samples if base else ():
                if sample.name.endswith("_total"):
                    metrics = found.setdefault(sample.labels["component"], {})
                    key = f"{base}/{sample.labels['stream']}"
                    metrics[key] = metrics.get(key, 0) + sample.value
    return found


def check_shape(shown: dict[str, Any], name: str) -> None:
    """Check the shape ``{topology, interval, components: {NAME: {METRIC: {total, rate, instances: {ID: …}}}}}``."""
    assert set(shown) == {"topology", "interval", "components"}
    assert shown["topology"] == name
    assert shown["interval"] > 0
    for metrics in shown["components"].values():
        for metric, value in metrics.items():
            assert {"total", "rate", "instances"} <= set(value), metric
            if base_name(metric) in COUNTED:
                assert value["total"] == sum(i["total"] for i in value["instances"].values())
    workers = shown["components"]["worker"]["__execute-count/numbers/default"]["instances"]
    assert sorted(instance.split("_")[2] for instance in workers) == ["worker", "worker"]


def test_totals_are_exact_when_metrics_managers_die(heron: HeronCommand, tmp_path: Path) -> None:
    name = unique("Finite")
    heron.submit(name, finite_topology.__file__, "Finite", "--", str(tmp_path))
    wait_until_equal(lambda: counted(heron, name), truth(NUMBERS // 2), "totals of the first half")
    before = heron.pids(name)
    managers = [process for process in before if process.startswith("metrics_manager-")]
    assert len(managers) == 3
    for process in managers:
        os.kill(before[process], signal.SIGKILL)
    (tmp_path / "second").touch()
    wait_until_equal(lambda: counted(heron, name), truth(NUMBERS), "totals of everything")
    check_shape(heron.json("metrics", "local", name), name)
    after = heron.pids(name)
    assert {process for process in before if before[process] != after[process]} == set(managers)
    folder = Path(heron.submitted[name][0]["home"], "metrics")
    wait_until_equal(lambda: scraped(folder), truth(NUMBERS), "totals of the Prometheus endpoints")

    (shown,) = (line.split() for line in heron.run("metrics", "local", name).stdout.splitlines() if "worker" in line)
    worker = truth(NUMBERS)["worker"]
    executed = worker["__execute-count/numbers/default"] + worker["__execute-count/numbers/rare"]
    assert shown[1:3] == [f"{worker['__emit-count/default']:g}", f"{executed:g}"]
    chosen = heron.json("metrics", "local", name, "__emit-count", "--component", "numbers")["components"]
    assert {c: set(metrics) for c, metrics in chosen.items()} == {
        "numbers": {"__emit-count/default", "__emit-count/rare"}
    }
    said = heron.run("metrics", "local", name, "--component", "wroker", code=3).stderr
    assert "did you mean 'worker'" in said
    recent = heron.json("metrics", "local", name, "--interval", "60")
    assert 0 < recent["interval"] <= 60
    heron.kill(name)
