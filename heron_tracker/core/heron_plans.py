"""Logical, packing and physical plan in the format of Heron's tracker, with Heron's ids (``stmgr-1``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from heron_runtime.model.ids import instance_id
from heron_runtime.model.plan import PackingPlan, PhysicalPlan, Resources
from heron_runtime.model.records import ContainerLocation, ExecutionState
from heron_runtime.model.topology import ComponentSpec, GroupingSpec, InputSpec, TopologyDefinition
from heron_tracker.core.json_values import redact_config


def logical_plan(definition: TopologyDefinition) -> dict[str, Any]:
    """Return ``{spouts, bolts, stages}``; ``stages`` is one more than the number of edges of the longest path."""
    spouts = {spec.name: _spout(spec) for spec in definition.components if spec.is_spout}
    bolts = {spec.name: _bolt(spec) for spec in definition.components if not spec.is_spout}
    depths = component_depths(definition)
    return {"spouts": spouts, "bolts": bolts, "stages": max(depths.values(), default=-1) + 1}


def component_depths(definition: TopologyDefinition) -> dict[str, int]:
    """Return the number of edges of the longest path to each component, ignoring edges that close a cycle."""
    inputs = {spec.name: [i.component for i in spec.inputs] for spec in definition.components}
    depths: dict[str, int] = {}
    for name in inputs:
        _depth(name, inputs, depths)
    return depths


def _depth(name: str, inputs: dict[str, list[str]], depths: dict[str, int]) -> None:
    """Compute depths depth-first without recursion, since a chain may exceed Python's stack."""
    path: list[str] = [name]
    open_now: set[str] = set()
    while path:
        here = path[-1]
        if here in depths:
            path.pop()
            continue
        open_now.add(here)
        waiting = [s for s in inputs[here] if s in inputs and s not in depths and s not in open_now]
        if waiting:
            path.append(waiting[0])
            continue
        depths[here] = 1 + max((depths[s] for s in inputs[here] if s in depths), default=-1)
        open_now.discard(here)
        path.pop()


def format_grouping(grouping: GroupingSpec) -> str:
    """Return a grouping in Heron's notation: ``SHUFFLE``, ``FIELDS(word)``."""
    text = grouping.kind.value.upper()
    return f"{text}({', '.join(grouping.fields)})" if grouping.fields else text


def _spout(spec: ComponentSpec) -> dict[str, Any]:
    config = redact_config(spec.config)
    return {
        "config": config,
        "spout_type": str(config.get("spout.type", "default")),
        "spout_source": str(config.get("spout.source", "NA")),
        "version": str(config.get("spout.version", "NA")),
        "outputs": _outputs(spec),
        "parallelism": spec.parallelism,
        "extra_links": [],
    }


def _bolt(spec: ComponentSpec) -> dict[str, Any]:
    return {
        "config": redact_config(spec.config),
        "outputs": _outputs(spec),
        "inputs": [_input(i) for i in spec.inputs],
        "inputComponents": list(dict.fromkeys(i.component for i in spec.inputs)),
        "input_components": list(dict.fromkeys(i.component for i in spec.inputs)),
        "parallelism": spec.parallelism,
    }


def _outputs(spec: ComponentSpec) -> list[dict[str, Any]]:
    return [{"stream_name": out.name, "fields": list(out.fields)} for out in spec.outputs]


def _input(source: InputSpec) -> dict[str, str]:
    return {
        "stream_name": source.stream,
        "component_name": source.component,
        "grouping": format_grouping(source.grouping),
    }


def stream_manager_id(container: int) -> str:
    """Return Heron's name of a container's stream manager."""
    return f"stmgr-{container}"


def packing_plan(definition: TopologyDefinition, packing: PackingPlan) -> dict[str, Any]:
    """Return the packing plan. RAM and disk are bytes, CPU is cores."""
    return {
        "id": definition.id,
        "container_plans": [
            {
                "id": plan.container,
                "instances": [
                    {
                        "component_name": instance.component,
                        "task_id": instance.task,
                        "component_index": instance.component_index,
                        "instance_resources": _resources(instance.resources),
                    }
                    for instance in plan.instances
                ],
                "required_resources": _resources(plan.resources),
                "scheduled_resources": _resources(plan.resources),
            }
            for plan in packing.containers
        ],
    }


def _resources(resources: Resources) -> dict[str, float]:
    return {"cpu": resources.cpu, "ram": resources.ram_bytes, "disk": resources.disk_bytes}


def log_link(execution: ExecutionState, cluster: str, container: int, file: str) -> str:
    """Return the path of a log file at the tracker."""
    return "/topologies/container/filedata?" + urlencode(
        {
            "cluster": cluster,
            "role": execution.role,
            "environ": execution.environ,
            "topology": execution.topology,
            "container": container,
            "path": file,
        }
    )


def physical_plan(
    cluster: str, execution: ExecutionState, plan: PhysicalPlan, containers: Sequence[ContainerLocation]
) -> dict[str, Any]:
    """Return the physical plan. ``shell_port`` is the port of the container's ``heron_container``, 0 without one."""
    instances: dict[str, Any] = {}
    groups: dict[str, list[str]] = {}
    by_component: dict[str, list[str]] = {spec.name: [] for spec in plan.topology.components}
    for container in plan.packing.containers:
        names = groups[stream_manager_id(container.container)] = []
        for instance in container.instances:
            name = instance_id(container.container, instance.component, instance.task)
            names.append(name)
            by_component.setdefault(instance.component, []).append(name)
            instances[name] = {
                "id": name,
                "name": instance.component,
                "stmgr_id": stream_manager_id(container.container),
                "task_id": instance.task,
                "logfile": log_link(execution, cluster, container.container, f"{name}.log"),
            }
    components = {spec.name: spec for spec in plan.topology.components}
    return {
        "version": str(plan.version),
        "instances": instances,
        "instance_groups": {f"container_{sm.removeprefix('stmgr-')}": names for sm, names in groups.items()},
        "stmgrs": _stream_managers(cluster, execution, plan, containers, groups),
        "spouts": {n: names for n, names in by_component.items() if n in components and components[n].is_spout},
        "bolts": {n: names for n, names in by_component.items() if n in components and not components[n].is_spout},
        "config": redact_config(plan.topology.config),
        "components": {n: {"config": redact_config(s.config)} for n, s in components.items()},
    }


def _stream_managers(
    cluster: str,
    execution: ExecutionState,
    plan: PhysicalPlan,
    containers: Sequence[ContainerLocation],
    groups: Mapping[str, list[str]],
) -> dict[str, Any]:
    serving = {location.container: location for location in containers}
    managers: dict[str, Any] = {}
    for manager in plan.stream_managers:
        name = stream_manager_id(manager.container)
        serves = serving.get(manager.container)
        managers[name] = {
            "id": name,
            "host": manager.host,
            "port": manager.port,
            "shell_port": serves.port if serves else 0,
            "cwd": execution.home,
            "pid": manager.pid,
            "joburl": "",
            "logfiles": log_link(execution, cluster, manager.container, f"stream_manager-{manager.container}.log"),
            "instance_ids": groups.get(name, []),
        }
    return managers
