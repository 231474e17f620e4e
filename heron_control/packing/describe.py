"""Descriptions of packing plans and updates: JSON values and status lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from heron_runtime.model.containers import MASTER_RESOURCES, standbys_of
from heron_runtime.model.plan import NO_RESOURCES, PackingPlan, PhysicalPlan, UpdatePhase

STEPS = {
    UpdatePhase.NONE: "",
    UpdatePhase.DRAINING: "spouts are paused until tuples in flight are processed",
    UpdatePhase.SETTLING: "spouts are paused until all processes use the new plan",
}


def describe(plan: PackingPlan, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return totals, tasks of each component, and the containers with their sizes (including padding) and tasks.

    Containers of standby topology masters are listed separately and not part of the totals. Units are cores and bytes;
    containers and tasks are in order. ``submit --dry-run`` and the API server return this as JSON.
    """
    tasks = plan.instances()
    standbys = [{"container": number, **asdict(MASTER_RESOURCES)} for number in standbys_of(config)]
    total = sum((container.resources for container in plan.containers), NO_RESOURCES)
    return {
        "topology": plan.topology,
        "tasks": len(tasks),
        "total": {**asdict(total), "cpu": round(total.cpu, 6)},
        "components": dict(Counter(task.component for task in tasks)),
        "containers": [
            {
                "container": container.container,
                **asdict(container.resources),
                "instances": [
                    {"component": task.component, "task": task.task, **asdict(task.resources)}
                    for task in container.instances
                ],
            }
            for container in plan.containers
        ],
        **({"standbys": standbys} if standbys else {}),
    }


def update_text(plan: PhysicalPlan | None) -> str:
    """Return the progress of an update as one line, or ""."""
    if plan is None:
        return ""
    return STEPS[plan.standstill] or undrained_text(plan.undrained)


def undrained_text(why: str) -> str:
    """Return a line about an update that did not drain completely, or ""."""
    return f"tuples in flight were not drained: {why}" if why else ""
