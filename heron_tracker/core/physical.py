"""Packing plan and physical plan as Heron's tracker shows them, with Heron's ids (``stmgr-1``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from heron_runtime.model.ids import instance_id
from heron_runtime.model.plan import PackingPlan, PhysicalPlan, Resources
from heron_runtime.model.records import ContainerLocation, ExecutionState
from heron_runtime.model.topology import TopologyDefinition
from heron_tracker.core.plain import public_config


def stream_manager_id(container: int) -> str:
    """Heron's name of a container's stream manager."""
    return f"stmgr-{container}"


def packing_plan(definition: TopologyDefinition, packing: PackingPlan) -> dict[str, Any]:
    """The packing plan. RAM and disk are bytes, CPU is cores."""
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
    """Where the tracker serves a log file, relative to the tracker."""
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
    """The physical plan. ``shell_port`` is where the container's ``heron_container`` listens (0: not there)."""
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
        "config": public_config(plan.topology.config),
        "components": {n: {"config": public_config(s.config)} for n, s in components.items()},
    }


def _stream_managers(
    cluster: str,
    execution: ExecutionState,
    plan: PhysicalPlan,
    containers: Sequence[ContainerLocation],
    groups: Mapping[str, list[str]],
) -> dict[str, Any]:
    serving = {location.container: location for location in containers}
    found: dict[str, Any] = {}
    for manager in plan.stream_managers:
        name = stream_manager_id(manager.container)
        serves = serving.get(manager.container)
        found[name] = {
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
    return found
