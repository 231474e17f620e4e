"""What Prometheus' ``http_sd_config`` is told: where the metrics manager of each container answers, and whose it is."""

from __future__ import annotations

from typing import Any

from heron_runtime.model.records import TopologyRecord


def prometheus_targets(cluster: str, record: TopologyRecord) -> list[dict[str, Any]]:
    """A target for each container that serves metrics. Hosts are as each container names itself: an address, or with
    Docker the container's name, which resolves in its network. Containers say port 0 until their metrics manager
    serves Prometheus, and always when it has no such sink; they are left out."""
    labels = {
        "cluster": cluster,
        "role": record.execution.role,
        "environ": record.execution.environ,
        "__meta_heron_topology": record.definition.name,
    }
    return [
        {
            "targets": [_address(location.host, location.metrics_port)],
            "labels": {**labels, "__meta_heron_container": str(location.container)},
        }
        for location in record.containers
        if location.metrics_port
    ]


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
