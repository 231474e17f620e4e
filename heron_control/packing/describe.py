"""A packing plan as plain data: what ``submit --dry-run`` prints as JSON, and the api server answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from heron_runtime.model.plan import NO_RESOURCES, PackingPlan


def describe(plan: PackingPlan) -> dict[str, Any]:
    """Totals, the tasks of each component, and every container with its size (padding included) and its tasks.

    Cores, bytes, bytes; containers and tasks in order.
    """
    tasks = plan.instances()
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
    }
