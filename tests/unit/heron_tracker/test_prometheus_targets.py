"""Prometheus targets: one for each container that serves metrics, for all kinds of host names."""

from __future__ import annotations

from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.records import ContainerLocation, ExecutionState, TopologyRecord
from heron_runtime.model.topology import TopologyDefinition, TopologyState
from heron_tracker.core.heron_records import prometheus_targets


def record(*places: tuple[str, int]) -> TopologyRecord:
    locations = tuple(ContainerLocation("t-1", n, host, 7000 + n, 1, 1, port) for n, (host, port) in enumerate(places))
    execution = ExecutionState("t", "t-1", "docker", "ada", "prod", TopologyState.RUNNING, "ada", 1.0, "0.1.0", "/h")
    return TopologyRecord(TopologyDefinition("t", "t-1", ()), PackingPlan("t"), None, execution, None, None, locations)


def test_each_container_with_metrics_is_a_target() -> None:
    found = prometheus_targets("docker", record(("heron-t-0", 9100), ("10.0.0.7", 40123), ("fd00::7", 9101), ("h", 0)))
    assert [t["targets"] for t in found] == [["heron-t-0:9100"], ["10.0.0.7:40123"], ["[fd00::7]:9101"]]
    assert found[1]["labels"] == {
        "cluster": "docker", "role": "ada", "environ": "prod", "__meta_heron_topology": "t",
        "__meta_heron_container": "1",
    }  # fmt: skip
