"""Documents for the web page, combined from the store, the processes and the metrics. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from heron_control.inspection.tasks_state import TasksState
from heron_runtime.model.dataflow import Cause
from heron_runtime.model.ids import instance_id
from heron_runtime.model.metrics import MetricKind
from heron_runtime.model.records import TopologyRecord
from heron_runtime.wire.container import ProcessStatus
from heron_runtime.wire.master import MetricsReply, MetricValue
from heron_tracker.core.graph_layout import GraphDrawing
from heron_tracker.core.json_values import json_number
from heron_tracker.core.metrics_view import summarize_flow

CPU_NAMES = ("__py-user-cpu-time-secs", "__py-sys-cpu-time-secs")
CPU_NAMES_US = ("__process/__cpu_user_usec", "__process/__cpu_system_usec")
MEMORY_NAMES = ("__py-physical-memory-byte", "__process/__mem_used_bytes")


def topology_row(
    key: tuple[str, str, str, str],
    record: TopologyRecord,
    state: str,
    causes: Sequence[Cause],
    flowing: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Describe a topology for the list. ``flowing`` is the result of ``summarize_topology``, None without metrics."""
    cluster, role, environ, name = key
    execution = record.execution
    return {
        "cluster": cluster,
        "role": role,
        "environ": environ,
        "topology": name,
        "state": state,
        "submitted_at": execution.submitted_at,
        "submission_user": execution.submission_user,
        "release_version": execution.release_version,
        "containers": len(record.packing.containers),
        "tasks": sum(len(plan.instances) for plan in record.packing.containers),
        "pressure": [describe_cause(cause) for cause in causes],
        "flow": flowing,
    }


def tasks_state_field(state: TasksState | None) -> dict[str, Any]:
    """Return the field about the state of tasks, or an empty dict."""
    return {} if state is None else {"tasks_state": {**msgspec.to_builtins(state), "trouble": state.trouble or None}}


def describe_cause(cause: Cause) -> dict[str, Any]:
    """Describe a cause of backpressure."""
    return {"component": cause.component, "task": cause.task, "text": str(cause)}


def describe_graph(
    record: TopologyRecord, drawing: GraphDrawing, flowing: Mapping[str, Any] | None, causes: Sequence[Cause]
) -> dict[str, Any]:
    """Describe the logical plan with its rates. ``flowing`` is the result of ``component_flows``."""
    pressed = {cause.component for cause in causes}
    specs = {spec.name: spec for spec in record.definition.components}
    return {
        "width": drawing.width,
        "height": drawing.height,
        "nodes": [
            {
                **asdict(node),
                "kind": specs[node.name].kind.value,
                "parallelism": specs[node.name].parallelism,
                "flow": flowing.get(node.name) if flowing is not None else None,
                "pressed": node.name in pressed,
            }
            for node in drawing.nodes
        ],
        "edges": [
            {
                "source": edge.source,
                "destination": edge.destination,
                "streams": [{"stream": stream, "grouping": grouping} for stream, grouping in edge.streams],
                "points": [list(point) for point in edge.points],
            }
            for edge in drawing.edges
        ],
    }


def instance_flows(record: TopologyRecord, reply: MetricsReply | None) -> dict[str, dict[str, Any]]:
    """Return ``summarize_flow`` by instance. Empty without metrics."""
    if reply is None:
        return {}
    values: dict[str, list[MetricValue]] = {}
    for value in reply.values:
        values.setdefault(value.instance, []).append(value)
    kinds = {spec.name: spec.is_spout for spec in record.definition.components}
    flows = {}
    for plan in record.packing.containers:
        for instance in plan.instances:
            name = instance_id(plan.container, instance.component, instance.task)
            if name in values:
                flows[name] = summarize_flow(values[name], is_spout=kinds.get(instance.component, False))
    return flows


def process_usage(reply: MetricsReply | None) -> dict[str, dict[str, Any]]:
    """Return CPU (cores, mean over the interval) and resident bytes of every reporting process."""
    usage: dict[str, dict[str, Any]] = {}
    for value in reply.values if reply is not None else ():
        entry = usage.setdefault(value.instance, {"cpu": None, "memory": None})
        if value.kind == MetricKind.GAUGE and value.name in MEMORY_NAMES:
            entry["memory"] = json_number(value.total)
        elif value.name in CPU_NAMES:
            entry["cpu"] = (entry["cpu"] or 0.0) + value.rate
        elif value.name in CPU_NAMES_US:
            entry["cpu"] = (entry["cpu"] or 0.0) + value.rate / 1e6
    return usage


def describe_process(process: ProcessStatus, used: Mapping[str, Any], flowing: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a process for the list of its container."""
    return {
        "kind": process.kind,
        "name": process.name,
        "component": process.component or None,
        "task": process.task or None,
        "pid": process.pid or None,
        "state": str(process.state),
        "since": process.since or None,
        "restarts": process.restarts,
        "last_error": process.last_error or None,
        "doing": process.doing or None,
        "cpu": used.get("cpu"),
        "memory": used.get("memory"),
        "flow": flowing or None,
    }
