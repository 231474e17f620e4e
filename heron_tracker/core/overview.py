"""What the web page shows of a topology, put together from the store, the processes and the metrics. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from heron_control.inspection.kept_state import KeptState
from heron_runtime.model.dataflow import Cause
from heron_runtime.model.ids import instance_id
from heron_runtime.model.metrics import MetricKind
from heron_runtime.model.records import TopologyRecord
from heron_runtime.wire.container import ProcessStatus
from heron_runtime.wire.master import MetricsReply, MetricValue
from heron_tracker.core.layout import Drawing
from heron_tracker.core.metrics_view import flow
from heron_tracker.core.plain import number

CPU_NAMES = ("__py-user-cpu-time-secs", "__py-sys-cpu-time-secs")
CPU_NAMES_US = ("__process/__cpu_user_usec", "__process/__cpu_system_usec")
MEMORY_NAMES = ("__py-physical-memory-byte", "__process/__mem_used_bytes")


def row(
    key: tuple[str, str, str, str],
    record: TopologyRecord,
    state: str,
    causes: Sequence[Cause],
    flowing: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """A topology in the list. ``flowing`` is ``metrics_view.whole``, None when the master does not answer."""
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
        "pressure": [cause_shape(cause) for cause in causes],
        "flow": flowing,
    }


def tasks_state(found: KeptState | None) -> dict[str, Any]:
    """What is kept of the state of tasks, under its name; nothing where none is."""
    return {} if found is None else {"tasks_state": {**msgspec.to_builtins(found), "trouble": found.trouble or None}}


def cause_shape(cause: Cause) -> dict[str, Any]:
    """A cause of backpressure: the slow one, and in words."""
    return {"component": cause.component, "task": cause.task, "text": str(cause)}


def graph(
    record: TopologyRecord, drawing: Drawing, flowing: Mapping[str, Any] | None, causes: Sequence[Cause]
) -> dict[str, Any]:
    """The logical plan with what flows through it. ``flowing``: component → ``metrics_view.flow``."""
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


def instances(record: TopologyRecord, reply: MetricsReply | None) -> dict[str, dict[str, Any]]:
    """Instance → what flows through it. Empty without metrics."""
    if reply is None:
        return {}
    values: dict[str, list[MetricValue]] = {}
    for value in reply.values:
        values.setdefault(value.instance, []).append(value)
    kinds = {spec.name: spec.is_spout for spec in record.definition.components}
    found = {}
    for plan in record.packing.containers:
        for instance in plan.instances:
            name = instance_id(plan.container, instance.component, instance.task)
            if name in values:
                found[name] = flow(values[name], is_spout=kinds.get(instance.component, False))
    return found


def usage(reply: MetricsReply | None) -> dict[str, dict[str, Any]]:
    """Process → CPU (cores, mean over the interval) and resident bytes, of every process that reports."""
    found: dict[str, dict[str, Any]] = {}
    for value in reply.values if reply is not None else ():
        entry = found.setdefault(value.instance, {"cpu": None, "memory": None})
        if value.kind == MetricKind.GAUGE and value.name in MEMORY_NAMES:
            entry["memory"] = number(value.total)
        elif value.name in CPU_NAMES:
            entry["cpu"] = (entry["cpu"] or 0.0) + value.rate
        elif value.name in CPU_NAMES_US:
            entry["cpu"] = (entry["cpu"] or 0.0) + value.rate / 1e6
    return found


def process_shape(process: ProcessStatus, used: Mapping[str, Any], flowing: Mapping[str, Any]) -> dict[str, Any]:
    """A process in the list of its container."""
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
